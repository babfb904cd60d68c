# SPDX-License-Identifier: Apache-2.0
"""What insight, or another law, says of a mix, second by second, and whether it is true.

Insight sees what an agent would: the samples of the last minute, one a second, and the masks. It is asked anew after
each second. An accusation is a culprit, a victim and a cause; what counts is the moment at which it is made first.

- *right*: the planted culprit, a VM that it harms, and a right cause. A mix is *named* if there is one of these within
  :data:`IN_TIME` seconds of the onset.
- *true*: another accusation that the model confirms: without the accused VM, the victim would not be harmed.
- *false*: everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.worth.native import Counters
from tests.worth.neighbours import truth, watcher
from tests.worth.neighbours.machine import Run, Runner, run
from tests.worth.neighbours.mixes import Mix
from tests.worth.neighbours.truth import Harm
from vmqos.insight import Cache, Cause, Counts, History, Host, LimitedIn, PairVerdict, Sample, Vm, pairs

IN_TIME = 30
SEEN = 60
"""Seconds of history that insight is given."""
FIRST = 12
CAUSES = {Cause.CACHE: truth.CACHE, Cause.BANDWIDTH: truth.BANDWIDTH}


Law = Callable[[Host, History], Sequence[PairVerdict]]
"""Who slows whom, by what was seen."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is let see, and by which law it is judged: insight's, unless another is given.

    :ivar pmu: whether there are hardware events.
    :ivar limit: whether it is told what memory can give.
    """

    pmu: bool
    limit: bool
    law: Law = pairs


WATCHER = "the old strategy of Watcher"

SIGHTS = {
    "pmu": Sight(True, True),
    "no pmu": Sight(False, True),
    "pmu, limit unknown": Sight(True, False),
    "no pmu, limit unknown": Sight(False, False),
    WATCHER: Sight(False, False, watcher.pairs),
}


@dataclass(frozen=True, slots=True)
class Accusation:
    """One, as it was made first.

    :ivar second: after which second of the mix.
    :ivar slower: by which factor the victim is slower, as the model says; 1.0 or so if it is not.
    """

    culprit: int
    victim: int
    cause: str
    second: int
    verdict: str
    said: float
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one mix with one sight.

    :ivar named: seconds from the onset to the first right accusation; ``None`` if there was none.
    """

    named: int | None
    accusations: Sequence[Accusation]

    @property
    def false(self) -> int:
        """How many accusations are false."""
        return sum(one.verdict == "false" for one in self.accusations)


def host(mix: Mix, sight: Sight) -> Host:
    """What an agent would know of the host."""
    hardware = mix.hardware
    return Host(
        {0: Cache(hardware.size, hardware.ways, hardware.channel if sight.limit else None)},
        {str(which): Vm(vm.flavor, {0: vm.mask}) for which, vm in enumerate(mix.vms)},
        memory_seconds=hardware.memory_cycles / hardware.hz,
        memory_cycles=hardware.memory_cycles,
        limited_in=LimitedIn.PERCENT,
    )


def sample(second: int, seen: Counters, pmu: bool, hz: float) -> Sample:
    """One VM's second, as an agent would have it."""
    counts = Counts(seen.cycles, seen.instructions, seen.llc_references, seen.llc_misses)
    return Sample(
        float(second + 1),
        {0: float(seen.occupancy)},
        float(seen.total_bytes),
        counts if pmu else None,
        seen.cycles / hz,
    )


def samples(run: Run, sight: Sight, hz: float) -> History:
    """All samples of a run."""
    return {
        str(which): [sample(second, of, sight.pmu, hz) for second, of in enumerate(seconds)]
        for which, seconds in enumerate(run.vms)
    }


def history(of: History, now: int) -> History:
    """What an agent would have of all samples after so many seconds."""
    return {vm: every[max(0, now - SEEN) : now] for vm, every in of.items()}


def judge(
    mix: Mix, whole: Run, harm: dict[int, Harm], sight: Sight, *, seen: Run | None = None, runner: Runner = run
) -> Outcome:
    """Ask insight after each second.

    :param whole: what the VMs did.
    :param harm: what the planted culprit does, by victim.
    :param seen: what insight is shown; what the VMs did where ``None``.
    :param runner: runs the mix again where an accusation has to be held against a run without the accused.
    """
    known, every = host(mix, sight), samples(seen or whole, sight, mix.hardware.hz)
    first: dict[tuple[int, int, Cause], tuple[int, PairVerdict]] = {}
    for now in range(FIRST, mix.seconds + 1):
        for pair in sight.law(known, history(every, now)):
            first.setdefault((int(pair.culprit), int(pair.victim), pair.cause), (now, pair))
    found = [_judged(mix, whole, harm, now, pair, runner) for now, pair in first.values()]
    onset = mix.planted.onset if mix.planted is not None else 0
    return Outcome(min((one.second - onset for one in found if one.verdict == "right"), default=None), found)


def _judged(
    mix: Mix, whole: Run, harm: dict[int, Harm], now: int, pair: PairVerdict, runner: Runner = run
) -> Accusation:
    culprit, victim, cause = int(pair.culprit), int(pair.victim), CAUSES[pair.cause]
    planted = mix.planted
    if planted is not None and planted.vm == culprit and now > planted.onset and victim in harm:
        verdict = "right" if cause in harm[victim].causes else "false"
    else:
        done = truth.harm_by(mix, whole, culprit, victim, max(truth.WARM, int(pair.since) - 2), now, runner)
        verdict = "true" if done is not None and cause in done.causes else "false"
    return Accusation(culprit, victim, cause, now, verdict, pair.slower, pair.evidence)
