# SPDX-License-Identifier: Apache-2.0
"""Events of VMs that slow each other: one when that begins, and one when it is over or can't be told any more."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from vmqos.agent.remember.changes import LONGEST_TEXT, Change
from vmqos.agent.remember.event_log import EventLog
from vmqos.agent.vm_record import VmRecord
from vmqos.daemon import journal
from vmqos.daemon.worker import Worker
from vmqos.hypervisor.model import Process
from vmqos.insight import Cause, PairVerdict

LOG = logging.getLogger(__name__)

SURE = 0.7
"""The confidence from which on a pair is told. One that was told may become less sure."""

GONE_FOR = 60.0
"""Seconds for which a pair has to be gone until it is over: one that comes and goes is told once a minute at most."""

MOST = 30
"""Pairs that are told of at a time, the surest ones: a VM that slows all others must leave room for other events."""

SLOWED, UNDISTURBED, UNKNOWN = "slowed", "undisturbed", "unknown"

_TAKES = {
    Cause.CACHE: "takes cache from it",
    Cause.BANDWIDTH: "takes memory bandwidth from it",
    Cause.NEITHER: "slows it",
}


@dataclass(slots=True)
class _Told:
    """A pair that was told.

    :ivar culprit: what the culprit is called.
    :ivar runs: the processes of the culprit and of the victim.
    :ivar gone_at: when it was first missed (monotonic); ``None`` while it is there.
    :ivar is_over: whether it was known then that it is over.
    """

    since: float
    culprit: str
    runs: tuple[Process, Process]
    gone_at: float | None = None
    is_over: bool = False


class NeighbourEvents:
    """Makes events of judgements; one thread calls :meth:`hear`.

    :param log: gets the events.
    :param vms: the VMs that run, by UUID.
    """

    def __init__(self, log: EventLog, vms: Callable[[], Mapping[str, VmRecord]]) -> None:
        self._log = log
        self._vms = vms
        self._told: dict[tuple[str, str, Cause], _Told] = {}

    def hear(self, pairs: Iterable[PairVerdict], judged: Collection[float], counted: bool) -> None:
        """Tell what is new.

        :param pairs: by descending confidence.
        :param judged: the moments of the samples (seconds since 1970) at which a step up can be judged. They need not
            ascend: the clock may have been set back.
        :param counted: whether hardware events are; else a factor is an estimate.
        """
        now, vms = time.monotonic(), self._vms()
        found = {(pair.culprit, pair.victim, pair.cause): pair for pair in pairs}
        for key, told in list(self._told.items()):
            self._look(key, told, found.get(key), now, judged, vms)
        for (culprit, victim, cause), pair in found.items():
            is_told = (culprit, victim, cause) in self._told
            if is_told or pair.until is not None or pair.confidence < SURE or len(self._told) >= MOST:
                continue
            if culprit in vms and victim in vms:
                who = f"{_name(vms[culprit])} ({culprit})"
                self._told[culprit, victim, cause] = _Told(pair.since, who, _runs(vms, culprit, victim))
                times = f"{pair.slower:.1f} times as long" + ("" if counted else ", by estimate")
                self._tell(vms[victim], culprit, cause, SLOWED, f"{who} {_TAKES[cause]}: its work takes {times}")

    def _look(
        self,
        key: tuple[str, str, Cause],
        told: _Told,
        pair: PairVerdict | None,
        now: float,
        judged: Collection[float],
        vms: Mapping[str, VmRecord],
    ) -> None:
        culprit, victim, cause = key
        if victim not in vms:
            # Its own end is an event already.
            del self._told[key]
        elif culprit not in vms:
            del self._told[key]
            self._tell(vms[victim], culprit, cause, UNDISTURBED, f"{told.culprit} has ended")
        elif (runs := _runs(vms, culprit, victim)) != told.runs:
            del self._told[key]
            if runs[1] != told.runs[1]:
                text = f"it was started again, and whether {told.culprit} slows it now is not known yet"
                self._tell(vms[victim], culprit, cause, UNKNOWN, text)
            else:
                self._tell(vms[victim], culprit, cause, UNDISTURBED, f"{told.culprit} was started again")
        elif pair is not None and pair.until is None:
            told.since, told.gone_at = pair.since, None
        elif told.gone_at is None:
            # What could still be judged and is not found any more is over. What began too long ago may go on.
            told.gone_at, told.is_over = now, pair is not None or told.since in judged
        elif now - told.gone_at >= GONE_FOR:
            del self._told[key]
            if told.is_over:
                self._tell(vms[victim], culprit, cause, UNDISTURBED, f"{told.culprit} is not found to slow it any more")
            else:
                text = f"it began too long ago to tell whether {told.culprit} still slows it"
                self._tell(vms[victim], culprit, cause, UNKNOWN, text)

    def _tell(self, victim: VmRecord, culprit: str, cause: Cause, state: str, text: str) -> None:
        metadata = victim.observed.vm.metadata
        change: Change = {
            "kind": "neighbour",
            "uuid": victim.uuid,
            "name": _name(victim),
            "project": metadata.project if metadata else "",
            "flavor": metadata.flavor if metadata else "",
            "state": state,
            "before": UNDISTURBED if state == SLOWED else SLOWED,
            "reason": text[:LONGEST_TEXT],
            "reason_code": cause.value,
            "culprit": culprit,
        }
        (event,) = self._log.add([change])
        extra = journal.fields(
            VMQOS_VM=victim.uuid,
            VMQOS_STATE=state,
            VMQOS_REASON_CODE=cause.value,
            VMQOS_NEIGHBOUR=culprit,
            VMQOS_EVENT=str(event["number"]),
        )
        LOG.info("VM %s (%s): %s: %s", victim.uuid, victim.observed.vm.name, state, change["reason"], extra=extra)


class NeighbourWatch:
    """Has neighbours judged though no client asks, so that there are events, between :meth:`start` and :meth:`stop`.

    :param judge: judges, or has it done.
    :param interval: seconds between two judgements; 0: there are none.
    """

    def __init__(self, judge: Callable[[], object], interval: float) -> None:
        self._judge = judge
        self._interval = interval
        self._worker = Worker("neighbour-watch")

    def start(self) -> None:
        """Judge from now on, the first time after an interval."""
        if self._interval:
            self._worker.start(self._run)

    def stop(self) -> None:
        """End."""
        self._worker.stop()

    def _run(self) -> None:
        while True:
            with self._worker.condition:
                if self._worker.condition.wait_for(lambda: self._worker.ends, self._interval):
                    return
            self._judge()


def _runs(vms: Mapping[str, VmRecord], culprit: str, victim: str) -> tuple[Process, Process]:
    return vms[culprit].observed.vm.process, vms[victim].observed.vm.process


def _name(record: VmRecord) -> str:
    metadata = record.observed.vm.metadata
    return (metadata.instance_name if metadata else "") or record.observed.vm.name
