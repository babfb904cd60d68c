# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.unit.gateway.answers import telemetry
from tests.unit.telemetry.values import snapshot, vm
from vmqos.gateway.metrics.left_groups import LeftGroups
from vmqos.local_api import contract
from vmqos.telemetry import Missing, VmReading


def told(*vms: VmReading) -> Mapping[str, contract.VmTelemetry]:
    found: Mapping[str, contract.VmTelemetry] = telemetry(snapshot(*vms))["vms"]
    return found


def on(vms: Mapping[str, Any], cache: str = "0") -> tuple[float | None, ...]:
    return tuple(vms["u"]["caches"][cache].values())


def test_a_vm_in_one_group_is_told_as_it_is() -> None:
    groups = LeftGroups()
    for found in (told(vm((5, 1000, 600))), told(vm((4, 10, 6), generation="2"))):
        assert groups.update(found)["u"] is found["u"]


def test_what_was_counted_during_a_trial_stays_when_the_vm_is_back_in_its_group() -> None:
    groups = LeftGroups()
    groups.update(told(vm((5, 1000, 600), generation="a")))
    assert on(groups.update(told(vm((5, 1030, 620), generation="b+a")))) == (5, 1030, 620)
    assert on(groups.update(told(vm((4, 1001, 600), generation="a")))) == (4, 1030, 620)
    assert on(groups.update(told(vm((4, 1011, 605), generation="a")))) == (4, 1040, 625)
    assert on(groups.update(told(vm((4, 1021, 605), generation="c+a")))) == (4, 1050, 625), "another trial"
    assert on(groups.update(told(vm((4, 1020, 605), generation="a")))) == (4, 1050, 625)


def test_what_has_no_number_at_that_moment_is_made_up_for_when_it_has_one() -> None:
    groups = LeftGroups()
    groups.update(told(vm((5, 1030, 620), (0, 7, 7), generation="b+a")))
    found = groups.update(told(vm((4, Missing.UNAVAILABLE, 600), (0, 7, 7), generation="a")))
    assert (on(found), on(found, "1")) == ((4, None, 620), (0, 7, 7))
    assert on(groups.update(told(vm((4, 1010, 600), (0, 7, 7), generation="a")))) == (4, 1030, 620)


def test_a_vm_that_was_started_again_begins_anew() -> None:
    groups = LeftGroups()
    groups.update(told(vm((5, 1030, 620), generation="b+a")))
    groups.update(told(vm((5, 1000, 600), generation="a")))
    assert on(groups.update(told(vm((1, 10, 6), generation="c")))) == (1, 10, 6)


def test_a_counter_that_begins_anew_in_the_same_group_goes_back_as_the_kernels_does() -> None:
    groups = LeftGroups()
    groups.update(told(vm((5, 1030, 620), generation="b+a")))
    assert on(groups.update(told(vm((5, 3, 2), generation="b+a")))) == (5, 3, 2)


def test_what_was_left_is_not_added_to_a_counter_that_begins_anew_with_the_agent() -> None:
    groups = LeftGroups()
    groups.update(told(vm((5, 1030, 620), generation="b+a")))
    assert on(groups.update(told(vm((5, 1000, 600), generation="a")))) == (5, 1030, 620)
    assert on(groups.update(told(vm((5, 3, 2), generation="a")))) == (5, 3, 2), "or 33 would be taken for a burst"
    assert on(groups.update(told(vm((5, 8, 4), generation="a")))) == (5, 8, 4)


def test_a_vm_that_is_gone_is_forgotten() -> None:
    groups = LeftGroups()
    groups.update(told(vm((5, 1030, 620), generation="b+a")))
    assert groups.update(told()) == {}
    assert on(groups.update(told(vm((5, 1000, 600), generation="a")))) == (5, 1000, 600)


def test_the_parts_of_a_divided_socket_and_packages_go_on_likewise() -> None:
    def part(number: int, joules: float, generation: str) -> Mapping[str, Any]:
        found: Any = told(vm((5, number, number), generation=generation))
        counts = {"llc_occupancy": 5, "mbm_total_bytes": number, "mbm_local_bytes": None}
        found["u"] |= {"nodes": {"0": {"3": counts}}, "packages": {"1": {"core_energy": joules}}}
        return found  # type: ignore[no-any-return]

    groups = LeftGroups()
    groups.update(part(100, 7.5, "b+a"))
    now: Any = groups.update(part(80, 5.5, "a"))["u"]
    assert now["nodes"] == {"0": {"3": {"llc_occupancy": 5, "mbm_total_bytes": 100, "mbm_local_bytes": None}}}
    assert now["packages"] == {"1": {"core_energy": 7.5}}
