# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
import tracemalloc
from array import array
from dataclasses import replace
from typing import Any

import msgspec

from tests.unit.telemetry.values import HOST, snapshot, vm
from vmqos.agent.sample.history import Columns
from vmqos.agent.sample.minutes import Minutes, Track
from vmqos.agent.sample.sampler import Measured
from vmqos.agent.serve import counters
from vmqos.agent.serve.counters import Counters
from vmqos.resctrl.monitoring import CYCLES
from vmqos.telemetry import GroupReading, Missing, Reading, VmReading, rates


def as_told(value: Any) -> Any:
    """What a client reads of it."""
    return json.loads(msgspec.json.encode(value))


def test_a_vm_is_told_by_cache_with_its_bandwidths_and_what_is_missing() -> None:
    before = snapshot(vm((4096, 100, 60), (0, 0, Missing.ERROR), ways={0: 2}, allocated_bytes=2 << 20))
    after = snapshot(
        vm((4096, 300, 80), (0, 0, Missing.ERROR), ways={0: 2}, allocated_bytes=2 << 20, read_at=12.0), monotonic=12.0
    )
    told = Counters().telemetry(after, rates(before, after), 2.0)
    assert told["vms"]["u"] == {
        "group": "",
        "generation": "1",
        "policy": None,
        "ways": {"0": 2},
        "allocated_bytes": 2 << 20,
        "caches": {
            "0": {"llc_occupancy": 4096, "mbm_total_bytes": 300, "mbm_local_bytes": 80},
            "1": {"llc_occupancy": 0, "mbm_total_bytes": 0, "mbm_local_bytes": None},
        },
        "nodes": {},
        "packages": {},
        "package_rates": {},
        "packages_since": None,
        "totals": {"llc_occupancy": 4096, "mbm_total_bytes": 300, "mbm_local_bytes": None},
        "missing": {"mbm_local_bytes": "error"},
        "rates": {"total": 100.0, "local": None, "remote": None},
        "rates_missing": {"local": "error", "remote": "error"},
    }
    assert (told["taken_at"], told["interval"]) == (after.wall, 2.0)
    assert told["host"]["rmids"] == 192
    json.dumps(told, allow_nan=False)


def test_what_packages_and_nodes_count_is_told_with_the_growth_of_all_packages_together() -> None:
    def counted(cycles: int, read_at: float) -> VmReading:
        return vm(
            (30, 0, 0),
            read_at=read_at,
            nodes={0: {0: {"llc_occupancy": Reading(10)}, 1: {"llc_occupancy": Reading(20)}}},
            packages={0: {CYCLES: Reading(cycles)}, 1: {CYCLES: Reading(1)}},
            since=900.5,
        )

    before, after = snapshot(counted(100, 10.0)), snapshot(counted(500, 12.0), monotonic=12.0)
    told = Counters().telemetry(after, rates(before, after), 2.0)["vms"]["u"]
    assert told["nodes"] == {"0": {"0": {"llc_occupancy": 10}, "1": {"llc_occupancy": 20}}}
    assert told["packages"] == {"0": {CYCLES: 500}, "1": {CYCLES: 1}}
    assert told["package_rates"] == {CYCLES: 200.0}
    assert told["packages_since"] == 900.5
    assert told["totals"][CYCLES] == 501 and told["totals"]["llc_occupancy"] == 30


def test_each_control_group_that_is_no_vms_is_told_with_its_owner() -> None:
    names = {"": "default", "vmqos.shared-ways2": "class", "theirs": "foreign"}
    caches = vm((7, 5, 3)).caches
    now = snapshot(host=replace(HOST, groups=dict.fromkeys(names, GroupReading("1", caches))))
    told = Counters().telemetry(now, {}, 2.0)["host"]["groups"]
    assert {name: group["owner"] for name, group in told.items()} == names
    assert told["theirs"]["caches"] == {"0": {"llc_occupancy": 7, "mbm_total_bytes": 5, "mbm_local_bytes": 3}}


def test_the_past_is_told_as_it_is_remembered() -> None:
    past = Columns([1.0], {"u": {"llc_occupancy": [5.0], "total": [math.nan], "core_watts": [2.71828]}})
    told = {"llc_occupancy": [5], "total": [None], "core_watts": [2.718]}
    assert as_told(counters.history(past, 2.0)) == {"interval": 2.0, "times": [1.0], "vms": {"u": told}}


def test_the_past_of_many_vms_is_never_there_as_lists() -> None:
    column = array("f", [3e8 + 1e3 * number for number in range(600)])
    past = Columns(range(600), {f"{number:036}": {"total": column, "local": column} for number in range(50)})
    tracemalloc.start()
    try:
        told = counters.history(past, 1.0)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # In lists each number would take some forty bytes.
    assert most < 1.5 * len(msgspec.json.encode(told))


def test_a_minute_is_told_with_three_numbers_for_each_series() -> None:
    rows = array("f", [1, math.nan, 2.5, 0.0625, 4096, 3e9, *[math.nan] * 6])
    past = Minutes(("llc_occupancy", "total"), array("q", [60, 120]), {"u": Track(rows)})
    told = as_told(counters.minutes(past))
    assert told == {
        "resolution": 60,
        "times": [60, 120],
        "vms": {
            "u": {
                "llc_occupancy": {"least": [1, None], "mean": [2.5, None], "greatest": [4096, None]},
                "total": {"least": [None, None], "mean": [0.062, None], "greatest": [3_000_000_000, None]},
            }
        },
    }


def test_the_last_bandwidth_of_a_vm_that_waits_for_counters_is_told_with_its_age() -> None:
    before, after = snapshot(vm((0, 100, 60))), snapshot(vm((0, 300, 80), read_at=12.0), monotonic=12.0)
    last = counters.measured({"u": Measured(12.0, "1", rates(before, after)["u"])}, 35.0)
    waiting = snapshot(vm((0, Missing.UNASSIGNED, Missing.UNASSIGNED), read_at=34.0), monotonic=34.0)
    told = Counters().telemetry(waiting, rates(after, waiting), 2.0, last)["vms"]["u"]
    assert told["measured"] == {"rates": {"total": 100.0, "local": 10.0, "remote": 90.0}, "age_seconds": 23.0}
    assert told["rates"]["total"] is None and told["rates_missing"]["total"] == "unassigned"
