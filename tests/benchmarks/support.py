# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: sleeping processes, the C programs, and the way a figure is told."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value.

    :ivar name: what was measured.
    :ivar value: the figure, in ``unit``.
    :ivar goal: what it should be at most; ``None`` where there is no goal.
    :ivar detail: the samples behind it, and what it is compared with.
    """

    name: str
    value: float
    unit: str
    goal: float | None = None
    detail: str = ""

    def __str__(self) -> str:
        goal = "" if self.goal is None else f"  (goal: at most {self.goal:g}; {self.value / self.goal:.2f} of it)"
        return f"{self.name:58} {self.value:9.3f} {self.unit}{goal}\n    {self.detail}"


def percentile(samples: Sequence[float], rank: float) -> float:
    """The smallest sample that at least ``rank`` (0 to 1) of all samples do not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(rank * len(ordered)))]


def spread(samples: Sequence[float], unit: str) -> str:
    """Median, extremes and number of samples, in words."""
    return (
        f"median {statistics.median(samples):.3f}, least {min(samples):.3f}, most {max(samples):.3f} {unit}, "
        f"{len(samples)} samples"
    )


@contextmanager
def compiled(name: str) -> Iterator[str]:
    """The path of a C program of this folder, built for as long as the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, name)
        subprocess.run(["gcc", "-O2", "-pthread", "-o", program, str(HERE / f"{name}.c")], check=True)
        yield program


@contextmanager
def sleeping(processes: int, threads: int) -> Iterator[list[list[int]]]:
    """Processes of that many sleeping threads each: the thread ids of each process, its PID in front."""
    with compiled("threads") as program:
        running = subprocess.Popen(
            [program, str(processes), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert running.stdin is not None and running.stdout is not None
        try:
            yield [[int(word) for word in running.stdout.readline().split()] for _ in range(processes)]
        finally:
            running.stdin.close()
            running.stdout.close()
            running.wait()
