# SPDX-License-Identifier: Apache-2.0
"""Mixes of VMs as pure data, drawn by seeds: what each VM does when, and which of them is planted as a culprit.

A mix has 2 to 12 VMs. Each does its own work, some of them in phases that come again. A *quiet* mix has no more than
that. In a *planted* one a VM begins to do harm at a certain second: with fills of the cache, or with traffic on the
memory channel. How much harm it does, and to whom, is for the model to say (:mod:`tests.worth.neighbours.truth`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

SECONDS = 85
"""How long a mix lasts."""
ONSET = (30, 45)
"""When a planted culprit begins, at the earliest and at the latest."""
WAYS = 16
ALL_WAYS = (1 << WAYS) - 1


class Pattern(IntEnum):
    """In which order lines are used (``enum pattern`` of ``machine.c``)."""

    OFF = 0
    WALK = 1
    """One after the other, and again from the first."""
    RANDOM = 2
    ZIPF = 3
    """Some much more often than others, as keys of a store."""
    STREAM = 4
    """One after the other, so many that they come again too late."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a VM does for a while.

    :ivar size: of its working set, as a share of the cache.
    :ivar instructions: for each reference to the L3.
    :ivar idle_ns: halted after each reference.
    :ivar overlap: misses on the way at once.
    :ivar exponent: of :attr:`Pattern.ZIPF`.
    :ivar stores: the share of references that store.
    :ivar place: where in the VM's memory the working set is.
    """

    pattern: Pattern
    size: float
    instructions: float
    idle_ns: float = 0.0
    overlap: float = 1.0
    exponent: float = 1.0
    stores: float = 0.1
    place: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """A load for some seconds."""

    seconds: int
    load: Load


@dataclass(frozen=True, slots=True)
class MixVm:
    """One VM.

    :ivar phases: what it does in turns; the first turn begins ``shift`` seconds before the mix.
    :ivar mask: the ways that it may fill.
    :ivar jitter: by how much its idle time differs from second to second, as a share.
    """

    flavor: str
    phases: Sequence[Phase]
    mask: int
    seed: int
    shift: int = 0
    jitter: float = 0.05

    def load(self, second: int) -> Load:
        """What it does in a second of the mix."""
        turn = (second + self.shift) % sum(phase.seconds for phase in self.phases)
        for phase in self.phases:
            turn -= phase.seconds
            if turn < 0:
                break
        noise = random.Random(self.seed * 1_000_003 + second).gauss(0, self.jitter)
        busy = phase.load.instructions * 0.25 + 20
        return replace(phase.load, idle_ns=max(0.0, phase.load.idle_ns + noise * (busy + phase.load.idle_ns)))


@dataclass(frozen=True, slots=True)
class Planted:
    """The culprit.

    :ivar vm: which one it is.
    :ivar onset: the second in which it begins.
    :ivar meant: ``cache`` or ``bandwidth``: what it was made for.
    :ivar load: what it does from then on.
    :ivar rest: seconds in which it pauses after each ``work`` seconds; 0: it does not pause.
    """

    vm: int
    onset: int
    meant: str
    load: Load
    work: int = 0
    rest: int = 0

    def at_it(self, second: int) -> bool:
        """Whether it does so in a second of the mix."""
        since = second - self.onset
        return since >= 0 and (not self.rest or since % (self.work + self.rest) < self.work)


@dataclass(frozen=True, slots=True)
class Mix:
    """VMs on one host."""

    seed: int
    vms: Sequence[MixVm]
    planted: Planted | None = None
    seconds: int = SECONDS

    def load(self, vm: int, second: int, planted: bool = True) -> Load:
        """What a VM does in a second; ``planted``: whether the culprit does what it was planted for."""
        culprit = self.planted
        if planted and culprit is not None and culprit.vm == vm and culprit.at_it(second):
            return culprit.load
        return self.vms[vm].load(second)


def quiet(seed: int) -> Mix:
    """A mix in which each VM only does its own work."""
    chance = random.Random(f"quiet {seed}")
    number = chance.randint(2, 12)
    return Mix(seed, _vms(chance, number, _masks(chance, number)))


def planted(seed: int) -> Mix:
    """A mix with a culprit: of the cache for even seeds, of the memory channel for odd ones."""
    chance = random.Random(f"planted {seed}")
    number = chance.randint(2, 12)
    culprit = chance.randrange(number)
    onset = chance.randint(*ONSET)
    if seed % 2 == 0:
        masks = _masks(chance, number)
        # It fills ways of at least one other VM.
        masks[culprit] = ALL_WAYS
        load = chance.choice((_flood, _giant))(chance)
        fragile, meant = _held, "cache"
    else:
        masks = _masks(chance, number)
        few = chance.randint(1, 2)
        # It has few ways, so what it does to others is mostly not done in the cache.
        masks[culprit] = (1 << few) - 1
        if chance.random() < 0.5:
            masks = [mask if at == culprit else ALL_WAYS & ~masks[culprit] & mask or mask for at, mask in enumerate(masks)]
        load = _torrent(chance)
        fragile, meant = _hungry, "bandwidth"
    work, rest = (chance.randint(8, 14), chance.randint(4, 8)) if chance.random() < 0.2 else (0, 0)
    return Mix(
        seed, _vms(chance, number, masks, fragile, culprit), Planted(culprit, onset, meant, load, work, rest)
    )


def _masks(chance: random.Random, number: int) -> list[int]:
    """Which ways each VM may fill: mostly all share all; sometimes some have ways of their own, the others the rest."""
    masks = [ALL_WAYS] * number
    if chance.random() < 0.35:
        free = ALL_WAYS
        for which in chance.sample(range(number), k=min(number - 1, chance.randint(1, 3))):
            ways = chance.randint(2, 3)
            own = ((1 << ways) - 1) << (free.bit_length() - ways)
            masks[which] = own
            free &= ~own
        masks = [free if mask == ALL_WAYS else mask for mask in masks]
    return masks


def _vms(
    chance: random.Random,
    number: int,
    masks: Sequence[int],
    fragile: Callable[[random.Random], Load] | None = None,
    culprit: int = -1,
) -> list[MixVm]:
    """The VMs: some are servers of one flavor that do the same.

    :param fragile: draws a load that suffers more than others do: of the VMs other than the culprit up to a third has
        such loads.
    """
    made: list[MixVm] = []
    for which in range(number):
        earlier = [vm for vm in made if vm.mask == masks[which]]
        if earlier and chance.random() < 0.25:
            # Another server of the same kind.
            twin = chance.choice(earlier)
            made.append(replace(twin, seed=chance.getrandbits(32), shift=chance.randint(0, 60)))
            continue
        share = 0.75 / number
        load = _load(chance, share)
        phases = [Phase(1000, load)]
        if chance.random() < 0.6:
            turns = [load, *(_change(chance, load, share, turn) for turn in range(1, chance.randint(2, 3)))]
            phases = [Phase(chance.randint(8, 30), turn) for turn in turns]
        made.append(
            MixVm(
                f"flavor-{chance.randint(1, 3)}",
                phases,
                masks[which],
                chance.getrandbits(32),
                chance.randint(0, 60),
                chance.choice((0.02, 0.05, 0.1)),
            )
        )
    if fragile is not None:
        of = [at for at in range(number) if at != culprit]
        for which in chance.sample(of, k=chance.randint(1, max(1, len(of) // 3))):
            phases = [replace(phase, load=replace(fragile(chance), place=phase.load.place)) for phase in made[which].phases]
            made[which] = replace(made[which], phases=phases)
    return made


def _load(chance: random.Random, share: float) -> Load:
    kind = chance.choices((_hot, _keys, _batch, _light), (5, 3, 2, 2))[0]
    return kind(chance, share)


def _change(chance: random.Random, load: Load, share: float, turn: int) -> Load:
    """Another phase of a VM's work: a new one, or the old one with another working set or at another pace."""
    kind = chance.random()
    if kind < 0.35:
        return replace(_load(chance, share), place=turn)
    if kind < 0.6:
        # The one change that hardly shows in references per instruction.
        return replace(load, size=load.size * chance.uniform(0.4, 1.5), place=turn)
    if kind < 0.8:
        return replace(load, instructions=load.instructions * chance.choice((0.5, 0.7, 1.5, 2.0)))
    return replace(load, idle_ns=load.idle_ns + chance.uniform(20, 300))


def _hot(chance: random.Random, share: float) -> Load:
    """A working set that fits beside those of the others, used all over."""
    return Load(
        chance.choice((Pattern.WALK, Pattern.RANDOM)),
        size=share * chance.uniform(0.4, 1.1),
        instructions=chance.uniform(15, 80),
        idle_ns=chance.choice((0.0, chance.uniform(0, 60))),
        overlap=chance.uniform(1, 2),
        stores=chance.uniform(0, 0.3),
    )


def _keys(chance: random.Random, share: float) -> Load:
    """A store of keys: more than its share of the cache, most of it seldom used."""
    return Load(
        Pattern.ZIPF,
        size=share * chance.uniform(1, 5),
        instructions=chance.uniform(40, 200),
        idle_ns=chance.uniform(0, 120),
        overlap=chance.uniform(1, 2),
        exponent=chance.uniform(0.8, 1.2),
        stores=chance.uniform(0, 0.3),
    )


def _batch(chance: random.Random, share: float) -> Load:
    """Data that is read once, with much work on each line."""
    return Load(
        Pattern.STREAM,
        size=40.0,
        instructions=chance.uniform(400, 1500),
        idle_ns=chance.uniform(0, 400),
        overlap=chance.uniform(4, 10),
        stores=chance.uniform(0, 0.3),
    )


def _light(chance: random.Random, share: float) -> Load:
    """Hardly anything."""
    return Load(
        Pattern.RANDOM,
        size=share * chance.uniform(0.05, 0.3),
        instructions=chance.uniform(100, 400),
        idle_ns=chance.uniform(300, 2000),
        overlap=1.5,
    )


def _held(chance: random.Random) -> Load:
    """A large working set that fits, used so seldom that others' lines push it out."""
    return Load(
        chance.choice((Pattern.WALK, Pattern.RANDOM, Pattern.RANDOM)),
        size=chance.uniform(0.08, 0.35),
        instructions=chance.uniform(15, 80),
        idle_ns=chance.uniform(0, 150),
        overlap=chance.uniform(1, 1.5),
        stores=chance.uniform(0, 0.3),
    )


def _hungry(chance: random.Random) -> Load:
    """Misses that no cache of this size spares: what they cost depends on the channel."""
    if chance.random() < 0.5:
        return Load(
            Pattern.RANDOM,
            size=chance.uniform(1.5, 6),
            instructions=chance.uniform(20, 150),
            idle_ns=chance.uniform(0, 60),
            overlap=chance.uniform(1, 2),
            stores=chance.uniform(0, 0.3),
        )
    return Load(
        Pattern.STREAM,
        size=40.0,
        instructions=chance.uniform(60, 300),
        idle_ns=chance.uniform(0, 60),
        overlap=chance.uniform(2, 6),
        stores=chance.uniform(0, 0.3),
    )


def _flood(chance: random.Random) -> Load:
    """A stream that fills the cache with lines that nobody wants again."""
    return Load(
        Pattern.STREAM,
        size=40.0,
        instructions=chance.uniform(15, 60),
        overlap=chance.uniform(4, 10),
        stores=chance.uniform(0, 0.3),
    )


def _giant(chance: random.Random) -> Load:
    """A working set of the cache's size or more."""
    return Load(
        chance.choice((Pattern.RANDOM, Pattern.WALK)),
        size=chance.uniform(0.9, 3.0),
        instructions=chance.uniform(8, 30),
        overlap=chance.uniform(2, 8),
        stores=chance.uniform(0, 0.3),
    )


def _torrent(chance: random.Random) -> Load:
    """As much of memory as the channel gives."""
    return Load(
        Pattern.STREAM,
        size=40.0,
        instructions=chance.uniform(4, 16),
        overlap=chance.uniform(20, 60),
        stores=chance.uniform(0, 0.5),
    )
