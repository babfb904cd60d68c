# SPDX-License-Identifier: Apache-2.0
"""The judge of one input: a target may take it or refuse it, within bounds of time and memory."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from tests.fuzz.table import Parse

LONGEST = 5.0
"""Seconds of CPU time that an input may take. Inputs have some KiB; the slowest that is fine takes a tenth of that on
two CPUs that share their caches with other programs, and memory that is tight takes longer still."""

MOST_MEMORY = 64 << 20
"""Bytes by which an input may have the process grow beyond what it ever had."""

FEWEST_DIGITS = 640
"""Digits of which Python makes a number here. Usually it takes 4300, which is more than most inputs have."""


class TooSlow(BaseException):
    """The input takes longer than :data:`LONGEST`. No ``Exception``: the parser must not be able to catch it."""


class TooMuchMemory(Exception):
    """The input made the process grow by more than :data:`MOST_MEMORY`."""


def accepts(parse: Parse, data: bytes) -> bool:
    """Whether the target takes the input.

    :raises TooSlow: if it takes too long.
    :raises TooMuchMemory: if it takes too much memory.
    :raises Exception: whatever else the parser should not have raised.
    """
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(FEWEST_DIGITS)
    before = signal.signal(signal.SIGVTALRM, _too_slow)
    had = _most_memory()
    # The clock counts the CPU time of the process, so a busy machine makes nothing slow.
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    try:
        taken = parse(data)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        sys.set_int_max_str_digits(digits)
    grown = _most_memory() - had
    if grown > MOST_MEMORY:
        raise TooMuchMemory(f"{len(data)} bytes of input took {grown >> 20} MiB of memory")
    return taken


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow(f"it takes more than {LONGEST:g} seconds of CPU time")


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class Trials:
    """Tries inputs one after the other, and keeps one input of each finding.

    :param parse: the target.
    :param folder: where the inputs are written that are findings, each with the traceback beside it.
    :ivar tried: how many inputs.
    :ivar taken: how many of them the target took.
    """

    def __init__(self, parse: Parse, folder: Path, report: Callable[[str], None] = print) -> None:
        self._parse = parse
        self._folder = folder
        self._report = report
        self._places = set[str]()
        self.tried = 0
        self.taken = 0

    def __call__(self, data: bytes) -> None:
        """Try one input; an engine calls this."""
        self.tried += 1
        try:
            self.taken += accepts(self._parse, data)
        except (Exception, TooSlow) as error:
            self._keep(data, error)

    def _keep(self, data: bytes, error: BaseException) -> None:
        place = _place(error)
        if place in self._places:
            return
        self._places.add(place)
        path = self._folder / hashlib.sha256(data).hexdigest()[:16]
        path.write_bytes(data)
        text = "".join(traceback.format_exception(error))
        path.with_suffix(".txt").write_text(text, encoding="utf-8", errors="backslashreplace")
        self._report(f"finding: {place}")


def _place(error: BaseException) -> str:
    """What tells a finding from another: the exception and the line of ours that it came from.

    What is too slow was interrupted somewhere, so all of it is one finding.
    """
    if isinstance(error, TooSlow):
        return "TooSlow"
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}trial.py" not in frame.filename]
    own = [frame for frame in ours if f"{os.sep}vmqos{os.sep}" in frame.filename] or ours
    where = f"{own[-1].filename}:{own[-1].lineno}" if own else "nowhere"
    return f"{type(error).__name__} at {where}"
