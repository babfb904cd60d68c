# SPDX-License-Identifier: Apache-2.0
"""Who slows whom, as the API tells it: judged when anybody asks, by what the last sweeps found."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from vmqos import insight
from vmqos.agent.neighbour_events import NeighbourEvents
from vmqos.agent.sample.history import Past
from vmqos.agent.sample.recent import BANDWIDTH, RecentSamples, held_on
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import caches as both_levels
from vmqos.local_api import contract
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.telemetry.hardware_events import NAMES

LOG = logging.getLogger(__name__)

SHARE = 0.1
"""Judging takes no more than this share of one CPU, however often clients ask: 200 VMs of which half have just begun to
move much more take some seconds."""

CALM = 10
"""Samples before a step with which it can be judged, and some to spare."""

PATIENCE = 1.0
"""Seconds after which a client that waits for a judgement gets the last one."""


class Neighbours:
    """Answers the questions on neighbours; every method may be called from any thread.

    :param snapshot: what the last pass knew.
    :param recent: what is judged by.
    :param events: hears of each judgement.
    """

    def __init__(
        self, snapshot: Callable[[], Snapshot], recent: RecentSamples, events: NeighbourEvents | None = None
    ) -> None:
        self._snapshot = snapshot
        self._recent = recent
        self._events = events
        self._condition = threading.Condition()
        self._known: contract.Neighbours = _told(insight.Insight({}, []), None, recent.interval, 0, counted=False)
        self._is_judging = False
        self._due = -math.inf

    def samples(self, after: float = 0.0) -> contract.NeighbourSamples:
        """What is judged by.

        :param after: seconds since 1970: only newer samples.
        """
        past, caches = self._recent.since(math.nextafter(after, math.inf))
        host = host_of(self._snapshot())
        told = {
            "host": insight.plain_host(host),
            "samples": {
                uuid: [{"time": sample.time, **insight.plain_sample(sample)} for sample in of]
                for uuid, of in Samples(past, caches, host).items()
                if of
            },
        }
        return cast(contract.NeighbourSamples, told)

    def verdicts(self) -> contract.Neighbours:
        """Who slows whom, as it was last judged; it is judged anew if there are newer samples, and time for it."""
        with self._condition:
            if not self._is_judging and time.monotonic() >= self._due:
                self._is_judging = self._has_begun()
            self._condition.wait_for(lambda: not self._is_judging, PATIENCE)
            return self._known

    def _has_begun(self) -> bool:
        try:
            threading.Thread(target=self._judge, name="neighbours", daemon=True).start()
        except RuntimeError as error:
            LOG.warning("neighbours can't be judged now: %s", error)
            return False
        return True

    def _judge(self) -> None:
        began, found = time.monotonic(), None
        try:
            past, caches = self._recent.since(0.0)
            host = host_of(self._snapshot())
            history = Samples(past, caches, host)
            newest = past.times[-1] if past.times else None
            judged = insight.judge(host, history)
            found = _told(judged, newest, self._recent.interval, history.most, history.has_counts)
            if self._events is not None:
                judged_from = past.times[CALM] if len(past.times) > CALM else math.inf
                self._events.hear(judged.pairs, judged_from, history.has_counts)
        except Exception:
            # Whatever it is, nothing else of the agent depends on it.
            LOG.exception("neighbours can't be judged")
        with self._condition:
            self._known = found or self._known
            self._due = began + max(self._recent.interval, (time.monotonic() - began) / SHARE)
            self._is_judging = False
            self._condition.notify_all()


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
        vms[uuid] = insight.Vm(_flavor(record), {cache: mask for cache, mask in fills.items() if mask})
    return insight.Host(caches, {uuid: vm for uuid, vm in vms.items() if vm.masks})


class Samples(Mapping[str, list[insight.Sample]]):
    """What was read of the VMs that are known. The samples of one VM at a time are made, when they are asked for.

    All at once, those of 200 VMs take 20 MiB. Whoever judges asks once for those of each VM, for that takes long.

    :param caches: those that it was read of.
    :ivar most: how many a VM has at most, of those that were asked for.
    :ivar has_counts: whether hardware events were counted in any of these. That this process may count them does not
        say that there is anything to count.
    """

    def __init__(self, past: Past, caches: tuple[int, ...], host: insight.Host) -> None:
        self._past = past
        self._caches = caches
        self._vms = [uuid for uuid in host.vms if uuid in past.vms]
        self.most = 0
        self.has_counts = False

    def __getitem__(self, uuid: str) -> list[insight.Sample]:
        found = _series(self._past, uuid, self._caches)
        self.most = max(self.most, len(found))
        self.has_counts = self.has_counts or any(sample.counts is not None for sample in found)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._vms)

    def __len__(self) -> int:
        return len(self._vms)


def _series(past: Past, uuid: str, caches: tuple[int, ...]) -> list[insight.Sample]:
    series = past.vms[uuid]
    held = [(cache, series[held_on(cache)]) for cache in caches]
    bandwidth = series[BANDWIDTH]
    counted = [series[name] for name in NAMES if name in series]
    found = []
    for at, when in enumerate(past.times):
        occupancy = {cache: value for cache, values in held if (value := values[at]) is not None}
        counts = [value for values in counted if (value := values[at]) is not None]
        if occupancy or bandwidth[at] is not None or counts:
            whole = insight.Counts(*counts) if len(counts) == len(NAMES) else None
            found.append(insight.Sample(when, occupancy, bandwidth[at], whole))
    return found


def _told(
    found: insight.Insight, newest: float | None, interval: float, samples: int, counted: bool
) -> contract.Neighbours:
    told = {"time": newest, "interval": interval, "samples": samples, "counted": counted, **insight.plain(found)}
    return cast(contract.Neighbours, told)


def _fills(mask: CapacityBitmask | None, has_ways: bool) -> int:
    return (mask.bits if mask is not None else 0) if has_ways else 1


def _flavor(record: VmRecord) -> str:
    metadata = record.observed.vm.metadata
    return metadata.flavor if metadata else ""
