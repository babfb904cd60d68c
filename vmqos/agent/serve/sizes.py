# SPDX-License-Identifier: Apache-2.0
"""The last curve of misses by ways of each VM, as ``vmqos size`` told it: it is there to be looked at.

No pass reads it, and no decision depends on it. A VM has one at most, which is forgotten with that run of the VM.
Nothing is written down: an agent that is started anew knows of none.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vmqos.agent.snapshot import Snapshot
from vmqos.hypervisor.model import Process
from vmqos.local_api import contract

MOST_WAYS = 64
"""Ways of a curve at most, and so points of it: resctrl's masks have 32 bits."""

MOST = 1000.0
"""The largest number that a point has: a VM may miss more with more ways, and then moves more than with the fewest."""

_NUMBER = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,9})?")
_WHOLE = re.compile(r"[1-9][0-9]{0,9}")
_TRUTHS = {"true": True, "false": False}

Query = Mapping[str, Sequence[str]]


class BadSize(Exception):
    """A value is none that a curve can have; the text says which one, and what is allowed."""


class OtherRun(Exception):
    """The VM was started again since it was sized."""


@dataclass(frozen=True, slots=True)
class _Known:
    process: Process
    found_at: float
    size: contract.FoundSize


class Sizes:
    """What is remembered; every method may be called from any thread.

    :param snapshot: what the last pass knew.
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def take(self, uuid: str, query: Query) -> None:
        """Remember the curve of a VM, in the place of the one before.

        :raises KeyError: if no VM of that UUID is known.
        :raises OtherRun: if it does not run as the process in which it was sized.
        :raises BadSize: if a value can't be.
        """
        pid, size = _whole("pid", query), parsed(query)
        process = self._snapshot().vms[uuid].observed.vm.process
        if process.pid != pid:
            raise OtherRun(f"VM {uuid} runs as process {process.pid}, and not as {pid}: it was started again")
        with self._lock:
            self._forget_those_that_ended()
            self._known[uuid] = _Known(process, time.time(), size)

    def told(self) -> contract.Sizes:
        """All that is remembered of the VMs that run."""
        with self._lock:
            self._forget_those_that_ended()
            known = list(self._known.items())
        return {"sizes": [{"uuid": uuid, "found_at": one.found_at, **one.size} for uuid, one in known]}

    def _forget_those_that_ended(self) -> None:
        running = {uuid: record.observed.vm.process for uuid, record in self._snapshot().vms.items()}
        self._known = {uuid: one for uuid, one in self._known.items() if running.get(uuid) == one.process}


def parsed(query: Query) -> contract.FoundSize:
    """What a client tells of a VM; pure.

    :raises BadSize: if a value is missing or can't be.
    """
    counted, ways = _truth("counted", query), _whole("ways", query)
    curve = _curve(_one("curve", query), counted=counted)
    if ways not in [point["ways"] for point in curve]:
        raise _bad("ways", str(ways), "one of those in curve")
    return {
        "ways": ways,
        "at_least": _truth("at_least", query),
        "counted": counted,
        "steady": _truth("steady", query),
        "part": _part(query),
        "curve": curve,
    }


def _curve(text: str, *, counted: bool) -> list[contract.SizePoint]:
    points = list[contract.SizePoint]()
    for part in text.split(","):
        if len(points) == MOST_WAYS:
            raise _bad("curve", text, f"{MOST_WAYS} points at most")
        ways, *numbers = part.split(":")
        if not _WHOLE.fullmatch(ways) or int(ways) > MOST_WAYS or len(numbers) not in (1, 2):
            raise _bad("curve", part, f"WAYS:PART or WAYS:PART:SLOWER, with 1 to {MOST_WAYS} ways")
        if points and int(ways) <= points[-1]["ways"]:
            raise _bad("curve", part, "more ways than in the point before")
        value, slower = _number(numbers[0]), _number(numbers[1]) if len(numbers) > 1 else None
        missed, moved = (value, None) if counted else (None, value)
        points.append({"ways": int(ways), "missed": missed, "traffic_part": moved, "slower": slower})
    return points


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text) or float(text) > MOST:
        raise _bad("curve", text, f"decimal numbers from 0 to {MOST:g}, with 9 digits behind the point at most")
    return float(text)


def _whole(name: str, query: Query) -> int:
    text = _one(name, query)
    if not _WHOLE.fullmatch(text):
        raise _bad(name, text, "an integer from 1 up, of 10 digits at most")
    return int(text)


def _part(query: Query) -> contract.WaysFor:
    match query.get("part", [""])[-1]:
        case "" | "code" | "data" as part:
            return part
        case other:
            raise _bad("part", other, "code or data")


def _truth(name: str, query: Query) -> bool:
    text = _one(name, query)
    if text not in _TRUTHS:
        raise _bad(name, text, "true or false")
    return _TRUTHS[text]


def _one(name: str, query: Query) -> str:
    if name not in query:
        raise BadSize(f"{name} is missing")
    return query[name][-1]


def _bad(name: str, text: str, allowed: str) -> BadSize:
    return BadSize(f"{name}={text[:20]!r} can't be: {allowed} is allowed")
