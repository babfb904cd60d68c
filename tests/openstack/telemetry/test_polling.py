# SPDX-License-Identifier: Apache-2.0
"""``ceilometer-polling`` alone: what it exports of each instance, and what it says of those it can't tell of."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ceilometer_pollster.meters import EVENT_METERS, METERS
from tests.openstack.servers.ceilometer import INTERVAL, Polling
from tests.openstack.telemetry import counting_agent
from tests.openstack.telemetry.conftest import WaitFor
from tests.openstack.telemetry.counters import Counters
from tests.openstack.telemetry.node import CAPPED, GOLD, PLAIN, RUNNING, STOPPED, WAYS, Node
from tools.lab import vms
from tools.lab.workspace import Workspace

OCCUPANCY, TOTAL, LOCAL = "llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"
PROMISED = {GOLD.uuid, CAPPED.uuid}
EVERY = {vm.uuid for vm in RUNNING}
CYCLES = 3 * INTERVAL


def told_of(polling: Polling, uuid: str) -> list[str]:
    """The lines of the pollsters about an instance."""
    return [line for line in polling.said.splitlines() if "ceilometer_pollster" in line and uuid in line]


def samples_of(polling: Polling, uuid: str) -> list[Any]:
    """The samples of an instance that are there now."""
    return [one for one in polling.samples() if one.labels["resource"] == uuid]


def test_each_meter_has_a_sample_of_each_running_instance_and_of_no_other(polling: Polling, wait_for: WaitFor) -> None:
    expected = {
        meter.name: PROMISED if meter.name in ("cpu_l3_cache.ways", "cpu_l3_cache.allocated") else EVERY
        for meter in METERS
    }
    shown: dict[str, set[str]] = {}

    def as_expected() -> bool:
        shown.update((name, set(polling.series(name))) for name in expected)
        return shown == expected

    try:
        wait_for(as_expected, "all samples")
    except TimeoutError:
        assert shown == expected
    assert told_of(polling, STOPPED.uuid)


def test_samples_carry_unit_name_project_and_flavor(polling: Polling, wait_for: WaitFor) -> None:
    names = {meter.name for meter in METERS}
    labels: dict[str, dict[str, str]] = {}

    def has_each_meter() -> bool:
        # They are sent meter by meter, and between two cycles' samples of a meter there are none for a moment.
        labels.update({one.labels["counter"]: one.labels for one in samples_of(polling, GOLD.uuid)})
        return labels.keys() >= names

    wait_for(has_each_meter, "a sample of each meter")
    assert {name: one["unit"] for name, one in labels.items()} == {meter.name: meter.unit for meter in METERS}
    assert {one["resource_name"] for one in labels.values()} == {f"{GOLD.display_name}:{GOLD.name}"}
    assert {one["flavor_name"] for one in labels.values()} == {"gold"}
    assert {one["project"] for one in labels.values()} == {vms.PROJECT}


def test_a_promise_is_ways_on_each_cache_and_bytes_in_all(polling: Polling, node: Node, wait_for: WaitFor) -> None:
    size = node.promised_bytes(GOLD)
    for meter, value in (("cpu_l3_cache.ways", WAYS), ("cpu_l3_cache.allocated", size)):
        seen: dict[str, float] = {}

        def is_told(meter: str = meter, seen: dict[str, float] = seen) -> bool:
            # Between two cycles' samples of a meter there are none for a moment.
            seen.clear()
            seen.update(polling.series(meter))
            return seen.keys() == PROMISED

        wait_for(is_told, f"{meter} of the promises")
        assert set(seen.values()) == {value}


def test_volumes_are_the_sums_of_the_counters_of_that_instance(
    polling: Polling, counters: Counters, wait_for: WaitFor
) -> None:
    for number, vm in enumerate(RUNNING, start=1):
        counters.hold(vm.uuid, OCCUPANCY, number << 20, cache=0)
        counters.hold(vm.uuid, OCCUPANCY, 100, cache=1)
        counters.hold(vm.uuid, TOTAL, number * 10**15)
        counters.hold(vm.uuid, LOCAL, number * 10**14)
    numbers = dict(enumerate(RUNNING, start=1)).items()
    for meter, expected in (
        ("cpu_l3_cache", {vm.uuid: (number << 20) + 100 for number, vm in numbers}),
        ("memory.traffic.total", {vm.uuid: 2 * number * 10**15 for number, vm in numbers}),
        ("memory.traffic.local", {vm.uuid: 2 * number * 10**14 for number, vm in numbers}),
    ):
        wait_for(lambda m=meter, e=expected: polling.series(m) == e, f"{meter} being {expected}")


def test_bandwidth_is_the_growth_between_two_cycles_by_the_clock(
    polling: Polling, counters: Counters, wait_for: WaitFor
) -> None:
    names = ("total", "local", "remote")

    def bandwidth() -> list[float | None]:
        return [polling.series(f"memory.bandwidth.{name}").get(PLAIN.uuid) for name in names]

    moved = 10**12
    counters.hold(PLAIN.uuid, TOTAL, moved)
    counters.hold(PLAIN.uuid, LOCAL, moved)
    wait_for(lambda: bandwidth() == [0.0, 0.0, 0.0], "no growth")
    last: list[float | None] = []
    step = 4 * 10**9

    def growing() -> bool:
        """Let the counters of one cache grow, a quarter of it locally, until a cycle has seen nothing but that."""
        nonlocal moved, last
        moved += step
        counters.hold(PLAIN.uuid, TOTAL, moved, cache=1)
        counters.hold(PLAIN.uuid, LOCAL, 10**12 + (moved - 10**12) // 4, cache=1)
        last = bandwidth()
        total, local, remote = last
        return bool(total and local and remote) and local == pytest.approx(total / 4) and remote == total - local

    try:
        wait_for(growing, "local being a quarter of the total, and remote the rest")
    except TimeoutError as error:
        raise AssertionError(f"{error}; last seen: {last}") from error
    assert last[0] is not None and last[0] < (moved - 10**12) / INTERVAL * 1.5


def test_a_counter_without_a_value_is_no_sample_and_no_zero_and_its_return_no_leap(
    polling: Polling, counters: Counters, wait_for: WaitFor
) -> None:
    counters.hold(GOLD.uuid, OCCUPANCY, 5 << 20)
    counters.hold(GOLD.uuid, TOTAL, 7 * 10**12)
    wait_for(lambda: polling.series("memory.traffic.total").get(GOLD.uuid) == 14 * 10**12, "held counters")
    wait_for(lambda: polling.series("memory.bandwidth.total").get(GOLD.uuid) == 0.0, "no growth")
    before = len(told_of(polling, GOLD.uuid))

    seen: dict[str, set[float]] = {meter.name: set() for meter in METERS}

    def watching(condition: Callable[[], bool]) -> Callable[[], bool]:
        """The condition, noting all samples of the instance on the way to it."""

        def noted() -> bool:
            for one in samples_of(polling, GOLD.uuid):
                seen[one.labels["counter"]].add(one.value)
            return condition()

        return noted

    counters.hold(GOLD.uuid, OCCUPANCY, "Error", cache=1)
    counters.hold(GOLD.uuid, TOTAL, "Unavailable", cache=1)
    lost = ("cpu_l3_cache", "memory.traffic.total", "memory.bandwidth.total", "memory.bandwidth.remote")
    wait_for(watching(lambda: all(GOLD.uuid not in polling.series(meter) for meter in lost)), "these samples ending")
    # The other instances, and what stands on other counters; of either there is no sample for a moment in each cycle.
    wait_for(watching(lambda: EVERY - {GOLD.uuid} <= set(polling.series("cpu_l3_cache"))), "those of other instances")
    wait_for(watching(lambda: GOLD.uuid in polling.series("memory.traffic.local")), "that of another counter")
    deadline = time.monotonic() + CYCLES
    wait_for(watching(lambda: time.monotonic() > deadline), "some cycles more")
    told = told_of(polling, GOLD.uuid)[before:]
    assert len(told) == 2, told
    assert all(event in "".join(told) for event in (OCCUPANCY, TOTAL))

    counters.hold(GOLD.uuid, OCCUPANCY, 5 << 20)
    counters.hold(GOLD.uuid, TOTAL, 7 * 10**12 + 500)
    wait_for(watching(lambda: GOLD.uuid in polling.series("memory.bandwidth.total")), "samples again")
    deadline = time.monotonic() + CYCLES
    wait_for(watching(lambda: time.monotonic() > deadline), "some cycles more")
    assert seen["cpu_l3_cache"] == {2 * (5 << 20)}
    assert seen["memory.traffic.total"] <= {14 * 10**12, 14 * 10**12 + 1000}
    assert seen["memory.bandwidth.total"] == {0.0}
    assert len(told_of(polling, GOLD.uuid)[before:]) == 4


def test_a_stopped_instance_has_no_series_though_its_group_is_there_and_begins_anew_when_it_starts(
    polling: Polling, node: Node, wait_for: WaitFor
) -> None:
    wait_for(lambda: GOLD.uuid in polling.series("memory.bandwidth.total"), "a rate")
    domain = node.libvirt.connection().lookupByUUIDString(GOLD.uuid)
    # It would remove the group.
    node.agent.stop()
    domain.destroy()
    wait_for(lambda: all(one.labels["resource"] != GOLD.uuid for one in polling.samples()), "no series of it")
    assert (node.simulator.root / f"vmqos.{GOLD.uuid}").is_dir()
    wait_for(lambda: "it does not run" in "".join(told_of(polling, GOLD.uuid)), "the reason")
    told = len(told_of(polling, GOLD.uuid))
    time.sleep(CYCLES)
    assert len(told_of(polling, GOLD.uuid)) == told

    node.agent.start()
    wait_for(lambda: not (node.simulator.root / f"vmqos.{GOLD.uuid}").exists(), "its group being removed")
    domain.create()
    node.wait_until_placed()
    rates: list[float] = []

    def has_a_rate() -> bool:
        rates.extend(rate for uuid, rate in polling.series("memory.bandwidth.total").items() if uuid == GOLD.uuid)
        return bool(rates)

    wait_for(has_a_rate, "a rate of its new life")
    # No machine moves a terabyte a second, and a counter that began anew would have moved backwards.
    assert 0 <= rates[0] < 1e12


def test_what_instances_execute_is_what_the_agent_has_counted(
    workspace: Workspace, node: Node, wait_for: WaitFor
) -> None:
    socket = workspace.path / "counting-agent.sock"
    vms = {
        GOLD.uuid: counting_agent.counted(4 * 10**15, 10**15, 10**9, 10**6),
        PLAIN.uuid: counting_agent.counted(4, 3, 2, 1),
        CAPPED.uuid: counting_agent.uncounted("the kernel refuses it"),
        STOPPED.uuid: counting_agent.counted(1, 1, 1, 1),
    }
    polling = Polling(
        workspace,
        resctrl=node.simulator.root,
        libvirt_uri=node.libvirt.uri,
        further={"vmqos": {"agent_socket": socket}},
        name="ceilometer-and-a-counting-agent",
    )
    volumes = {
        "perf.cpu.cycles": {GOLD.uuid: 4e15, PLAIN.uuid: 4},
        "perf.instructions": {GOLD.uuid: 1e15, PLAIN.uuid: 3},
        "perf.cache.references": {GOLD.uuid: 1e9, PLAIN.uuid: 2},
        "perf.cache.misses": {GOLD.uuid: 1e6, PLAIN.uuid: 1},
    }
    try:
        wait_for(partial(_says, polling, "vmqos-agent does not run"), "the reason without an agent")
        assert not any(polling.series(meter) for meter in volumes)
        with counting_agent.on(socket, vms) as agent:
            # Between two cycles' samples of a meter there are none for a moment.
            for meter, expected in volumes.items():
                wait_for(lambda m=meter, e=expected: polling.series(m) == e, f"{meter} being {expected}")
            for meter in EVENT_METERS:
                wait_for(lambda m=meter: _units(polling, m.name) == {m.unit}, f"the unit of {meter.name}")
            wait_for(partial(_says, polling, f"instance {CAPPED.uuid} has no samples that need hardware"), "its reason")
            assert polling.said.count("the kernel refuses it") == 1
            agent.answers[counting_agent.PATH]["vms"].pop(PLAIN.uuid)
            wait_for(lambda: set(polling.series("perf.instructions")) == {GOLD.uuid}, "the end of another one's series")
            agent.answers[counting_agent.PATH]["unavailable"] = "switched off"
            wait_for(partial(_says, polling, "switched off"), "why nothing is counted")
            wait_for(lambda: not any(polling.series(meter) for meter in volumes), "no samples")
        wait_for(lambda: set(polling.series("memory.traffic.total")) == EVERY, "what needs no agent")
    finally:
        polling.stop()


def _units(polling: Polling, meter: str) -> set[str]:
    return {one.labels["unit"] for one in polling.samples() if one.labels["counter"] == meter}


def test_without_resctrl_no_meter_is_polled_and_the_log_says_what_mends_it(
    workspace: Workspace, node: Node, wait_for: WaitFor, tmp_path: Path
) -> None:
    blind = Polling(workspace, resctrl=tmp_path, libvirt_uri=node.libvirt.uri, name="ceilometer-without-resctrl")
    try:
        for meter in METERS:
            wait_for(partial(_says, blind, f"{meter.name} is not polled"), f"a line about {meter.name}")
        assert f"mounted at {tmp_path}" in blind.said
        assert not list(blind.samples())
    finally:
        blind.stop()


def _says(polling: Polling, text: str) -> bool:
    return text in polling.said
