# SPDX-License-Identifier: Apache-2.0
"""Which VM slows which, and by what.

*The idea.*  A neighbour that begins to bring in many more lines is an experiment that nature makes. At its step a
victim gets slower, and each VM that the neighbour does not touch goes on as before. So each step up of a VM's traffic
is held against each other VM that shares a cache with it.

*What must be so before a VM is accused* (a false accusation is worse than a missed one):

1. Onset. The victim is as fast as ever until the step, and slow from then on. A VM whose own work changes in the same
   seconds can't be judged: by references per instruction we know that it changed. A neighbour changes these little: a
   line that an inclusive L3 gives up leaves the L2, too, so a VM that begins to miss also asks somewhat more often.
2. Persistence. Both levels last for some samples, and the victim's samples lie apart: those before on this side of the
   middle, those behind on that side.
3. Dose. Wherever else in the history the victim did the same work, it was slow while the neighbour was up, and fast
   while it was down. Otherwise its slowness has a life of its own.
4. One culprit. Of all that traffic rose at that moment, most is the neighbour's. VMs that lost cache and fetch it again
   are victims too, and do not count. Where two rise together, neither is accused.
5. A mechanism, and it fits the figures:

   *cache*: both may fill a common way, the victim holds less than before, the culprit more, and the victim misses more
   often, by enough to cost the time that it lost. The culprit's traffic rises by no less than the victim's, for each
   line that it takes again and again has to be brought in. Where memory is full, both causes are possible, and a victim
   that holds nearly as much as before is not said to miss more because of that;

   *memory bandwidth*: the victim does not miss more often, but each miss takes longer, while the memory gives nearly
   all that it can. The culprit adds a good part of that: a trickle into a channel that others fill slows nobody.

A victim that did other work at the step can be judged by another time at which it did the work of now; but then it has
to be much slower, because two works may look alike.

*Without a PMU* neither speed nor work is seen. A victim of the cache is then a VM that holds less and fetches more, by
enough to cost it a good part of the time that it runs, and no more than the culprit brings in: each line that it loses
made room for one of the culprit's. A victim of the memory is one that gets less at the very step that fills the memory,
which had room in the seconds before, and not less than lines take longer. The victim must have kept its level before,
and keep one behind the step, where it may lose still more of the cache. Who has kept it for some seconds only may have
changed by itself, so a victim of the memory then has to be much slower; one of the cache has lost lines besides, which
speaks for itself. This finds less, and how much slower the victim is can only be estimated. A VM that changed its work
in that very second can't be told from a victim, unless it runs much less from then on. One that missed nearly as often
before is not found; one whose misses overlap is called a victim though it hardly suffers.

*What can't be known*: harm that was there when the history began; harm by a VM whose traffic grows slowly; which of two
VMs that rise together it was; and harm done elsewhere than in the L3 and behind it (a shared core, a shared disk).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vmqos.insight import say
from vmqos.insight.advice import against
from vmqos.insight.model import Cause, History, Host, PairVerdict
from vmqos.insight.series import LEVEL, Rise, Series, align, middle, rises

MOST = 20
"""Samples on each side of a step that are looked at."""
FEWEST = 4
"""Samples on each side without which nothing is said."""
FEWEST_APART = 6
"""Samples on each side without which nothing is said where the victim did other work at the step."""
CALM = 7
"""Samples before a step without which nothing is said where there is no PMU. A victim of the memory that was calm for
less has to be much slower."""
SAME_WORK = 0.10
"""References per instruction of the same work differ by no more than this part."""
LEAVE_THE_L2 = 0.5
"""A victim's references may rise, too, by at most this share of the rise of its misses: an inclusive L3 takes the lines
that it gives up from the L2. A VM that begins to walk through memory has as many more references as misses."""
SLOWER = 1.15
"""The least factor that is told. Less could be noise, and hardly worth a move."""
SLOWER_APART = 1.3
"""The least factor where the victim did other work at the step: what looks like the same work may differ a little."""
APART = 0.85
"""The share of samples that have to be on the right side of the middle."""
MOSTLY = 0.6
"""The share of all that rises which has to be the culprit's."""
SHOWS = 3
"""Samples within which a victim has to become slow. A cache loses its lines one by one, but quickly."""
SHOWS_LATE, FLOODS = 6, 4
"""With a PMU, a victim of the cache may become slow within ``SHOWS_LATE`` samples, for the lines that are most in use
go last. The neighbour's traffic then has to rise by ``FLOODS`` times as much as the victim's, and the neighbour has to
gain ``FLOODS`` times as much cache as the victim loses."""
SETTLED = 4
"""Samples after which the effect of a change is to be seen, and the end of it."""
LINE = 64
KEEPS = 0.25
"""Without a PMU: a VM that keeps its level stays within this part of it."""
NOTHING = 0.05
"""Without a PMU: it keeps its level also within this share of a CPU's time for what it fetches."""
SETTLES = 1
"""Samples behind a step in which a victim may be on its way."""
LOST = 0.9
"""A victim of the cache holds at most this part of what it held; with a PMU only where memory is full, too."""
MORE, PASSED_ON = 1.3, 0.4
"""Without a PMU: a victim of the cache fetches at least so many times as much, and at least this part of what it lost
is what the culprit gained."""
ADDS = 0.1
"""The least share of all traffic that a culprit of the memory adds. Less makes no queue longer."""
COSTS = 0.42
"""Without a PMU: what a victim fetches again has to cost it this share of the time that it runs, if it waits for each
line. A VM that has two lines on their way at a time still loses a fifth of its time."""
MATTERS = 0.2
"""Without a PMU: the same share, for what a victim fetches while it is not held back."""
RUNS = 0.1
"""Without a PMU: what a VM fetches that runs for less, in CPU seconds a second, is held against all of one CPU's time:
what devices bring in costs its tasks nothing."""
IDLES = 2 / 3
"""A VM that runs for less than before by more than this part of it changed its own work, and loses what it does not use
any more; or it lacks CPUs, which is another harm."""
WORST = 6
"""Lines take at most this many times as long where memory is full. A VM that is slower does less of its own accord."""
ROOM = 0.7
"""The share of what memory can give below which there is room for all."""
NEAR = 0.8
"""The share of what memory can give at which it is called full."""


@dataclass(frozen=True, slots=True)
class Known:
    """What was found of a victim around its neighbours' steps. Several neighbours may step in the same seconds.

    :ivar works: its works behind a step and which samples are of each, by the step's begin and end.
    :ivar calm: at which samples it keeps its levels, by the caches that count, and the samples on each side of a step.
    """

    works: dict[tuple[int, int], list[tuple[Work, list[bool]]]] = field(default_factory=dict)
    calm: dict[tuple[Sequence[int] | None, range, range], list[bool]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """A neighbour and a possible victim of its.

    :ivar known: of the victim, for all of its neighbours.
    :ivar caches: the caches of which both may fill a common way.
    :ivar total: bytes a second of all VMs that share memory with the two.
    :ivar limit: bytes a second that this memory can give; NaN where that is not known.
    """

    culprit: str
    victim: str
    neighbour: Series
    own: Series
    known: Known
    caches: tuple[int, ...]
    total: Sequence[float]
    limit: float


@dataclass(frozen=True, slots=True)
class Work:
    """What a VM does, by its references and misses per instruction."""

    references: float
    misses: float

    def is_same(self, other: Work) -> bool:
        """Whether it may be the same work, among other neighbours."""
        asked, missed = other.references - self.references, other.misses - self.misses
        more = LEAVE_THE_L2 * abs(missed) if asked * missed > 0 else 0.0
        return abs(asked) <= SAME_WORK * self.references + more


@dataclass(frozen=True, slots=True)
class Sides:
    """Indexes of the victim's samples before a step and behind it, at the same work; ``lag``: when the effect shows."""

    before: Sequence[int]
    after: Sequence[int]
    lag: int


@dataclass(frozen=True, slots=True)
class Effect:
    """What a step did to a victim; see :class:`vmqos.insight.model.PairVerdict`."""

    cause: Cause
    slower: float
    confidence: float
    sides: Sides
    evidence: tuple[str, ...]


def pairs(host: Host, history: History) -> list[PairVerdict]:
    """All verdicts, by descending confidence."""
    return pairs_among(host, *align(history))


def pairs_among(
    host: Host, times: Sequence[float], series: Mapping[str, Series], between: Callable[[], object] = lambda: None
) -> list[PairVerdict]:
    """All verdicts on a history that is given as columns (:func:`vmqos.insight.series.align`), surest first.

    :param between: called between two victims.
    """
    steps = {vm: risen for vm, of in series.items() if (risen := rises(of.bandwidth))}
    totals: dict[frozenset[int], list[float]] = {}
    found: list[PairVerdict] = []
    for victim in series:
        between()
        of_victim: list[tuple[int, int, PairVerdict]] = []
        known = Known()
        for culprit, of_culprit in steps.items():
            pair = _pair(host, series, culprit, victim, known, totals) if culprit != victim else None
            if pair is None:
                continue
            for step in of_culprit:
                effect = _effect(host, pair, step)
                if effect is None:
                    continue
                share = _share(host, series, pair, effect.sides, effect.cause)
                if share >= MOSTLY:
                    verdict = _verdict(host, times, pair, step, effect, share)
                    of_victim.append((step.at + effect.sides.lag, effect.sides.lag, verdict))
        found += _nearest(of_victim)
    return sorted(found, key=lambda verdict: -verdict.confidence)


def _nearest(found: Sequence[tuple[int, int, PairVerdict]]) -> list[PairVerdict]:
    """One verdict for each culprit of a victim; of what shows in one moment, the nearest step is the cause.

    :param found: for each verdict when the effect shows, and how long after the step.
    """
    kept: dict[str, PairVerdict] = {}
    for shows, lag, verdict in found:
        if any(abs(shows - other) <= 2 and less < lag for other, less, _ in found):
            continue
        known = kept.get(verdict.culprit)
        if known is None or known.confidence < verdict.confidence:
            kept[verdict.culprit] = verdict
    return list(kept.values())


def _pair(
    host: Host,
    series: Mapping[str, Series],
    culprit: str,
    victim: str,
    known: Known,
    totals: dict[frozenset[int], list[float]],
) -> Pair | None:
    """``None`` where the two have no memory in common.

    :param known: what was found of the victim for other pairs.
    :param totals: what was found of :attr:`Pair.total` for other pairs, by the caches in common.
    """
    one, other = host.vms[culprit].masks, host.vms[victim].masks
    common = [cache for cache in one if cache in other]
    if not common:
        return None
    if (behind := frozenset(common)) not in totals:
        columns = [series[vm].bandwidth for vm in series if not behind.isdisjoint(host.vms[vm].masks)]
        totals[behind] = [
            sum(value for value in values if not math.isnan(value)) for values in zip(*columns, strict=True)
        ]
    limits = [host.caches[cache].bandwidth for cache in common]
    return Pair(
        culprit,
        victim,
        series[culprit],
        series[victim],
        known,
        tuple(cache for cache in common if one[cache] & other[cache]),
        totals[behind],
        math.nan if None in limits else sum(limit for limit in limits if limit is not None),
    )


def _verdict(host: Host, times: Sequence[float], pair: Pair, step: Rise, effect: Effect, share: float) -> PairVerdict:
    lost, gained = (_change(series.held_on(pair.caches), step) for series in (pair.own, pair.neighbour))
    advice = against(effect.cause, host, host.vms[pair.culprit], step.after, _room(pair, step, effect.sides))
    return PairVerdict(
        pair.culprit,
        pair.victim,
        effect.cause,
        times[step.at],
        times[step.end] if step.end < len(times) else None,
        effect.slower,
        max(0.0, min(-lost, gained)),
        round(effect.confidence * min(1.0, share / 0.9), 2),
        (
            f"the neighbour's traffic with memory rose from {say.bandwidth(step.before)} to "
            f"{say.bandwidth(step.after)}, {say.percent(share)} of all that rose then",
            *effect.evidence,
            *advice.because,
        ),
        advice.command,
    )


def _effect(host: Host, pair: Pair, step: Rise) -> Effect | None:
    """What a step of the neighbour did to the victim; ``None`` where it did nothing, or it can't be told."""
    if math.isnan(middle(pair.own.cycles[max(0, step.at - FEWEST) : step.at])):
        return _cache_guessed(host, pair, step) or _bandwidth_guessed(host, pair, step)
    return _counted(host, pair, step)


def _counted(host: Host, pair: Pair, step: Rise) -> Effect | None:
    """With a PMU: what is best seen of the effect, at any of the victim's works."""
    if (when := (step.at, step.end)) not in pair.known.works:
        pair.known.works[when] = _works(pair.own, step)
    effects = [_at_work(host, pair, step, work, same) for work, same in pair.known.works[when]]
    return max((effect for effect in effects if effect), key=lambda effect: effect.confidence, default=None)


def _works(own: Series, step: Rise) -> list[tuple[Work, list[bool]]]:
    """What the victim did while the neighbour was up, and at which samples it did the same."""
    found: list[Work] = []
    run: list[Work] = []
    up = slice(step.at + 1, step.end)
    for work in map(Work, own.references[up], own.misses[up]):
        if run and not run[0].is_same(work):
            run = []
        run.append(work)
        if len(run) == FEWEST:
            mark = Work(middle(one.references for one in run), middle(one.misses for one in run))
            if all(abs(mark.references - other.references) > SAME_WORK * other.references / 2 for other in found):
                found.append(mark)
    every = list(map(Work, own.references, own.misses)) if found else []
    return [(work, [work.is_same(other) for other in every]) for work in found]


def _at_work(host: Host, pair: Pair, step: Rise, work: Work, same: Sequence[bool]) -> Effect | None:
    """What is seen at one of the victim's works; ``same``: whether a sample is of this work."""
    own = pair.own
    at_once = _sides(pair, step, same, own.cycles, SHOWS_LATE)
    sides = at_once or _sides_apart(pair, step, same)
    if sides is None:
        return None
    before, after = _level(own.cycles, sides.before), _level(own.cycles, sides.after)
    slower = after / before
    apart = _apart(own.cycles, sides, (before + after) / 2)
    if not (slower >= (SLOWER if at_once else SLOWER_APART) and apart >= APART):
        return None
    whole = [at for at, is_same in enumerate(same) if is_same]
    if _idles(own, sides) or not _dose(pair, step, sides, whole, own.cycles, (before + after) / 2):
        return None
    missed, misses = _level(own.misses, sides.before), _level(own.misses, sides.after)
    line = min(host.memory_cycles, before / missed if missed > 0 else math.inf)
    explained = (misses - missed) * line / (after - before)
    figures = (
        f"the victim took {before:.2f} cycles for an instruction and now takes {after:.2f}, at the same work "
        f"({1000 * work.references:.1f} references in 1 000 instructions)",
        f"it missed {1000 * missed:.2f} times in 1 000 instructions, and now {1000 * misses:.2f} times",
    )
    confidence = apart * min(1.0, 0.7 + len(sides.after) / 30) * min(1.0, 0.6 + 2 * (slower - 1))
    is_late = sides.lag > SHOWS
    if explained >= 0.5:
        lost, gained = (_moved(series.held_on(pair.caches), sides) for series in (own, pair.neighbour))
        times = FLOODS if is_late else 1
        if not (pair.caches and lost < 0 < gained and _brings_in(pair, step, sides, times)):
            return None
        if is_late and gained < times * -lost:
            return None
        held = _level(own.held_on(pair.caches), sides.before)
        if -lost < (1 - LOST) * held and _full(pair, sides) is not None:
            return None
        return Effect(
            Cause.CACHE,
            slower,
            confidence,
            sides,
            (*figures, f"it held {say.size(held)} and lost {say.size(-lost)}; the neighbour gained {say.size(gained)}"),
        )
    full = _full(pair, sides)
    if full is None or is_late or not _adds(pair, step, sides):
        return None
    return Effect(Cause.BANDWIDTH, slower, confidence, sides, (*figures, full))


def _cache_guessed(host: Host, pair: Pair, step: Rise) -> Effect | None:
    """Without a PMU: the victim holds less, and fetches it again and again."""
    if not pair.caches:
        return None
    own = pair.own
    sides = _sides(pair, step, _is_calm(host, pair, step, with_held=True), own.bandwidth)
    if sides is None:
        return None
    held = own.held_on(pair.caches)
    had, has = _level(held, sides.before), _level(held, sides.after)
    before, after = _level(own.bandwidth, sides.before), _level(own.bandwidth, sides.after)
    cost = _waits(host, own, sides.after) - _waits(host, own, sides.before)
    gained = _moved(pair.neighbour.held_on(pair.caches), sides)
    if not (has <= LOST * had and after >= MORE * before and gained >= PASSED_ON * (had - has)):
        return None
    if _idles(own, sides) or not _brings_in(pair, step, sides):
        return None
    if _level(pair.total, sides.after[:LEVEL]) < _level(pair.total, sides.before[:LEVEL]):
        # Another VM left the memory to it just then, which may be why it fetches more.
        return None
    # It may lose still more later, as where it runs for less.
    lost = _apart(held, sides, (had + has) / 2, -1, (1 + LOST) / 2 * had)
    apart = min(_apart(own.bandwidth, sides, (before + after) / 2), lost)
    if apart < APART or cost < COSTS or not _dose(pair, step, sides, None, own.bandwidth, (before + after) / 2):
        return None
    # Nobody waits for longer than it runs: of more lines, several are on their way at a time.
    told = min(1.0, cost)
    return Effect(
        Cause.CACHE,
        1 + told,
        0.85 * apart * min(1.0, 0.7 + len(sides.after) / 30),
        sides,
        (
            f"the victim held {say.size(had)} and holds {say.size(has)}; the neighbour gained {say.size(gained)}",
            f"it fetched {say.bandwidth(before)} and now fetches {say.bandwidth(after)}, which costs about "
            f"{say.percent(told)} of the time that it runs in waiting (an estimate: nothing counts misses of the L3 "
            "here)",
        ),
    )


def _bandwidth_guessed(host: Host, pair: Pair, step: Rise) -> Effect | None:
    """Without a PMU: the victim gets less, while memory gives all that it can."""
    own = pair.own
    sides = _sides(pair, step, _is_calm(host, pair, step, with_held=False), own.bandwidth)
    if sides is None or sides.lag > 0:
        return None
    before, after = _level(own.bandwidth, sides.before), _level(own.bandwidth, sides.after)
    full, waits = _full(pair, sides), _waits(host, own, sides.before)
    if full is None or _idles(own, sides) or not _adds(pair, step, sides):
        return None
    if waits < MATTERS or before > after * (1 + (WORST - 1) * min(1.0, waits)):
        return None
    if not math.isnan(pair.limit) and _level(pair.total, sides.before[:LEVEL]) > ROOM * pair.limit:
        return None
    apart = _apart(own.bandwidth, sides, (before + after) / 2, -1)
    needed = SLOWER if len(sides.before) >= CALM else SLOWER_APART
    if apart < APART or before < needed * after:
        return None
    if not _dose(pair, step, sides, None, own.bandwidth, (before + after) / 2, -1):
        return None
    return Effect(
        Cause.BANDWIDTH,
        before / after,
        0.85 * apart * min(1.0, 0.7 + len(sides.after) / 30),
        sides,
        (
            f"the victim got {say.bandwidth(before)} and now gets {say.bandwidth(after)} (that it asks for as much as "
            "before can only be supposed: nothing counts misses of the L3 here)",
            full,
        ),
    )


def _is_calm(host: Host, pair: Pair, step: Rise, with_held: bool) -> list[bool]:
    """Without a PMU: at which samples next to a step the victim keeps its levels.

    :param with_held: whether the level of what it holds counts, too; behind the step it may hold still less. That of
        its traffic counts in any case, unless the traffic costs the victim next to no time.
    """
    before = range(step.at - 2, max(-1, step.at - 2 - MOST), -1)
    behind = range(step.at + 1 + SETTLES, min(step.end, step.at + 1 + MOST))
    when = pair.caches if with_held else None, before, behind
    if (found := pair.known.calm.get(when)) is None:
        traffic = pair.own.bandwidth
        slack = NOTHING * LINE / host.memory_seconds
        held = pair.own.held_on(pair.caches) if with_held else []
        calm = set(range(step.at - 1, step.at + SETTLES + 1))
        for side in (before, behind):
            kept = _keeping(traffic, side, slack)
            calm |= kept & _keeping(held, side, 0.0, may_fall=side is behind) if with_held else kept
        found = pair.known.calm[when] = [at in calm for at in range(len(traffic))]
    return found


def _keeping(column: Sequence[float], indexes: range, slack: float, may_fall: bool = False) -> set[int]:
    """Those indexes, from the first one on, at which a column keeps the level of the first ones.

    :param may_fall: whether it may fall below this level, too.
    """
    level = _level(column, indexes[:FEWEST])
    found: set[int] = set()
    away = 0
    for at in indexes:
        off = column[at] - level
        away = 0 if (off if may_fall else abs(off)) <= max(KEEPS * level, slack) else away + 1
        if away > 1:
            found.discard(at + (1 if indexes.step < 0 else -1))
            break
        found.add(at)
    return found


def _sides(pair: Pair, step: Rise, same: Sequence[bool], column: Sequence[float], within: int = SHOWS) -> Sides | None:
    """The samples next to a step. The one in which it comes, and the one before, belong to neither side.

    :param within: samples within which the effect has to show.
    """
    half = (step.before + step.after) / 2
    before, after = [], []
    for at in range(step.at - 2, max(-1, step.at - 2 - MOST), -1):
        if not same[at] or not pair.neighbour.bandwidth[at] < half or math.isnan(column[at]):
            break
        before.append(at)
    for at in range(step.at + 1, min(step.end, step.at + 1 + MOST)):
        if not same[at] or math.isnan(column[at]):
            break
        after.append(at)
    if len(before) < FEWEST or len(after) < FEWEST:
        return None
    low, high = _level(column, before), _level(column, after[-max(FEWEST, len(after) // 2) :])
    if high != low and (column[step.at - 1] - low) / (high - low) > 0.5 and same[step.at - 1]:
        return None
    shows = (
        next((n for n, at in enumerate(after) if (column[at] - low) / (high - low) > 0.5), None) if high != low else 0
    )
    if shows is None or shows > within or len(after) - shows < FEWEST:
        return None
    return Sides(before, after[shows:], shows)


def _sides_apart(pair: Pair, step: Rise, same: Sequence[bool]) -> Sides | None:
    """The samples of a work that the victim did not do at the step itself, but before it and behind it.

    The first samples of each turn of it are left out: a cache has to fill.
    """
    half = (step.before + step.after) / 2
    good = [all(same[max(0, at - 2) : at + 1]) for at in range(len(same))]
    before = [
        at for at in range(step.at - 1) if good[at] and max(pair.neighbour.bandwidth[max(0, at - 1) : at + 1]) < half
    ]
    after = [at for at in range(step.at + 2, step.end) if good[at]]
    if len(before) < FEWEST_APART or len(after) < FEWEST_APART:
        return None
    return Sides(before[: -MOST - 1 : -1], after[:MOST], SHOWS)


def _level(column: Sequence[float], at: Iterable[int]) -> float:
    return middle(column[index] for index in at)


def _moved(column: Sequence[float], sides: Sides) -> float:
    return _level(column, sides.after) - _level(column, sides.before)


def _change(column: Sequence[float], step: Rise) -> float:
    return middle(column[step.at + 1 : step.at + 1 + MOST]) - middle(column[max(0, step.at - 1 - MOST) : step.at - 1])


def _apart(column: Sequence[float], sides: Sides, mid: float, sign: int = 1, behind: float | None = None) -> float:
    """The share of samples on the right side of the middle, of the side where it is less.

    :param sign: -1: they fall.
    :param behind: what those behind the step are to be held against in place of the middle.
    """
    low = sum(sign * (column[at] - mid) < 0 for at in sides.before) / len(sides.before)
    than = mid if behind is None else behind
    high = sum(sign * (column[at] - than) > 0 for at in sides.after) / len(sides.after)
    return min(low, high)


def _dose(
    pair: Pair,
    step: Rise,
    sides: Sides,
    same: Sequence[int] | None,
    column: Sequence[float],
    mid: float,
    sign: int = 1,
) -> bool:
    """Whether the victim was slow where the neighbour was up and not where it was down, in the rest of the history.

    :param same: the samples of the same work; ``None``: that is not known, so only those behind the step are asked.
    """
    half = (step.before + step.after) / 2
    used = {*sides.before, *range(step.at - 1, sides.after[-1] + 1)}
    right = wrong = 0
    for at in same if same is not None else range(step.at, len(column)):
        last = pair.neighbour.bandwidth[max(0, at - SETTLED) : at + 1]
        up = min(last) >= half
        if at in used or not (up or max(last) < half) or math.isnan(column[at]):
            continue
        if (sign * (column[at] - mid) > 0) == up:
            right += 1
        else:
            wrong += 1
    return wrong < FEWEST or right >= APART * (right + wrong)


def _waits(host: Host, own: Series, at: Iterable[int]) -> float:
    """The share of the time that a VM runs which its lines from memory take, if it waits for each.

    Where it hardly runs, or that is not known, it is that of one CPU's time.
    """
    # A NaN compares as false.
    fetched = (own.bandwidth[index] / (ran if (ran := own.cpu_time[index]) >= RUNS else 1.0) for index in at)
    return middle(fetched) / LINE * host.memory_seconds


def _idles(own: Series, sides: Sides) -> bool:
    """Whether a VM runs much less than before, as far as that is known."""
    ran, runs = _level(own.cpu_time, sides.before), _level(own.cpu_time, sides.after)
    # A NaN compares as false.
    return runs >= 0 and max(RUNS, runs) < (1 - IDLES) * ran


def _brings_in(pair: Pair, step: Rise, sides: Sides, times: int = 1) -> bool:
    """Whether a neighbour brings in as many lines more as the victim does. It has to, to take them again and again.

    :param times: so many times as many.
    """
    return step.after - step.before >= times * _moved(pair.own.bandwidth, sides)


def _room(pair: Pair, step: Rise, sides: Sides) -> float:
    """Bytes a second that a neighbour can move beside what the others moved before, and memory has room for all.

    Where it is not known what memory gives, it is what all moved together when it was full.
    """
    gives = _level(pair.total, sides.after) if math.isnan(pair.limit) else pair.limit
    return max(0.0, ROOM * gives - max(0.0, _level(pair.total, sides.before) - step.before))


def _adds(pair: Pair, step: Rise, sides: Sides) -> bool:
    """Whether a neighbour adds enough to what goes over the memory channel to make others wait."""
    return step.after - step.before >= ADDS * _level(pair.total, sides.after)


def _full(pair: Pair, sides: Sides) -> str | None:
    """What says that memory gives nearly all that it can; ``None`` if it does not."""
    before, after = _level(pair.total, sides.before), _level(pair.total, sides.after)
    if not math.isnan(pair.limit):
        if after < NEAR * pair.limit:
            return None
        return f"all VMs together moved {say.bandwidth(after)}, {say.percent(after / pair.limit)} of what memory gives"
    if after < 1.3 * before or after < 0.9 * max(pair.total):
        return None
    return f"all VMs together moved {say.bandwidth(after)}, more than ever before (what memory gives is not known)"


def _share(host: Host, series: Mapping[str, Series], pair: Pair, sides: Sides, cause: Cause) -> float:
    """The neighbour's share of all traffic that rose until the effect showed.

    Victims who fetch again what they lost do not count where the cause is the cache.
    """
    before, after = sides.before[: 2 * LEVEL], sides.after[: 2 * LEVEL]
    rose = {}
    for vm, of in series.items():
        if vm == pair.victim or not any(cache in host.vms[pair.victim].masks for cache in host.vms[vm].masks):
            continue
        held = of.held_on(pair.caches)
        if cause is Cause.CACHE and vm != pair.culprit and _level(held, after) < 0.98 * _level(held, before):
            continue
        more = _level(of.bandwidth, after) - _level(of.bandwidth, before)
        rose[vm] = 0.0 if math.isnan(more) else max(0.0, more)
    whole = sum(rose.values())
    return rose[pair.culprit] / whole if whole > 0 else 0.0
