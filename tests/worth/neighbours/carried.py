# SPDX-License-Identifier: Apache-2.0
"""What a guest can carry of a drawn mix: the same VMs, as far as the ROM of the VMs can do their work.

The ROM walks through memory in one way for ever (:mod:`tests.worth.loads`). So of a drawn mix

- sizes grow as the cache does, and a store of keys becomes random reads of the part that it often uses;
- nothing is written, and a VM waits for each line before it asks for the next one. A drawn culprit has several on their
  way at once; so it gets as many more cycles for each second (:func:`cycles`). Others have one on its way;
- a VM that has phases works in the first one, and goes on with a part of its pace in the others: :data:`PACE`. One that
  rests when the culprit begins, as in half of these mixes one would, could not be judged by any law;
- the culprit is stopped until its onset;
- ways of its own are a promise of the flavor. Nobody else fills these, the culprit neither.

Mixes of more than four VMs are left out, and those with a culprit of the memory channel: the channel of the emulated
machine counts in real time (``tests/kernel/plugin/channel.h``), and how fast the emulation is beside that, is chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.worth import loads
from tests.worth.native import Load, Order
from tests.worth.neighbours import mixes
from tests.worth.neighbours.hardware import GUEST, LINE, SERVER
from tests.worth.neighbours.mixes import ALL_WAYS, Mix, MixVm, Phase, Planted, Work

MOST_VMS = 4
SECONDS = 32
"""How long a mix lasts: the shortest in which insight has its samples on both sides of an onset, and some to spare."""
ONSET = 12
"""When a planted culprit begins, at the earliest."""
FASTER = 3
"""A drawn second is a third of one: of phases, and of what is left to the latest onset."""
OFTEN_USED = 3
"""A third of a store of keys is what it often uses."""
PACE = 0.4
"""Of a drawn VM's paces (``mixes._change``) about the middle."""
EVERY = 1 << 15
"""Accesses for one dot on a console, each of which takes the host some ten thousand instructions."""
STREAM = 8
"""What is read but once, is as large as so many caches."""

WALKS = {Order.SHUFFLED: "chase", Order.RANDOM: "random", Order.SEQUENTIAL: "stream", Order.ENDLESS: "stream"}
AN_ACCESS = {"chase": 8, "random": 24, "stream": 10}
"""Instructions of the ROM for an access without work, about: the compiler in the guest decides."""
A_TURN = 2
"""The same for one turn of its empty loop. How many an access took in the guest, is counted there."""
IDLE = Work(Load(Order.IDLE))


def drawn(kind: str, first: int) -> Iterator[tuple[int, Mix]]:
    """Seeds from one on with the mixes that a guest can carry.

    :param kind: ``planted`` or ``quiet``.
    """
    seed = first
    while True:
        mix = carried(mixes.planted(seed) if kind == "planted" else mixes.quiet(seed))
        if mix is not None:
            yield seed, mix
        seed += 1


def carried(mix: Mix) -> Mix | None:
    """A drawn mix as a guest can carry it; ``None`` where it can't."""
    planted = mix.planted
    if len(mix.vms) > MOST_VMS or (planted is not None and planted.meant != "cache"):
        return None
    culprit = planted.vm if planted is not None else -1
    own = [vm.mask for at, vm in enumerate(mix.vms) if at != culprit and _is_own(mix, at)]
    shared = ALL_WAYS
    for mask in own:
        shared &= ~mask
    vms = []
    for at, vm in enumerate(mix.vms):
        phases = [Phase(1000, IDLE)] if at == culprit else _phases(vm)
        vms.append(replace(vm, phases=phases, mask=vm.mask if vm.mask in own else shared, shift=vm.shift // FASTER))
    if planted is not None:
        onset = ONSET + (planted.onset - mixes.ONSET[0]) // FASTER
        planted = Planted(
            planted.vm, onset, planted.meant, _work(planted.work, is_culprit=True), planted.strain, planted.rest
        )
    return Mix(mix.seed, vms, planted, SECONDS, GUEST)


def promised(mix: Mix) -> list[int]:
    """How many ways the flavor of each VM promises; 0: none."""
    return [vm.mask.bit_count() if _is_own(mix, at) else 0 for at, vm in enumerate(mix.vms)]


def rom_load(load: Load) -> loads.Load:
    """What the ROM is told."""
    walk = WALKS[load.order]
    size = STREAM * GUEST.size if load.order is Order.ENDLESS else load.size
    return loads.Load(walk, size, every=EVERY, work=(load.instructions - AN_ACCESS[walk]) // A_TURN)


def cycles(work: Work) -> float:
    """How many seconds' cycles a VM gets for each second that it works so.

    One that would have several lines on their way at once waits for each by itself, and gets the time back.
    """
    load = work.load
    return (
        work.busy * (load.instructions + GUEST.memory_cycles) / (load.instructions + GUEST.memory_cycles / load.overlap)
    )


def load_of(mix: Mix, vm: int) -> Load:
    """What a VM does while it works: it does one thing only."""
    if mix.planted is not None and mix.planted.vm == vm:
        return mix.planted.work.load
    return mix.vms[vm].phases[0].work.load


def _is_own(mix: Mix, vm: int) -> bool:
    mask = mix.vms[vm].mask
    return mask != ALL_WAYS and mask.bit_count() <= 3 and not any(mask & one.mask for one in _others(mix, vm))


def _others(mix: Mix, vm: int) -> list[MixVm]:
    """All others but the culprit, who fills everybody's ways in a drawn mix."""
    culprit = mix.planted.vm if mix.planted is not None else -1
    return [one for at, one in enumerate(mix.vms) if at not in (vm, culprit)]


def _phases(vm: MixVm) -> list[Phase]:
    works, *others = vm.phases
    work = _work(works.work)
    if not others:
        return [Phase(works.seconds, work)]
    slower = max(max(1, other.seconds // FASTER) for other in others)
    # A VM that mostly rests would tell little.
    return [Phase(max(1, works.seconds), work), Phase(slower, replace(work, busy=PACE))]


def _work(work: Work, *, is_culprit: bool = False) -> Work:
    load = work.load
    size, order = load.size // LINE * LINE * (GUEST.size // SERVER.size), load.order
    if order is Order.ZIPF:
        size, order = max(LINE, size // OFTEN_USED // LINE * LINE), Order.RANDOM
    least = AN_ACCESS[WALKS[order]]
    turns = max(0, load.instructions - least) // A_TURN
    overlap = load.overlap if is_culprit else 1
    of_it = LINE if order is Order.ENDLESS else size
    return Work(Load(order, of_it, instructions=least + A_TURN * turns, overlap=overlap))
