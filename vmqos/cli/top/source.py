# SPDX-License-Identifier: Apache-2.0
"""Where ``vmqos top`` takes its numbers from: the agent where it runs, else resctrl itself."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from vmqos.cli.show import freshness, fullness, vm_view
from vmqos.cli.show.safe_text import distinct_names
from vmqos.cli.show.units import parse_mask
from vmqos.cli.top.data import NEARLY_ALL, Frame, Row
from vmqos.cli.top.rest import Rest
from vmqos.local_api import contract, exceptions
from vmqos.local_api.client import AgentClient
from vmqos.telemetry import HostReading, Missing, Rates, Reading, Snapshot, Sweeper, VmReading, rates
from vmqos.telemetry.hardware_events import Counts, HardwareEvents

_NO_AGENT = "Read from resctrl itself, without the VMs' states: "
_ABSENT = (exceptions.AgentNotRunning, exceptions.SocketForbidden, exceptions.SocketUnusable)
_NOT_COUNTED = Reading.none(Missing.NO_COUNTER)

_WHY_NOT = {
    "starting": Missing.NO_PREVIOUS,
    "threads-keep-coming": Missing.NO_PREVIOUS,
    "too-many-tasks": Missing.UNASSIGNED,
    "no-files": Missing.UNASSIGNED,
    "refused": Missing.UNREADABLE,
    "unreadable": Missing.UNREADABLE,
    "ended": Missing.VANISHED,
}
"""What the agent's words for why it does not count a VM are among the reasons for which there is no number."""

_ENERGY, _CYCLES, _STALLS = "core_energy", "unhalted_core_cycles", "stalls_llc_miss"
"""What packages count: joules, cycles, and those of the cycles that were spent waiting for memory."""

_OLD_EVENTS = 5.0
"""Seconds up to which hardware events are never called old."""


class Source:
    """Looks at the host, again and again; for one thread at a time.

    At each look the agent is asked first. Where no agent runs, the counters are read here, which needs no more than the
    permission to read them; after the agent's return, that begins anew.

    :param agent: the agent's API.
    :param sweeper: reads resctrl's counters.
    :param make_events: what counts the VMs' processes where the agent does not; made at the first need, for two that
        count have to share the processor's counters.
    """

    def __init__(self, agent: AgentClient, sweeper: Sweeper, make_events: Callable[[], HardwareEvents]) -> None:
        self._agent = agent
        self._sweeper = sweeper
        self._make_events = make_events
        self._events: HardwareEvents | None = None
        self._before: Snapshot | None = None
        self._known: dict[str, Row] = {}
        self._rest = Rest()

    def look(self, detail: str = "") -> Frame:
        """One look.

        :param detail: the UUID of a VM of which to ask the agent all; empty for none.
        :raises vmqos.local_api.exceptions.LocalApiError: if the agent is there and does not answer.
        :raises vmqos.resctrl.exceptions.ResctrlError: if there is no agent, and resctrl can't be read.
        """
        try:
            vms = self._agent.vms()
        except _ABSENT as error:
            frame = self._look_at_resctrl(str(error))
            return replace(frame, hostname=socket.gethostname(), detail_problem=str(error) if detail else "")
        self._before = None
        self._sweeper.close()
        frame = self._add_detail(self._ask(vms), detail)
        frame = replace(frame, hostname=frame.freshness.hostname or socket.gethostname())
        self._known = {row.uuid: row for row in frame.rows}
        return self._add_events(frame, {vm["uuid"]: vm["pid"] for vm in vms})

    def close(self) -> None:
        """Close every file."""
        self._sweeper.close()
        self._stop_counting()

    def _stop_counting(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None

    def _ask(self, vms: Sequence[contract.Vm]) -> Frame:
        names = distinct_names(vms)
        try:
            counters = self._agent.telemetry()
        except (exceptions.AgentRefused, exceptions.AgentFailed) as error:
            notes = (f"No counters: {error}",)
            rows = tuple(_row(vm, names, None) for vm in vms)
            return Frame(time.time(), 0.0, "agent", rows, notes=notes, freshness=freshness.ask(self._agent))
        host = counters["host"]
        return Frame(
            taken_at=counters["taken_at"],
            interval=counters["interval"],
            source="agent",
            rows=tuple(_row(vm, names, counters) for vm in vms),
            cache_ways={int(cache): ways for cache, ways in host["ways"].items()},
            cache_bytes={int(cache): size for cache, size in host["cache_bytes"].items()},
            rest=self._rest.hear(counters),
            age=counters.get("age_seconds"),
            freshness=freshness.ask(self._agent),
        )

    def _add_detail(self, frame: Frame, uuid: str) -> Frame:
        if not uuid:
            return frame
        try:
            return replace(frame, detail=self._agent.vm(uuid))
        except (exceptions.AgentRefused, exceptions.AgentFailed) as error:
            return replace(frame, detail_problem=str(error))

    def _add_events(self, frame: Frame, pids: Mapping[str, int]) -> Frame:
        """What the agent has counted, or, where it counts nothing, what is counted here."""
        try:
            told = self._agent.hardware_events()
        except (exceptions.AgentRefused, exceptions.AgentFailed):
            # It is an earlier one.
            return self._count(frame, pids, "")
        why = told["unavailable"] or _no_perf(told)
        if why:
            return self._count(frame, pids, why)
        self._stop_counting()
        rows = tuple(_with_agents_events(row, told["vms"].get(row.uuid)) for row in frame.rows)
        return replace(frame, rows=rows, notes=(*frame.notes, *_remarks(told), *_estimates(rows)))

    def _count(self, frame: Frame, pids: Mapping[str, int], why_not_the_agent: str) -> Frame:
        if self._events is None:
            self._events = self._make_events()
        counted = self._events.read(pids.values())
        if self._events.unavailable:
            uncounted = tuple(replace(row, ipc=_NOT_COUNTED, misses=_NOT_COUNTED) for row in frame.rows)
            note = _no_events(why_not_the_agent or self._events.unavailable)
            return replace(frame, rows=uncounted, notes=(*frame.notes, note))
        rows = tuple(_with_events(row, counted.get(pids[row.uuid])) for row in frame.rows)
        return replace(frame, rows=rows, notes=(*frame.notes, *_estimates(rows)))

    def _look_at_resctrl(self, why: str) -> Frame:
        now = self._sweeper.sweep()
        before, self._before = self._before or now, now
        found = rates(before, now)
        return Frame(
            taken_at=now.wall,
            interval=now.monotonic - before.monotonic,
            source="resctrl",
            rows=tuple(
                _row_of_resctrl(vm, found[uuid], self._known.get(uuid), now.host) for uuid, vm in now.vms.items()
            ),
            cache_ways=now.host.ways,
            cache_bytes=now.host.cache_bytes,
            age=time.monotonic() - now.monotonic,
            notes=(_NO_AGENT + why, _no_events("only the agent knows the VMs' processes")),
        )


def _no_events(why: str) -> str:
    return f"No IPC and no LLC misses: {why}"


def _no_perf(told: contract.HardwareEvents) -> str:
    """Why perf counts no VM at all, where packages count cycles in its place; empty where it does count."""
    return next((vm["reason"] for vm in told["vms"].values() if vm["reason_code"] == "no-perf"), "")


def _remarks(told: contract.HardwareEvents) -> Iterator[str]:
    """What has to be known of the agent's counts."""
    age = told["age_seconds"]
    if age is not None and age > max(3 * told["interval"], _OLD_EVENTS):
        yield f"IPC and LLC misses are {age:.0f} s old"


def _estimates(rows: Iterable[Row]) -> Iterator[str]:
    """A sentence, where other programs had the processor's counters, too."""
    least = min((row.share for row in rows if row.share is not None), default=1.0)
    if least < NEARLY_ALL:
        had = f"one VM had them for {100 * least:.0f} % of the time"
        yield f"IPC and LLC misses are estimates: another program uses the processor's counters, too, and {had}"


def _with_agents_events(row: Row, told: contract.VmHardwareEvents | None) -> Row:
    if told is None or told["reason_code"]:
        word = told["reason_code"] if told is not None else "starting"
        nothing = Reading.none(_WHY_NOT.get(word, Missing.ERROR))
        return replace(row, ipc=nothing, misses=nothing)
    cycles, instructions, misses = (told["rates"].get(name) for name in ("cycles", "instructions", "cache_misses"))
    if cycles is None or instructions is None or misses is None:
        unknown = Reading.none(Missing.NO_PREVIOUS)
        return replace(row, ipc=unknown, misses=unknown)
    # A VM that executed nothing has no instructions per cycle.
    ipc = Reading(instructions / cycles) if cycles else Reading.none(Missing.UNAVAILABLE)
    return replace(row, ipc=ipc, misses=Reading(misses), share=told["share"])


def _with_events(row: Row, counts: Counts | None) -> Row:
    if counts is None or not counts.known:
        unknown = Reading.none(Missing.VANISHED if counts is None else Missing.NO_PREVIOUS)
        return replace(row, ipc=unknown, misses=unknown)
    # A VM that executed nothing has no instructions per cycle.
    ipc = Reading(counts.instructions / counts.cycles) if counts.cycles else Reading.none(Missing.UNAVAILABLE)
    return replace(row, ipc=ipc, misses=Reading(counts.misses / max(counts.seconds, 1e-6)), share=counts.share)


def _row(vm: contract.Vm, names: Mapping[str, str], telemetry: contract.Telemetry | None) -> Row:
    row = Row(
        uuid=vm["uuid"],
        name=names[vm["uuid"]],
        instance_name=vm["instance_name"],
        libvirt_name=vm["name"],
        flavor=vm["flavor"],
        state=vm["state"],
        reason=vm["reason"],
        policy=vm["policy"],
        ways=_counts(vm["masks"]),
        ways_requested=vm["ways_requested"],
        code_ways=_counts(vm.get("code_masks", {})),
        data_ways=_counts(vm.get("data_masks", {})),
        l2_ways=_counts(vm.get("l2_masks", {})),
        l2_ways_requested=vm.get("l2_ways_requested"),
        bandwidth=vm.get("bandwidth", {}),
        bandwidth_unit=vm.get("bandwidth_unit"),
        is_limited=vm.get("bandwidth_requested") is not None,
    )
    counters = telemetry and telemetry["vms"].get(vm["uuid"])
    if telemetry is None or counters is None:
        return row
    measured, speed, last = counters["missing"], counters["rates_missing"], counters.get("measured")
    return replace(
        row,
        allocated=counters["allocated_bytes"],
        fills=vm_view.fills(counters, telemetry["host"]),
        occupancy=_reading(counters["totals"].get("llc_occupancy"), measured.get("llc_occupancy")),
        total=_reading(counters["rates"].get("total"), speed.get("total")),
        local=_reading(counters["rates"].get("local"), speed.get("local")),
        remote=_reading(counters["rates"].get("remote"), speed.get("remote")),
        measured=last["rates"] if last is not None else {},
        measured_age=last["age_seconds"] if last is not None else None,
        watts=_package_rate(counters, _ENERGY),
        stalls=_share(_package_rate(counters, _STALLS), _package_rate(counters, _CYCLES)),
    )


def _counts(masks: Mapping[str, str]) -> dict[int, int]:
    return {int(cache): parse_mask(mask).bit_count() for cache, mask in masks.items()}


def _reading(value: float | None, reason: str | None) -> Reading:
    if value is not None:
        return Reading(value)
    known = reason in Missing._value2member_map_
    return Reading.none(Missing(reason) if reason is not None and known else Missing.ERROR)


def _package_rate(counters: contract.VmTelemetry, event: str) -> Reading:
    """How much an event of packages grew a second."""
    told = counters.get("package_rates", {})
    if event not in told:
        return _NOT_COUNTED
    value, reason = told[event], counters["missing"].get(event)
    return Reading.none(Missing.NO_PREVIOUS) if value is None and reason is None else _reading(value, reason)


def _share(part: Reading, whole: Reading) -> Reading:
    """The one of the other, or why it is not known."""
    if part.value is None or whole.value is None:
        return part if part.value is None else whole
    # A VM that executed nothing spent no cycle.
    return Reading(part.value / whole.value) if whole.value else Reading.none(Missing.UNAVAILABLE)


def _row_of_resctrl(vm: VmReading, found: Rates, known: Row | None, host: HostReading) -> Row:
    held = {cache: events["llc_occupancy"].value for cache, events in vm.caches.items() if "llc_occupancy" in events}
    return Row(
        uuid=vm.uuid,
        name=known.name if known else "",
        instance_name=known.instance_name if known else "",
        libvirt_name=known.libvirt_name if known else "",
        flavor=known.flavor if known else "",
        policy=vm.policy,
        ways=vm.ways,
        code_ways={cache: code for cache, (code, _) in vm.parts.items()},
        data_ways={cache: data for cache, (_, data) in vm.parts.items()},
        l2_ways=vm.l2_ways,
        bandwidth={str(cache): limit for cache, limit in vm.limits.items()},
        bandwidth_unit=host.bandwidth_unit,
        allocated=vm.allocated_bytes,
        fills=fullness.fills(held, vm.ways if vm.policy else {}, host.ways, host.cache_bytes),
        occupancy=vm.totals["llc_occupancy"],
        total=found.total,
        local=found.local,
        remote=found.remote,
        ipc=_NOT_COUNTED,
        misses=_NOT_COUNTED,
        watts=found.packages.get(_ENERGY, _NOT_COUNTED),
        stalls=_share(found.packages.get(_STALLS, _NOT_COUNTED), found.packages.get(_CYCLES, _NOT_COUNTED)),
    )
