# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from vmqos.gateway.metrics.default_group import DefaultGroupTraffic, Traffic
from vmqos.local_api import contract


def counts(total: float | None, local: float | None) -> dict[str, float | None]:
    return {"llc_occupancy": 1.0, "mbm_total_bytes": total, "mbm_local_bytes": local}


def test_it_begins_at_0_and_grows_as_the_kernels_counters_do() -> None:
    traffic = DefaultGroupTraffic()
    assert traffic.update({"0": counts(1000.0, 400.0)}) == {"0": Traffic(0.0, 0.0, 0.0)}
    assert traffic.update({"0": counts(1500.0, 600.0)}) == {"0": Traffic(500.0, 200.0, 300.0)}


def test_a_vm_that_ends_takes_nothing_away_and_what_is_moved_later_is_told() -> None:
    traffic = DefaultGroupTraffic()
    traffic.update({"0": counts(1000.0, 400.0)})
    traffic.update({"0": counts(1500.0, 600.0)})
    assert traffic.update({"0": counts(200.0, 100.0)}) == {"0": Traffic(500.0, 200.0, 300.0)}
    assert traffic.update({"0": counts(230.0, 110.0)}) == {"0": Traffic(530.0, 210.0, 320.0)}


def test_a_counter_without_a_number_is_absent_and_goes_on_from_where_it_was() -> None:
    traffic = DefaultGroupTraffic()
    traffic.update({"0": counts(1000.0, 400.0)})
    assert traffic.update({"0": counts(None, 500.0)}) == {"0": Traffic(None, 100.0, None)}
    assert traffic.update({"0": counts(1300.0, 500.0)}) == {"0": Traffic(300.0, 100.0, 200.0)}


def test_a_cache_that_is_gone_is_forgotten_and_each_cache_is_its_own() -> None:
    traffic = DefaultGroupTraffic()
    traffic.update({"0": counts(1000.0, 400.0), "1": counts(5.0, 5.0)})
    assert traffic.update({"1": counts(9.0, 7.0)}) == {"1": Traffic(4.0, 2.0, 2.0)}
    assert traffic.update({"0": counts(2000.0, 400.0), "1": counts(9.0, 7.0)})["0"] == Traffic(0.0, 0.0, 0.0)


def vm(group: str, total: float | None, generation: str = "1") -> contract.VmTelemetry:
    found: contract.VmTelemetry = cast(Any, {"group": group, "generation": generation})
    return {**found, "caches": {"0": counts(total, total)}}


def test_a_vm_that_comes_out_of_its_class_brings_nothing_that_it_moved_there() -> None:
    traffic = DefaultGroupTraffic()
    traffic.update({"0": counts(1000.0, 400.0)}, {"u": vm("class", 5000.0), "other": vm("", 7.0)})
    # The sum has all of it, and what the VM and others have moved since is a hundredth of that.
    assert traffic.update({"0": counts(6060.0, 5460.0)}, {"u": vm("", 5010.0)})["0"] == Traffic(50.0, 50.0, 0.0)
    assert traffic.update({"0": counts(6090.0, 5470.0)}, {"u": vm("", 5020.0)})["0"] == Traffic(80.0, 60.0, 20.0)


def test_what_a_vm_brings_is_not_told_either_where_it_is_not_known() -> None:
    traffic = DefaultGroupTraffic()
    traffic.update({"0": counts(1000.0, 400.0)}, {"u": vm("class", 5000.0)})
    assert traffic.update({"0": counts(6000.0, 5400.0)}, {"u": vm("", None)})["0"] == Traffic(0.0, 0.0, 0.0)
    assert traffic.update({"0": counts(6030.0, 5410.0)}, {"u": vm("", 5020.0)})["0"] == Traffic(30.0, 10.0, 20.0)


def test_a_vm_whose_counters_begin_anew_in_the_default_group_takes_nothing_away() -> None:
    traffic = DefaultGroupTraffic()
    traffic.update({"0": counts(1000.0, 400.0)}, {"u": vm("vmqos.u", 5000.0)})
    assert traffic.update({"0": counts(1050.0, 450.0)}, {"u": vm("", 40.0, "2")})["0"] == Traffic(50.0, 50.0, 0.0)


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), min_size=2, max_size=20))
def test_whatever_the_kernel_tells_no_counter_goes_back(told: list[tuple[int, int]]) -> None:
    traffic = DefaultGroupTraffic()
    found = [traffic.update({"0": counts(total, local)})["0"] for total, local in told]
    for before, after in pairwise(found):
        assert (after.total or 0) >= (before.total or 0)
        assert (after.local or 0) >= (before.local or 0)
        assert (after.remote or 0) >= (before.remote or 0)
