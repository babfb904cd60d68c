# SPDX-License-Identifier: Apache-2.0
"""What is measured, how often, and the way it is told."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Action = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    :ivar rounds: how often each action is timed.
    :ivar counting: seconds in which it is repeated, as often at least, to count its instructions.
    :ivar sizes: numbers of threads to move.
    :ivar vms: VMs on the host of the audit.
    :ivar hosts: numbers of VMs with which an event about one of them is timed.
    """

    rounds: int = 15
    counting: float = 2.0
    sizes: tuple[int, ...] = (20, 100, 1000)
    vms: int = 200
    hosts: tuple[int, ...] = (50, 200, 500)


THOROUGH = Effort()
QUICK = Effort(rounds=2, counting=0.1, sizes=(20,), vms=5, hosts=(5,))


@dataclass(frozen=True, slots=True)
class Sample:
    """One action.

    :ivar wall: milliseconds on the clock.
    :ivar cpu: milliseconds of CPU time.
    """

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What an action costs one of those who are compared.

    :ivar samples: of the action.
    :ivar instructions: of one action, in the kernel and out of it; ``None`` where nobody counts them.
    """

    samples: Sequence[Sample]
    instructions: float | None = None

    @property
    def wall(self) -> float:
        """Milliseconds on the clock, the median."""
        return statistics.median(sample.wall for sample in self.samples)

    @property
    def cpu(self) -> float:
        """Milliseconds of CPU time, the median."""
        return statistics.median(sample.cpu for sample in self.samples)

    def over(self, other: Cost) -> str:
        """This cost as a multiple of another one."""
        told = f"{self.wall / other.wall:6.2f}x wall, {self.cpu / other.cpu:6.2f}x CPU"
        if self.instructions is not None and other.instructions:
            told += f", {self.instructions / other.instructions:6.2f}x instructions"
        return told

    def __str__(self) -> str:
        told = f"{self.wall:9.3f} ms wall {self.cpu:9.3f} ms CPU"
        return told if self.instructions is None else f"{told} {self.instructions / 1e3:9.0f}k instructions"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same action by several; the first one of them is ours, the second one is the limit.

    :ivar name: what was done.
    :ivar costs: what it cost each of them.
    :ivar goal: what our cost should be at most, in times of the second one's; ``None`` where there is no goal.
    """

    name: str
    costs: Mapping[str, Cost]
    goal: float | None = None
    remark: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        ours, *others = self.costs.items()
        goal = "" if self.goal is None else f" (goal: at most {self.goal:g}x {others[0][0]})"
        lines = [f"{self.name}{goal}", f"    {ours[0]:24} {ours[1]}"]
        for name, cost in others:
            lines += [f"    {name:24} {cost}", f"        {ours[0]} takes {ours[1].over(cost)}"]
        return "\n".join([*lines, *([f"    {self.remark}"] if self.remark else [])])


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


def timed(action: Action) -> Sample:
    """Do something once and time it."""
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    return Sample((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)
