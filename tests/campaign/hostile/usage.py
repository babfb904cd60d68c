# SPDX-License-Identifier: Apache-2.0
"""What the agent and the gateway use while inputs are tried: memory, logs, and what they write."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.hostile.stage import Stage

LOG = logging.getLogger(__name__)

MEMORY_MARGIN = 32 << 20
"""Bytes that the agent's memory may grow by, at any moment. Three VMs that are started with 3 MiB of metadata, with
5 000 extra specs and with deep elements took 30 MiB together: their descriptions are parsed at the same time."""
MEMORY_PER_THREAD = 1024
"""Bytes that it may take for each thread of an attacker's VM: it compares several sets of their ids. A VM may have
16 384 threads (``MOST_THREADS`` of :mod:`vmqos.hypervisor.processes`), so this is bounded, too."""
WRITTEN_PER_INPUT = 4 << 20
"""Bytes that the agent may write, wherever to."""
LOG_PER_INPUT = 2048
LOG_PER_SECOND = 512
"""Bytes that the agent's log may grow by, beside what it says of the witness's own VMs."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """What the agent and the gateway had used at a moment.

    :ivar logs: bytes of the log of each.
    :ivar written: bytes that each had written, wherever to.
    :ivar at: the moment.
    """

    logs: tuple[int, ...]
    written: dict[str, int]
    at: float


class Usage:
    """What the two programs use, held against what they use while all is calm.

    :ivar log: bytes that the logs grow by in one round of the witness while all is calm.
    :ivar memory: bytes: the most that each program had then.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.log = 0.0
        self.memory: dict[str, int] = {}

    @contextlib.contextmanager
    def calm(self, rounds: int) -> Iterator[None]:
        """All is calm in the block, in which the witness makes so many rounds."""
        self._reset_peaks()
        size = sum(self._log_sizes())
        yield
        self.log = (sum(self._log_sizes()) - size) / rounds
        self.memory = {program: _peak_memory(pid) for program, pid in self._stage.pids.items()}

    def gauges(self) -> Gauges:
        """What the agent and the gateway have used so far; their peaks of memory are counted from now on."""
        self._reset_peaks()
        written = {program: _written(pid) for program, pid in self._stage.pids.items()}
        return Gauges(self._log_sizes(), written, time.monotonic())

    def excesses(self, since: Gauges, rounds: int, inputs: int, threads: int) -> list[str]:
        """What the agent and the gateway used too much of.

        :param rounds: how often the witness has resized a VM since then.
        :param inputs: how many were tried.
        :param threads: how many threads VMs have for them.
        """
        seen = list[str]()
        for program, pid in self._stage.pids.items():
            memory = _peak_memory(pid) - self.memory[program]
            LOG.info("%s took up to %.1f MiB more memory than when all is calm", program, memory / (1 << 20))
            if memory > MEMORY_MARGIN + threads * MEMORY_PER_THREAD:
                seen.append(f"{program} took {memory >> 20} MiB more memory than when all is calm")
        grown = sum(self._log_sizes()) - sum(since.logs)
        seconds = time.monotonic() - since.at
        allowed = self.log * (rounds + 1) + LOG_PER_INPUT * inputs + LOG_PER_SECOND * seconds
        if grown > allowed:
            seen.append(f"the logs grew by {grown} bytes in {seconds:.0f} s, {allowed:.0f} are allowed")
        for program, pid in self._stage.pids.items():
            written = _written(pid) - since.written[program] - grown
            if written > WRITTEN_PER_INPUT * inputs:
                seen.append(f"{program} wrote {written >> 20} MiB")
        seen.extend(self._raw_characters(since.logs))
        return seen

    def memory_is_lost(self) -> bool:
        """Whether a program keeps memory that it took during an attack, so that the next input would be blamed."""
        self._reset_peaks()
        kept = {program: _peak_memory(pid) for program, pid in self._stage.pids.items()}
        return any(size > self.memory[program] + MEMORY_MARGIN // 2 for program, size in kept.items())

    def _reset_peaks(self) -> None:
        for pid in self._stage.pids.values():
            _reset_peak(pid)

    def _raw_characters(self, offsets: Sequence[int]) -> Iterator[str]:
        """A log is read on a terminal: no control character but the line's end."""
        text = b"".join(log.read_bytes()[offset:] for log, offset in zip(self._stage.logs, offsets, strict=True))
        raw = sorted(set(text) & ({*range(32), 127} - {ord("\n")}))
        if raw:
            line = next(line for line in text.split(b"\n") if set(line) & set(raw))
            yield f"the log has control characters: {line[:200]!r}"

    def _log_sizes(self) -> tuple[int, ...]:
        return tuple(log.stat().st_size for log in self._stage.logs)


def _peak_memory(pid: int) -> int:
    """Bytes: the most that the process had in memory since its peak was reset (proc(5), ``VmHWM``)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _written(pid: int) -> int:
    """Bytes that the process has given to write(2) and its kin."""
    return int(Path(f"/proc/{pid}/io").read_text().partition("wchar:")[2].split()[0])
