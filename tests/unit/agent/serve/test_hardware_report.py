# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.unit.telemetry.values import HOST, snapshot, vm
from vmqos.agent.sample.hardware_counts import Look, Uncounted, VmCounts
from vmqos.agent.serve.api import Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.local_api import contract
from vmqos.resctrl.exceptions import Vanished
from vmqos.resctrl.monitoring import CYCLES
from vmqos.telemetry import Missing, Reading, rates

PERF_CANNOT = "this kernel gives no hardware events"


def told(look: Look, sampled: Callable[[], Any] | None = None) -> Any:
    """What the API answers.

    :param sampled: what resctrl's counters say; nothing reads them if there is none.
    """
    hardware = SimpleNamespace(interval=2.0, newest=lambda: look)
    telemetry = SimpleNamespace(sampled=sampled) if sampled is not None else None
    api = Api(None, telemetry, LiveReads(), hardware=hardware)  # type: ignore[arg-type]
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/telemetry/hardware-events", "QUERY_STRING": ""}
    (content,) = api(environ, lambda status, headers: None)
    found = json.loads(content)
    msgspec.convert(found, contract.HardwareEvents)
    return found


def test_a_vms_counts_are_told_by_event_with_rates_and_share() -> None:
    big = 1 << 60
    vm = VmCounts(900.0, (big, 3, 2, 1), (4.0, 3.0, 2.0, 1.5), 0.75)
    found = told(Look(time.monotonic() - 1, 1000.0, vms={"u": vm}))
    assert found["vms"]["u"] == {
        "since": 900.0,
        "counts": {"cycles": big, "instructions": 3, "cache_references": 2, "cache_misses": 1},
        "rates": {"cycles": 4.0, "instructions": 3.0, "cache_references": 2.0, "cache_misses": 1.5},
        "share": 0.75,
        "source": "perf",
        "reason": "",
        "reason_code": "",
    }
    assert (found["taken_at"], found["interval"], found["unavailable"]) == (1000.0, 2.0, "")
    assert 1 <= found["age_seconds"] < 60


def test_a_vm_that_is_not_counted_has_a_reason_and_no_number() -> None:
    found = told(Look(1.0, 1000.0, vms={"u": Uncounted("refused", "not permitted")}))["vms"]["u"]
    assert set(found["counts"].values()) == set(found["rates"].values()) == {None}
    assert (found["reason"], found["reason_code"], found["share"], found["since"]) == (
        "not permitted",
        "refused",
        None,
        None,
    )


def test_before_the_first_look_there_is_nothing() -> None:
    assert told(Look()) == {
        "taken_at": None,
        "interval": 2.0,
        "age_seconds": None,
        "unavailable": "",
        "unavailable_code": "",
        "vms": {},
    }


GREW = Reading(3000)


def packages(*uuids: str, events: tuple[str, ...] = (CYCLES,), last: Reading = GREW) -> Callable[[], Any]:
    """Two sweeps, two seconds apart, in which packages counted for these VMs."""
    host = replace(HOST, events=events)

    def sweep(at: float, cycles: Reading) -> Any:
        vms = [vm((1, 2, 2), uuid=uuid, read_at=at, packages={0: {CYCLES: cycles}}, since=950.5) for uuid in uuids]
        return snapshot(*vms, monotonic=at, host=host)

    before, after = sweep(time.monotonic() - 3, Reading(1000)), sweep(time.monotonic() - 1, last)
    return lambda: (after, rates(before, after))


def test_where_perf_counts_nothing_the_cycles_are_those_of_the_packages_and_the_reason_stays() -> None:
    found = told(Look(1.0, 1000.0, unavailable=PERF_CANNOT, unavailable_code="no-events"), packages("u"))
    of_vm = found["vms"]["u"]
    assert found["unavailable_code"] == "no-events"
    assert found["unavailable"] == "" and 1 <= found["age_seconds"] < 60
    assert of_vm["counts"] == {"cycles": 3000, "instructions": None, "cache_references": None, "cache_misses": None}
    assert of_vm["rates"]["cycles"] == pytest.approx(1000, rel=0.01) and of_vm["rates"]["instructions"] is None
    assert (of_vm["since"], of_vm["share"], of_vm["source"]) == (950.5, None, "aet")
    assert (of_vm["reason"], of_vm["reason_code"]) == (PERF_CANNOT, "no-perf")


def test_a_vm_that_perf_counts_is_told_by_perf_and_one_that_it_does_not_by_the_packages() -> None:
    look = Look(time.monotonic(), 1000.0, vms={"u": VmCounts(900.0, (7, 3, 2, 1)), "v": Uncounted("refused", "no")})
    found = told(look, packages("u", "v", "gone"))["vms"]
    assert found.keys() == {"u", "v"}
    assert (found["u"]["source"], found["u"]["counts"]["cycles"], found["u"]["reason"]) == ("perf", 7, "")
    assert (found["v"]["source"], found["v"]["counts"]["cycles"], found["v"]["reason"]) == ("aet", 3000, "no")


def test_what_packages_counted_long_before_perf_looked_is_told_with_no_age_of_now() -> None:
    vms = {"u": VmCounts(900.0, (7, 3, 2, 1)), "v": Uncounted("refused", "no")}
    found = told(Look(time.monotonic() + 60, 1000.0, vms=vms), packages("u", "v"))["vms"]
    assert found["u"]["counts"]["cycles"] == 7
    assert (found["v"]["source"], found["v"]["counts"]["cycles"], found["v"]["reason"]) == ("", None, "no")


def test_where_packages_count_nothing_either_it_is_as_without_them() -> None:
    look = Look(1.0, 1000.0, unavailable=PERF_CANNOT)

    def fails() -> Any:
        raise Vanished(path="/sys/fs/resctrl")

    for sampled in (None, fails, packages(), packages("u", events=("core_energy",))):
        found = told(look, sampled)
        assert (found["unavailable"], found["vms"], found["taken_at"]) == (PERF_CANNOT, {}, 1000.0)


def test_a_vm_that_did_not_run_yet_has_no_cycles() -> None:
    found = told(Look(1.0, 1000.0, unavailable=PERF_CANNOT), packages("u", last=Reading.none(Missing.UNAVAILABLE)))
    assert set(found["vms"]["u"]["counts"].values()) == set(found["vms"]["u"]["rates"].values()) == {None}
