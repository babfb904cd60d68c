# SPDX-License-Identifier: Apache-2.0
"""The experiment: the victim alone, beside its neighbour, with ways of its own, and alone again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vmqos.bench import exceptions, ways
from vmqos.bench.figures import Times
from vmqos.bench.parties import Neighbor, Victim
from vmqos.bench.ways import Loan, Policy
from vmqos.resctrl import exceptions as resctrl_exceptions
from vmqos.resctrl import groups, tasks
from vmqos.resctrl.filesystem import Filesystem

PHASES = ("alone", "noisy", "protected", "alone_again")

Report = Callable[[str, int, int], None]
"""Told of each step: the phase, how many of its measurements are made, and of how many."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    :ivar duration: seconds of measuring in each phase, greater than 0.
    :ivar repetitions: into how many measurements they are divided, 1 or more.
    """

    duration: float
    repetitions: int

    @property
    def warm_up(self) -> float:
        """Seconds before the first measurement, in which the cache comes to what it is in this phase."""
        return max(self.duration / 5, 0.2)


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it.

    :ivar phases: the times by phase, see :data:`PHASES`.
    :ivar loan: the ways that the victim had.
    :ivar unit: of the times.
    :ivar neighbor: what it was.
    """

    phases: dict[str, Times]
    loan: Loan
    unit: str
    neighbor: str


def run(
    filesystem: Filesystem,
    victim: Victim,
    neighbor: Neighbor,
    loan: Loan,
    policy: Policy,
    effort: Effort,
    timeout: float | None,
    report: Report,
) -> Measured:
    """Make the experiment. The caller has a guardian, which gives the ways back however the experiment ends.

    :param loan: the ways that the victim gets in the end, or as many others.
    :param timeout: seconds to wait for resctrl's lock.
    :raises vmqos.bench.exceptions.BenchError: if it can't be made, or says nothing.
    :raises vmqos.resctrl.exceptions.ResctrlError: if the kernel refuses something.
    """
    phases = {}

    def measure(phase: str) -> None:
        phases[phase] = _measure(victim, effort, lambda done: report(phase, done, effort.repetitions))

    neighbor.hush()
    with filesystem.lock(exclusive=True, timeout=timeout):
        victim.prepare(filesystem)
    measure("alone")
    neighbor.disturb(filesystem)
    measure("noisy")
    neighbor.check()
    tids = victim.tids()
    loan = ways.take(filesystem, loan, policy, lambda group: victim.enter(filesystem, group), timeout)
    measure("protected")
    neighbor.check()
    _check_group(filesystem, loan, tids & victim.tids())
    ways.give_back(filesystem, timeout)
    with filesystem.lock(exclusive=True, timeout=timeout):
        victim.tidy_up(filesystem)
    neighbor.hush()
    measure("alone_again")
    return Measured(phases, loan, victim.unit, neighbor.name)


def _measure(victim: Victim, effort: Effort, report: Callable[[int], None]) -> Times:
    report(0)
    victim.measure(effort.warm_up)
    rounds = []
    for number in range(effort.repetitions):
        rounds.append(victim.measure(effort.duration / effort.repetitions))
        report(number + 1)
    return Times(tuple(rounds))


def _check_group(filesystem: Filesystem, loan: Loan, tids: frozenset[int]) -> None:
    """A victim that was not where it should be was not protected."""
    try:
        lost = tids - tasks.read_tasks(filesystem, loan.group)
        found = groups.list_control_groups(filesystem)
    except resctrl_exceptions.Vanished as error:
        raise exceptions.Disturbed(group=loan.group, problem="it was removed") from error
    if lost:
        what = "1 task was" if len(lost) == 1 else f"{len(lost)} tasks were"
        raise exceptions.Disturbed(group=loan.group, problem=f"{what} taken out")
    for group in found:
        for resource in ("L3", "L3CODE", "L3DATA"):
            mask = group.masks(resource).get(loan.cache)
            if mask is None:
                continue
            if group.name == loan.group and mask != loan.mask:
                raise exceptions.Disturbed(group=loan.group, problem=f"its mask of {resource} is {mask}")
            if group.name != loan.group and mask.overlaps(loan.mask):
                raise exceptions.Disturbed(
                    group=loan.group, problem=f"{group.name or 'the default group'} got its ways"
                )
