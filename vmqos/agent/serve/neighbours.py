# SPDX-License-Identifier: Apache-2.0
"""Who slows whom, as the API tells it: judged when anybody asks, by what the last sweeps found."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

from vmqos import insight
from vmqos.agent.remember.neighbour_events import NeighbourEvents
from vmqos.agent.sample.history import Columns
from vmqos.agent.sample.recent import BANDWIDTH, CPU_TIME, RecentSamples, held_on
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import caches as both_levels
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.hypervisor.model import Process
from vmqos.local_api import contract
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthUnit
from vmqos.telemetry.hardware_events import NAMES

LOG = logging.getLogger(__name__)

SHARE = 0.1
"""Judging takes no more than this share of one CPU, however often clients ask: 200 VMs of which half have just begun to
move much more take about a second."""

USUAL_SHARE = 0.001
"""Judging calm VMs takes no more than this share of one CPU, unless that put it off for longer than :data:`LATEST`. 200
of them take 15 to 40 ms, and a page and Prometheus ask ten times a minute. Few VMs are judged at each question."""

LATEST = 15.0
"""Seconds for which calm VMs are not judged anew, at most."""

CALM = 10
"""Samples before a step with which it can be judged, and some to spare."""

PATIENCE = 1.0
"""Seconds after which a client that waits for a judgement gets the last one."""

COURTESY = 1.0
"""Seconds that one judgement waits, all in all, for what is more urgent."""


class Neighbours:
    """Answers the questions on neighbours; every method may be called from any thread.

    :param snapshot: what the last pass knew.
    :param recent: what is judged by.
    :param events: hears of each judgement.
    :param interval: seconds between two judgements that the agent asks for itself, which are never put off for calm
        VMs; 0 without such.
    :param give_way: waits while something more urgent is to be done, and no longer than it is told to.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        recent: RecentSamples,
        events: NeighbourEvents | None = None,
        interval: float = 0.0,
        give_way: Callable[[float], None] = lambda longest: None,
    ) -> None:
        self._snapshot = snapshot
        self._recent = recent
        self._events = events
        self._give_way = give_way
        self._latest = min(LATEST, 0.8 * interval) if interval else LATEST
        self._condition = threading.Condition()
        self._known: contract.Neighbours = _told(insight.Insight({}, []), None, recent.interval, 0)
        self._runs: Mapping[str, Process] = {}
        """The processes of the VMs that were last judged, by UUID."""
        self._is_judging = False
        self._due = -math.inf
        self._known_host: tuple[tuple[object, ...], insight.Host] | None = None

    def samples(self, after: float = 0.0) -> contract.NeighbourSamples:
        """What is judged by.

        :param after: seconds since 1970: only newer samples.
        """
        read, caches = self._recent.columns(math.nextafter(after, math.inf))
        host = self._host(self._snapshot())
        told = {
            "host": insight.plain_host(host),
            "samples": {
                uuid: [{"time": sample.time, **insight.plain_sample(sample)} for sample in of]
                for uuid, of in samples_of(read, caches, host)
            },
        }
        return cast(contract.NeighbourSamples, told)

    def verdicts(self) -> contract.Neighbours:
        """Who slows whom, as it was last judged; it is judged anew if there are newer samples, and time for it.

        Of a VM that has ended or was started again since, nothing is told until it is.
        """
        with self._condition:
            if not self._is_judging and time.monotonic() >= self._due:
                self._is_judging = self._has_begun()
            self._condition.wait_for(lambda: not self._is_judging, PATIENCE)
            known, runs = self._known, self._runs
        now = processes_of(self._snapshot())
        if not (ended := {uuid for uuid, process in runs.items() if now.get(uuid) != process}):
            return known
        return {
            **known,
            "vms": [vm for vm in known["vms"] if vm["uuid"] not in ended],
            "pairs": [pair for pair in known["pairs"] if ended.isdisjoint((pair["culprit"], pair["victim"]))],
        }

    def _host(self, snapshot: Snapshot) -> insight.Host:
        """The host; mostly nothing has changed of it since the last time.

        While resctrl can't be read it is as it was before: without masks, all VMs would seem to fill all ways.
        """
        basis = snapshot.resctrl, snapshot.topology, snapshot.vms
        known = self._known_host
        if known is not None and known[0][0] is not None and snapshot.resctrl is None:
            return known[1]
        if known is None or any(before is not now for before, now in zip(known[0], basis, strict=True)):
            known = self._known_host = basis, host_of(snapshot)
        return known[1]

    def _has_begun(self) -> bool:
        try:
            threading.Thread(target=self._judge, name="neighbours", daemon=True).start()
        except RuntimeError as error:
            LOG.warning("neighbours can't be judged now: %s", error)
            return False
        return True

    def _judge(self) -> None:
        began, found = time.monotonic(), None

        def give_way() -> None:
            self._give_way(began + COURTESY - time.monotonic())

        try:
            give_way()
            snapshot = self._snapshot()
            read, caches = self._recent.columns()
            host = self._host(snapshot)
            series = series_of(read, caches, host)
            judged = insight.judge_series(host, read.times, series, give_way)
            newest, most = read.times[-1] if read.times else None, _most_samples(read, series)
            # That this process may count them does not say that there is anything to count.
            counted, traffic = (_is_any_known(read, series, name) for name in (NAMES[0], BANDWIDTH))
            found = _told(judged, newest, self._recent.interval, most, counted=counted, traffic_counted=traffic)
            if self._events is not None:
                self._events.hear(judged.pairs, read.times[CALM:], counted)
        except Exception:
            # Whatever it is, nothing else of the agent depends on it.
            LOG.exception("neighbours can't be judged")
        with self._condition:
            if found is not None:
                self._known, self._runs = found, processes_of(snapshot)
            took = time.monotonic() - began
            self._due = began + max(self._recent.interval, min(took / USUAL_SHARE, self._latest), took / SHARE)
            self._is_judging = False
            self._condition.notify_all()


def processes_of(snapshot: Snapshot) -> dict[str, Process]:
    """The VMs' QEMU processes, by UUID: another one is another run."""
    return {uuid: record.observed.vm.process for uuid, record in snapshot.vms.items()}


def host_of(snapshot: Snapshot) -> insight.Host:
    """The L3s whose size is known, and the VMs that may fill them.

    What memory can give is nowhere to be read.
    """
    l3 = snapshot.resctrl.capabilities.l3 if snapshot.resctrl else None
    # Where the cache can't be partitioned, all of it is one way.
    ways = l3.way_count if l3 else 1
    caches = {cache: insight.Cache(size, ways) for cache, size in snapshot.topology.sizes.items()}
    groups = {group.name: group.masks for group in snapshot.resctrl.layout.groups} if snapshot.resctrl else {}
    vms = {}
    for uuid, record in snapshot.vms.items():
        masks = both_levels.of_level(3, groups.get(record.allocation.group, {})) if l3 else {}
        runs_on = snapshot.topology.caches_of(record.cpus) or caches.keys()
        fills = {cache: _fills(masks.get(cache), l3 is not None) for cache in runs_on if cache in caches}
        may_fill = {cache: mask for cache, mask in fills.items() if mask}
        vms[uuid] = insight.Vm(
            _flavor(record),
            may_fill,
            _promise(record.request.asked or CacheRequest()),
            record.observed.vm.vcpus,
        )
    return insight.Host(
        caches,
        {uuid: vm for uuid, vm in vms.items() if vm.masks},
        limited_in=_limited_in(snapshot),
        percent_steps=_percent_steps(snapshot),
    )


def series_of(read: Columns, caches: tuple[int, ...], host: insight.Host) -> dict[str, insight.Series]:
    """The columns of the VMs that are known. Samples are not made of them: those of 200 VMs take 20 MiB.

    :param caches: those that it was read of.
    """
    found = {}
    for uuid in host.vms:
        if (columns := read.vms.get(uuid)) is not None:
            held = {cache: columns[held_on(cache)] for cache in caches}
            counts = [columns[name] for name in NAMES if name in columns]
            if (series := insight.of_columns(held, columns[BANDWIDTH], counts, columns[CPU_TIME])) is not None:
                found[uuid] = series
    return found


def _is_any_known(read: Columns, uuids: Iterable[str], name: str) -> bool:
    """Whether there is any value of a series."""
    return any(value == value for uuid in uuids for value in read.vms[uuid].get(name, ()))


def _most_samples(read: Columns, uuids: Iterable[str]) -> int:
    """How many samples there are of the VM that has most."""
    most = 0
    for uuid in uuids:
        # The CPU time alone says nothing of neighbours.
        rows = zip(*(column for name, column in read.vms[uuid].items() if name != CPU_TIME), strict=True)
        most = max(most, sum(any(value == value for value in row) for row in rows))
        if most == len(read.times):
            break
    return most


def samples_of(
    read: Columns, caches: tuple[int, ...], host: insight.Host
) -> Iterator[tuple[str, list[insight.Sample]]]:
    """The samples of one VM after the other: of those that are known, and of which anything was read.

    :param caches: those that it was read of.
    """
    for uuid in host.vms:
        if (columns := read.vms.get(uuid)) is not None and (found := _samples(read.times, columns, caches)):
            yield uuid, found


def _samples(
    times: Sequence[float], columns: Mapping[str, Sequence[float]], caches: tuple[int, ...]
) -> list[insight.Sample]:
    """Numbers but for CPU time are whole, which is shorter in JSON: a fraction of a byte means nothing."""
    held = {cache: held_on(cache) for cache in caches}
    counted = {name: column for name, column in columns.items() if name != CPU_TIME}
    found = []
    for at, when in enumerate(times):
        now = {name: round(value) for name, column in counted.items() if (value := column[at]) == value}
        if now:
            ran = columns[CPU_TIME][at]
            occupancy = {cache: now[name] for cache, name in held.items() if name in now}
            counts = insight.Counts(*(now[name] for name in NAMES)) if now.keys() >= set(NAMES) else None
            cpu_time = round(ran, 3) if ran == ran else None
            found.append(insight.Sample(when, occupancy, now.get(BANDWIDTH), counts, cpu_time))
    return found


def _told(
    found: insight.Insight,
    newest: float | None,
    interval: float,
    samples: int,
    *,
    counted: bool = False,
    traffic_counted: bool = False,
) -> contract.Neighbours:
    basis = {"counted": counted, "traffic_counted": traffic_counted}
    told = {"time": newest, "interval": interval, "samples": samples, **basis, **insight.plain(found)}
    return cast(contract.Neighbours, told)


def _fills(mask: CapacityBitmask | None, has_ways: bool) -> int:
    return (mask.bits if mask is not None else 0) if has_ways else 1


def _flavor(record: VmRecord) -> str:
    metadata = record.observed.vm.metadata
    return metadata.flavor if metadata else ""


def _limited_in(snapshot: Snapshot) -> insight.LimitedIn:
    if snapshot.resctrl is None:
        return insight.LimitedIn.UNKNOWN
    throttle = snapshot.resctrl.capabilities.memory_bandwidth
    return insight.LimitedIn(throttle.unit.told_in if throttle is not None else None)


def _percent_steps(snapshot: Snapshot) -> insight.PercentSteps | None:
    throttle = snapshot.resctrl.capabilities.memory_bandwidth if snapshot.resctrl is not None else None
    if throttle is None or throttle.unit is not BandwidthUnit.PERCENT:
        return None
    gran = max(1, throttle.bandwidth_gran)
    return insight.PercentSteps(gran, max(gran, -(-throttle.min_bandwidth // gran) * gran))


def _promise(asked: CacheRequest) -> insight.Promise:
    return insight.Promise(
        asked.ways or 0,
        asked.code_ways or 0,
        asked.data_ways or 0,
        asked.policy is CachePolicy.SHARED,
        asked.bandwidth_percent or 0,
        asked.bandwidth_mbps or 0,
    )
