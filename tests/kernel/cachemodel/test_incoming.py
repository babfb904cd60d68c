# SPDX-License-Identifier: Apache-2.0
"""Whose cache the memory of a VM goes through that comes from another host: what each choice costs the others.

The operator's guide has these figures (``[libvirt] incoming_memory`` in ``lifecycle.rst``). QEMU's thread copies each
line from a buffer of the kernel's, which is used again and again, to the VM's memory, which it touches once. The VM's
vCPUs do not run meanwhile.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator

import pytest

from tests.kernel.cachemodel.library import Access, Geometry, Kind, model

SETS, WAYS = 512, 11
GEOMETRY = Geometry(l2_sets=64, l2_ways=4, l3_sets=SETS, l3_ways=WAYS)
OWN, CLASS, DEFAULT = 0b11 << 9, 0b111 << 6, 0b111111
"""The ways of the VM that comes, of a shared class, and of the default group."""
BUFFER = SETS // 2
"""Lines of the kernel's buffer: half a way. A socket's usual one has some 200 KiB."""
STREAMED = 8 * WAYS * SETS
"""Lines of the VM's memory: the cache eight times over."""
NEIGHBOUR, INCOMING = 1, 2


def neighbour(mask: int, ways: float, chance: random.Random) -> Iterator[Access]:
    """A VM that uses so much memory, in no order."""
    while True:
        yield Access(chance.randrange(int(ways * SETS)), Kind.LOAD, mask, rmid=NEIGHBOUR)


def incoming(mask: int) -> Iterator[Access]:
    for line in range(STREAMED):
        yield Access(1_000_000 + line % BUFFER, Kind.LOAD, mask, cpu=1, rmid=INCOMING)
        yield Access(2_000_000 + line, Kind.STORE, mask, cpu=1, rmid=INCOMING)


def misses(replay: ctypes.CDLL, neighbours: int, ways: float, arrival: int | None) -> float:
    """The part of a neighbour's accesses that go to memory while the VM's memory comes.

    :param neighbours: the ways of the neighbour.
    :param ways: how much memory it uses, in ways.
    :param arrival: the ways of the threads that receive; ``None``: nothing comes.
    """
    works = neighbour(neighbours, ways, random.Random(7))
    with model(replay, GEOMETRY, cpus=2) as ours:
        ours.run([next(works) for _ in range(4 * WAYS * SETS)])
        before = ours.counts(NEIGHBOUR)
        # The neighbour runs on another CPU, as fast as the copying.
        if arrival is None:
            ours.run([next(works) for _ in range(STREAMED)])
        else:
            ours.run([access for copied in incoming(arrival) for access in (copied, next(works))])
        return (ours.counts(NEIGHBOUR) - before).l3_miss_ratio


@pytest.mark.parametrize(
    ("what", "mask", "working_set"),
    [("default group", DEFAULT, 4.0), ("same class", CLASS, 2.0)],
)
def test_a_neighbour_is_spared_where_memory_comes_through_ways_that_it_does_not_share(
    replay: ctypes.CDLL, what: str, mask: int, working_set: float
) -> None:
    found = {
        name: misses(replay, mask, working_set, arrival)
        for name, arrival in {"quiet": None, "own": OWN, "class": CLASS, "default": DEFAULT}.items()
    }
    print(f"neighbour in the {what}: " + ", ".join(f"{name} {miss:.1%}" for name, miss in found.items()))
    assert found["own"] == pytest.approx(found["quiet"], abs=0.005)
    beside = "default" if mask == DEFAULT else "class"
    assert found[beside] > found["quiet"] + 0.1
    assert found[({"default", "class"} - {beside}).pop()] == pytest.approx(found["quiet"], abs=0.005)
