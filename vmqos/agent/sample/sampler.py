# SPDX-License-Identifier: Apache-2.0
"""Reading counters beside the loop: at an interval of its own, and when a client asks for newer ones.

One thread alone reads resctrl. A caller gets what this thread read last, and waits for it a bounded time: a resctrl
that hangs blocks that thread and no other one.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from oslo_config import cfg

from vmqos.agent.sample.hardware_counts import HardwareCounts, VmCounts
from vmqos.agent.sample.history import EXECUTED, PACKAGES, SERIES, Columns, History, Sample, executed_of
from vmqos.agent.sample.minutes import MinuteHistory
from vmqos.agent.sample.recent import RecentSamples
from vmqos.agent.sample.swept import swept
from vmqos.agent.vm_record import VmRecord
from vmqos.daemon.worker import Worker
from vmqos.resctrl.exceptions import ResctrlError
from vmqos.resctrl.monitoring import CORE_ENERGY, CYCLES, STALLS_LLC_HIT, STALLS_LLC_MISS, UOPS_RETIRED
from vmqos.telemetry import (
    Missing,
    Rates,
    Snapshot,
    Sweeper,
    descriptors,
    hardware_events,
    rate_columns,
    rates,
)
from vmqos.telemetry.exceptions import SweepFailed, SweepTakesLong

LOG = logging.getLogger(__name__)

LET_GO_INTERVAL = 5.0
"""Seconds between two checks that resctrl is still mounted, where counters are read less often."""

PATIENCE = 1.0
"""Seconds after which a caller that waits for a sweep gets the last one instead. Most sweeps take milliseconds."""

COURTESY = 0.5
"""Seconds that one sweep waits, all in all, for what is more urgent."""

OLD_AFTER = 5.0
"""Seconds up to which a sweep is never called old."""

_OF_CYCLES = (UOPS_RETIRED, STALLS_LLC_HIT, STALLS_LLC_MISS)
"""The events of packages that are remembered for each cycle."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Measured:
    """The last bandwidth of a VM that has none now, because other VMs have the hardware counters, or had them just now.

    :ivar at: when it was measured, by the monotonic clock.
    :ivar generation: of the counters.
    """

    at: float
    generation: str
    rates: Rates


class Telemetry:
    """The host's counters; every method may be called from any thread.

    :param root: the root of resctrl.
    :param interval: seconds between two regular sweeps; 0: only when a client asks.
    :param history: how many seconds of regular sweeps are remembered.
    :param keep_open: see :class:`vmqos.telemetry.Sweeper`; without regular sweeps, no file is kept open.
    :param give_way: waits while something more urgent is to be done on resctrl, and no longer than it is told to.
    :param minutes: how many minutes of regular sweeps are remembered.
    :param most_open: how many files may be kept open; ``None``: as many as this process may have.
    :param executed: what the VMs' tasks execute now, by UUID, which is remembered, too. ``None`` where it is not
        counted: then it takes no memory.
    :param of_the_l3: whether references and misses among these are the L3's: by others neighbours can't be judged.
    :param take_turns: called between two sweeps, after a regular one, with whether a VM had no hardware counter.
    :param vms: the VMs by UUID, as the last pass left them.
    :ivar minutes: what is remembered of them.
    :ivar recent: what neighbours are judged by.
    :ivar fresh_for: seconds after which :meth:`newest` asks for a new sweep. Where regular sweeps are frequent, it
        never needs to.
    """

    def __init__(
        self,
        root: str,
        interval: float,
        history: float,
        keep_open: bool = True,
        give_way: Callable[[float], None] = lambda longest: None,
        minutes: int = 0,
        most_open: int | None = None,
        executed: Callable[[], Mapping[str, VmCounts]] | None = None,
        of_the_l3: bool = True,
        take_turns: Callable[[bool], None] = lambda is_waiting: None,
        vms: Callable[[], Mapping[str, VmRecord]] = lambda: {},
    ) -> None:
        self.interval = interval
        self.fresh_for = min(max(1.0, 1.5 * interval), OLD_AFTER)
        self._patience_ends = 0.0
        self._sweeper = Sweeper(
            root,
            keep_open and interval > 0,
            nodes=True,
            control_groups=True,
            give_way=lambda: give_way(self._patience_ends - time.monotonic()),
            most_open=most_open,
        )
        series = SERIES if executed is None else SERIES + EXECUTED
        self._executed = executed
        self._has_packages = False
        self._history = History(int(history / interval) + 1 if interval > 0 and history > 0 else 0, series)
        self.minutes = MinuteHistory(minutes if interval > 0 else 0, series)
        self.recent = RecentSamples(interval, counted=executed is not None and of_the_l3, vms=vms)
        self._worker = Worker("telemetry")
        self._wanted = False
        self._began: float | None = None
        self._ended = 0
        self._swept_at: float | None = None
        self._newest: Snapshot | None = None
        self._sampled: tuple[Snapshot, Mapping[str, Rates]] | None = None
        self._measured: Mapping[str, Measured] = {}
        self._take_turns = take_turns
        self._is_waiting = False
        self._error: ResctrlError | None = None

    @classmethod
    def of(
        cls,
        conf: cfg.ConfigOpts,
        give_way: Callable[[float], None] = lambda longest: None,
        hardware: HardwareCounts | None = None,
        take_turns: Callable[[bool], None] = lambda is_waiting: None,
        vms: Callable[[], Mapping[str, VmRecord]] = lambda: {},
    ) -> Telemetry:
        """As the configuration says; half of the files that may be open are left to the hardware events.

        :param hardware: what the VMs' tasks execute; remembered unless this process lacks the right to count it.
        :param take_turns: called between two sweeps, after a regular one, with whether a VM had no hardware counter.
        :param vms: the VMs by UUID, as the last pass left them.
        """
        section = conf.telemetry
        is_counted = section.hardware_events and hardware_events.may_count()
        return cls(
            conf.resctrl.path,
            section.interval,
            section.history,
            section.keep_open,
            give_way,
            minutes=section.minutes,
            most_open=descriptors.raise_limit() // 2 if section.hardware_events else None,
            executed=hardware.executing if hardware is not None and is_counted else None,
            of_the_l3=hardware_events.are_of_the_l3(),
            take_turns=take_turns,
            vms=vms,
        )

    @property
    def swept_at(self) -> float | None:
        """When the last sweep began that read the counters, by the monotonic clock; ``None`` before the first."""
        return self._swept_at

    @property
    def is_old(self) -> bool:
        """Whether the last sweep is older than three intervals, and than :data:`OLD_AFTER`.

        Without an interval nothing is due, and only a sweep that was asked for can be late.
        """
        began = self._began
        if self.interval > 0:
            return self._swept_at is not None and time.monotonic() - self._swept_at > max(3 * self.interval, OLD_AFTER)
        return began is not None and time.monotonic() - began > OLD_AFTER

    def start(self) -> None:
        """Sweep from now on, at every interval and when asked."""
        self._worker.start(self._run)

    def stop(self) -> None:
        """Stop sweeping, and close every file."""
        self._worker.stop()

    def newest(self) -> Snapshot:
        """The last sweep; if it is older than :attr:`fresh_for`, a new sweep is made first.

        Callers at the same time share a new sweep. If it takes longer than :data:`PATIENCE`, they get the last one,
        even if that is old.

        :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read, or no sweep has ended yet.
        """
        with self._worker.condition:
            found = self._newest
            if found is None or time.monotonic() - found.monotonic > self.fresh_for:
                self._wait_for_a_sweep(wanted=True)
            return self._told(self._newest)

    def sampled(self) -> tuple[Snapshot, Mapping[str, Rates]]:
        """The last regular sweep, with the bandwidths since the regular sweep before it.

        Without regular sweeps it is what :meth:`newest` returns, with the bandwidths since the sweep before that.

        :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read, or no sweep has ended yet.
        """
        with self._worker.condition:
            if self.interval == 0:
                self.newest()
            elif self._sampled is None and self._error is None:
                self._wait_for_a_sweep(wanted=False)
            return self._told(self._sampled)

    def measured(self) -> Mapping[str, Measured]:
        """The last bandwidths of the VMs that wait for their turn to have hardware counters, by UUID."""
        return self._measured

    def past(self, seconds: float, uuids: frozenset[str] | None = None, names: frozenset[str] | None = None) -> Columns:
        """What the regular sweeps of the last ``seconds`` found, of all VMs or these, in all series or these."""
        return self._history.columns(time.time() - seconds, uuids, names)

    def _wait_for_a_sweep(self, wanted: bool) -> None:
        """Wait for the end of the sweep under way or, where there is none, of the next one; the caller has the lock.

        A caller that comes while a sweep hangs waits only until that sweep has taken :data:`PATIENCE`, not longer.

        :param wanted: whether the next one is to begin now.
        """
        asked, ended = time.monotonic(), self._ended
        if wanted and self._began is None:
            self._wanted = True
            self._worker.condition.notify_all()
        while self._ended == ended and not self._worker.ends:
            left = min(asked, self._began or asked) + PATIENCE - time.monotonic()
            if left <= 0:
                return
            self._worker.condition.wait(left)

    def _told(self, found: T | None) -> T:
        if self._error is not None:
            raise self._error
        if found is None:
            now = time.monotonic()
            raise SweepTakesLong(seconds=round(now - (self._began or now)))
        return found

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while self._wait_until(due):
                regular = self.interval > 0 and time.monotonic() >= due
                self._sweep(regular or self.interval == 0)
                if regular:
                    self._end_turn()
                    due = max(due + self.interval, time.monotonic())
        finally:
            self._sweeper.close()

    def _wait_until(self, due: float) -> bool:
        """Wait until a sweep is due or wanted; whether one is, or else the end has come."""
        while True:
            with self._worker.condition:
                if self._worker.ends or self._wanted:
                    return not self._worker.ends
                if self.interval == 0:
                    self._worker.condition.wait()
                    continue
                left = due - time.monotonic()
                if left <= 0:
                    return True
                self._worker.condition.wait(min(left, LET_GO_INTERVAL))
            if left > LET_GO_INTERVAL:
                self._sweeper.let_go_if_unmounted()

    def _sweep(self, sample: bool) -> None:
        """Sweep once, and tell those who wait for it.

        :param sample: whether bandwidths are told of it, and it is remembered.
        """
        with self._worker.condition:
            self._wanted, self._began = False, time.monotonic()
            self._patience_ends = self._began + COURTESY
        found, sampled, failure = None, self._sampled, None
        try:
            found = self._sweeper.sweep()
            if sample:
                sampled = found, self._remember(found)
        except ResctrlError as error:
            failure = error
        except Exception as error:
            # Whatever it is, the next sweep may be better, and no other thread sweeps.
            LOG.exception("a look at the counters failed")
            failure = SweepFailed(cause=error)
        if failure is not None and str(failure) != str(self._error):
            LOG.warning("counters can't be read: %s", failure)
        elif failure is None and self._error is not None:
            LOG.info("counters can be read again")
        with self._worker.condition:
            self._error, self._newest = failure, found if failure is None else None
            self._sampled = sampled if failure is None else None
            if failure is None and found is not None:
                self._swept_at = found.monotonic
            self._began = None
            self._ended += 1
            self._worker.condition.notify_all()

    def _end_turn(self) -> None:
        """Have other VMs be counted if a turn is over: here, so that no sweep sees the half of it."""
        sampled = self._sampled
        if sampled is None:
            return
        try:
            self._take_turns(self._is_waiting)
        except Exception:
            # Whichever VMs have the counters, they are read on.
            LOG.exception("VMs could not take turns to have hardware counters")

    def _still_measured(self, now: Snapshot, found: Mapping[str, Rates]) -> Mapping[str, Measured]:
        """The last bandwidths of the VMs that lost their hardware counters, and have no newer one yet."""
        if self._sampled is None:
            return {}
        before, rates_before = self._sampled
        kept = {}
        for uuid, of_vm in found.items():
            if of_vm.total.value is not None:
                continue
            last = self._measured.get(uuid)
            if last is None and of_vm.total.missing is Missing.UNASSIGNED and uuid in rates_before:
                last = Measured(before.monotonic, before.vms[uuid].generation, rates_before[uuid])
            if last is not None and last.rates.total.value is not None and last.generation == now.vms[uuid].generation:
                kept[uuid] = last
        return kept

    def _remember(self, now: Snapshot) -> Mapping[str, Rates]:
        before = now if self._sampled is None else self._sampled[0]
        found: Mapping[str, Rates] | None = rate_columns(before.columns, now.columns)
        if found is not None:
            # Each VM has numbers.
            self._measured, self._is_waiting = {}, False
        else:
            # VMs take turns between two sweeps, so that none passes unseen.
            found = rates(before, now, math.inf)
            self._measured = self._still_measured(now, found)
            self._is_waiting = any(one.total.missing is Missing.UNASSIGNED for one in found.values())
        sweep = swept(now, found)
        columns = zip(sweep.occupancy, sweep.total, sweep.local, sweep.remote, strict=True)
        samples: dict[str, Sample] = dict(zip(sweep.uuids, columns, strict=True))
        counts: Mapping[str, Sequence[float]] = {}
        if self._executed is not None:
            executing = self._executed()
            counts = {uuid: of_vm.rates for uuid, of_vm in executing.items() if of_vm.rates is not None}
            executed = {uuid: executed_of(rates, executing[uuid].share) for uuid, rates in counts.items()}
            uncounted = (None,) * len(EXECUTED)
            samples = {uuid: sample + executed.get(uuid, uncounted) for uuid, sample in samples.items()}
            if not executed.keys() <= samples.keys():
                # A VM may be in no group that is monitored, and yet be counted.
                unread = (None,) * len(SERIES)
                samples |= {uuid: unread + of_vm for uuid, of_vm in executed.items() if uuid not in samples}
        self.recent.add(sweep, counts)
        if not self._has_packages and not {CORE_ENERGY, CYCLES}.isdisjoint(now.host.events):
            # Whether they count is known only once resctrl was read, and no memory is taken where they do not.
            self._has_packages = True
            self._history.widen(PACKAGES)
            self.minutes.widen(PACKAGES)
        if self._has_packages:
            samples |= {uuid: samples[uuid] + of_packages(found[uuid]) for uuid in now.vms}
        self._history.add(now.wall, samples)
        self.minutes.add(now.wall, samples)
        return found


def of_packages(found: Rates) -> Sample:
    """What packages counted of a VM: a value for each of :data:`vmqos.agent.sample.history.PACKAGES`."""
    values = {event: reading.value for event, reading in found.packages.items()}
    cycles = values.get(CYCLES)
    counts = (values.get(event) for event in _OF_CYCLES)
    return values.get(CORE_ENERGY), *(count / cycles if count is not None and cycles else None for count in counts)
