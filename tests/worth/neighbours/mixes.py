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

from tests.worth.native import Load, Order
from tests.worth.neighbours.hardware import LINE, SERVER, Hardware

SECONDS = 85
"""How long a mix lasts."""
ONSET = (30, 45)
"""When a planted culprit begins, at the earliest and at the latest."""
SIZE, WAYS = SERVER.size, SERVER.ways
ALL_WAYS = (1 << WAYS) - 1


@dataclass(frozen=True, slots=True)
class Work:
    """What a VM does for a while.

    :ivar load: while it runs.
    :ivar busy: the share of time for which it runs, more than 0 to 1.
    :ivar turn: seconds in which it runs once and is idle once.
    """

    load: Load
    busy: float = 1.0
    turn: float = 0.2

    @property
    def loads(self) -> list[Load]:
        """As a machine is told."""
        if self.busy >= 1:
            return [self.load]
        rest = Load(Order.IDLE, seconds=self.turn * (1 - self.busy))
        return [replace(self.load, seconds=self.turn * self.busy), rest]


@dataclass(frozen=True, slots=True)
class Phase:
    """Work for some seconds."""

    seconds: int
    work: Work


@dataclass(frozen=True, slots=True)
class MixVm:
    """One VM.

    :ivar phases: what it does in turns; the first turn begins ``shift`` seconds before the mix.
    :ivar mask: the ways that it may fill.
    """

    flavor: str
    phases: Sequence[Phase]
    mask: int
    seed: int
    shift: int = 0

    def work(self, second: int) -> Work:
        """What it does in a second of the mix."""
        turn = (second + self.shift) % sum(phase.seconds for phase in self.phases)
        for phase in self.phases:
            turn -= phase.seconds
            if turn < 0:
                break
        return phase.work


@dataclass(frozen=True, slots=True)
class Planted:
    """The culprit.

    :ivar vm: which one it is.
    :ivar onset: the second in which it begins.
    :ivar meant: ``cache`` or ``bandwidth``: what it was made for.
    :ivar work: what it does from then on.
    :ivar rest: seconds in which it pauses after each ``strain`` seconds; 0: it does not pause.
    """

    vm: int
    onset: int
    meant: str
    work: Work
    strain: int = 0
    rest: int = 0

    def at_it(self, second: int) -> bool:
        """Whether it does so in a second of the mix."""
        since = second - self.onset
        return since >= 0 and (not self.rest or since % (self.strain + self.rest) < self.strain)


@dataclass(frozen=True, slots=True)
class Mix:
    """VMs on one host."""

    seed: int
    vms: Sequence[MixVm]
    planted: Planted | None = None
    seconds: int = SECONDS
    hardware: Hardware = SERVER

    def work(self, vm: int, second: int, planted: bool = True) -> Work:
        """What a VM does in a second; ``planted``: whether the culprit does what it was planted for."""
        culprit = self.planted
        if planted and culprit is not None and culprit.vm == vm and culprit.at_it(second):
            return culprit.work
        return self.vms[vm].work(second)


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
    masks = _masks(chance, number)
    if seed % 2 == 0:
        # It fills ways of all others.
        masks[culprit] = ALL_WAYS
        work = chance.choice((_flood, _giant))(chance)
        fragile, meant = _held, "cache"
    else:
        # It has few ways, so what it does to others is mostly not done in the cache.
        own = (1 << chance.randint(1, 2)) - 1
        masks[culprit] = own
        if chance.random() < 0.5:
            masks = [mask if at == culprit else mask & ~own or mask for at, mask in enumerate(masks)]
        work = _torrent(chance)
        fragile, meant = _hungry, "bandwidth"
    strain, rest = (chance.randint(8, 14), chance.randint(4, 8)) if chance.random() < 0.2 else (0, 0)
    vms = _vms(chance, number, masks, fragile, culprit)
    return Mix(seed, vms, Planted(culprit, onset, meant, work, strain, rest))


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
    fragile: Callable[[random.Random], Work] | None = None,
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
        work = _work(chance, share)
        phases = [Phase(1000, work)]
        if chance.random() < 0.6:
            turns = [work, *(_change(chance, work, share) for _ in range(chance.randint(1, 2)))]
            phases = [Phase(chance.randint(8, 30), turn) for turn in turns]
        flavor = f"flavor-{chance.randint(1, 3)}"
        made.append(MixVm(flavor, phases, masks[which], chance.getrandbits(32), chance.randint(0, 60)))
    if fragile is not None:
        of = [at for at in range(number) if at != culprit]
        for which in chance.sample(of, k=chance.randint(1, max(1, len(of) // 3))):
            phases = [replace(phase, work=fragile(chance)) for phase in made[which].phases]
            made[which] = replace(made[which], phases=phases)
    return made


def _work(chance: random.Random, share: float) -> Work:
    kind = chance.choices((_hot, _keys, _batch, _light), (5, 3, 2, 2))[0]
    return kind(chance, share)


def _change(chance: random.Random, work: Work, share: float) -> Work:
    """Another phase of a VM's work: a new one, or the old one with another working set or at another pace."""
    kind, load = chance.random(), work.load
    if kind < 0.35:
        return _work(chance, share)
    if kind < 0.6:
        # The one change that does not show in references per instruction.
        return replace(work, load=replace(load, size=_bytes(load.size / SIZE * chance.uniform(0.4, 1.5))))
    if kind < 0.8:
        more = max(2, round(load.instructions * chance.choice((0.5, 0.7, 1.5, 2.0))))
        return replace(work, load=replace(load, instructions=more))
    return replace(work, busy=work.busy * chance.uniform(0.2, 0.8))


def _bytes(share: float) -> int:
    """A share of the cache."""
    return max(64 * LINE, round(share * SIZE / LINE) * LINE)


def _turn(chance: random.Random) -> float:
    return round(chance.uniform(0.03, 0.12), 3)


def _hot(chance: random.Random, share: float) -> Work:
    """A working set that fits beside those of the others, used all over."""
    order = chance.choice((Order.SEQUENTIAL, Order.SHUFFLED, Order.RANDOM))
    load = Load(
        order,
        _bytes(share * chance.uniform(0.4, 1.1)),
        instructions=chance.randint(15, 80),
        stores=chance.uniform(0, 0.3),
        overlap=chance.randint(1, 2),
    )
    return Work(load, chance.choice((1.0, chance.uniform(0.3, 1))), _turn(chance))


def _keys(chance: random.Random, share: float) -> Work:
    """A store of keys: more than its share of the cache, most of it seldom used."""
    load = Load(
        Order.ZIPF,
        _bytes(share * chance.uniform(1, 5)),
        instructions=chance.randint(40, 200),
        stores=chance.uniform(0, 0.3),
        overlap=chance.randint(1, 2),
        exponent=chance.uniform(0.8, 1.2),
    )
    return Work(load, chance.uniform(0.3, 1), _turn(chance))


def _batch(chance: random.Random, share: float) -> Work:
    """Data that are read once, with much work on each line."""
    load = Load(
        Order.ENDLESS,
        instructions=chance.randint(400, 1500),
        stores=chance.uniform(0, 0.3),
        overlap=chance.randint(4, 10),
    )
    return Work(load, chance.uniform(0.4, 1), _turn(chance))


def _light(chance: random.Random, share: float) -> Work:
    """Hardly anything."""
    load = Load(Order.RANDOM, _bytes(share * chance.uniform(0.05, 0.3)), instructions=chance.randint(100, 400))
    return Work(load, chance.uniform(0.05, 0.3), _turn(chance))


def _held(chance: random.Random) -> Work:
    """A large working set that fits, used so seldom that others' lines push it out."""
    load = Load(
        chance.choice((Order.SHUFFLED, Order.RANDOM, Order.RANDOM)),
        _bytes(chance.uniform(0.08, 0.35)),
        instructions=chance.randint(15, 80),
        stores=chance.uniform(0, 0.3),
    )
    return Work(load, chance.uniform(0.3, 1), _turn(chance))


def _hungry(chance: random.Random) -> Work:
    """Misses that no cache of this size spares: what they cost depends on the channel."""
    if chance.random() < 0.5:
        load = Load(
            Order.RANDOM,
            _bytes(chance.uniform(1.5, 6)),
            instructions=chance.randint(20, 150),
            stores=chance.uniform(0, 0.3),
            overlap=chance.randint(1, 2),
        )
    else:
        load = Load(
            Order.ENDLESS,
            instructions=chance.randint(60, 300),
            stores=chance.uniform(0, 0.3),
            overlap=chance.randint(2, 6),
        )
    return Work(load, chance.uniform(0.5, 1), _turn(chance))


def _flood(chance: random.Random) -> Work:
    """A stream that fills the cache with lines that nobody wants again."""
    load = Load(
        Order.ENDLESS,
        instructions=chance.randint(15, 60),
        stores=chance.uniform(0, 0.3),
        overlap=chance.randint(4, 10),
    )
    return Work(load)


def _giant(chance: random.Random) -> Work:
    """A working set of the cache's size or more."""
    load = Load(
        chance.choice((Order.RANDOM, Order.SHUFFLED)),
        _bytes(chance.uniform(0.9, 3.0)),
        instructions=chance.randint(8, 30),
        stores=chance.uniform(0, 0.3),
        overlap=chance.randint(2, 8),
    )
    return Work(load)


def _torrent(chance: random.Random) -> Work:
    """As much of memory as the channel gives."""
    load = Load(
        Order.ENDLESS,
        instructions=chance.randint(4, 16),
        stores=chance.uniform(0, 0.5),
        overlap=chance.randint(20, 60),
    )
    return Work(load)
