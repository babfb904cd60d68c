# SPDX-License-Identifier: Apache-2.0
"""The plugin's model and the few-line one are given the same accesses, and must say the same of each."""

from __future__ import annotations

import ctypes
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernel.cachemodel.library import Access, Extra, From, Geometry, Kind, Model, model
from tests.kernel.cachemodel.reference import Reference

CPUS, DOMAINS, RMIDS = 4, 2, 3
EVERYTHING = Extra(evictions=True)
PAGE = 64
"""Lines of a page."""

geometries = st.builds(
    Geometry,
    l2_sets=st.sampled_from((1, 2, 3)),
    l2_ways=st.integers(1, 4),
    l3_sets=st.sampled_from((1, 2, 5)),
    l3_ways=st.integers(0, 6),
)


def accesses(lines: int) -> st.SearchStrategy[Access]:
    """Any access, with any mask, also one of no ways and one with gaps."""
    return st.builds(
        lambda cpu, access: replace(access, cpu=cpu, domain=cpu * DOMAINS // CPUS),
        st.integers(0, CPUS - 1),
        st.builds(
            Access,
            line=st.integers(0, lines - 1),
            kind=st.sampled_from(Kind),
            l3_mask=st.integers(0, 0x3F),
            l2_mask=st.integers(0, 0xF),
            rmid=st.integers(0, RMIDS - 1),
        ),
    )


@settings(deadline=None, max_examples=200)
@given(geometry=geometries, parts=st.lists(st.lists(accesses(40), max_size=60), min_size=1, max_size=4))
def test_each_access_is_served_from_where_the_reference_says(
    replay: ctypes.CDLL, geometry: Geometry, parts: list[list[Access]]
) -> None:
    reference = Reference(geometry)
    with model(replay, geometry, cpus=CPUS, domains=DOMAINS, rmids=RMIDS, extra=EVERYTHING) as ours:
        served: list[From] = []
        for cpu, part in enumerate(parts):
            now = ours.run(part)
            assert now == reference.run(part)
            served += now
            ours.flush(cpu, cpu * DOMAINS // CPUS)
            reference.flush(cpu, cpu * DOMAINS // CPUS)
            _agree(ours, reference)
        _counted(ours, [access for part in parts for access in part], served)


@pytest.mark.parametrize("pattern", ["random", "stream", "stride", "zipf"])
def test_long_traces_of_several_classes_agree_to_the_last_access(replay: ctypes.CDLL, pattern: str) -> None:
    geometry = Geometry(l2_sets=16, l2_ways=4, l3_sets=93, l3_ways=11)
    trace = _trace(pattern, 30_000)
    reference = Reference(geometry)
    with model(replay, geometry, cpus=CPUS, domains=DOMAINS, rmids=RMIDS, extra=EVERYTHING) as ours:
        served = ours.run(trace)
        assert served == reference.run(trace)
        assert {From.L3, From.MEMORY} <= set(served)
        _agree(ours, reference)
        _counted(ours, trace, served)


@settings(deadline=None, max_examples=25)
@given(
    sample=st.integers(1, 5),
    sets=st.tuples(st.sampled_from((64, 128)), st.sampled_from((64, 192, 320))),
    seed=st.integers(0, 1 << 30),
)
def test_a_simulated_set_sees_what_it_would_see_if_all_were(
    replay: ctypes.CDLL, sample: int, sets: tuple[int, int], seed: int
) -> None:
    whole = Geometry(l2_sets=sets[0], l2_ways=2, l3_sets=sets[1], l3_ways=4)
    chance = random.Random(seed)
    trace = [
        Access(chance.randrange(40 * PAGE), chance.choice(list(Kind)), chance.choice((0xF, 0x3, 0x8)), rmid=n % RMIDS)
        for n in range(4_000)
    ]
    with model(replay, whole) as all_sets, model(replay, replace(whole, sample=sample)) as some:
        places = some.places(sample)
        seen = [access.line % PAGE in places for access in trace]
        expected = [where for where, wanted in zip(all_sets.run(trace), seen, strict=True) if wanted]
        assert len(places) == PAGE >> sample
        assert some.run([access for access, wanted in zip(trace, seen, strict=True) if wanted]) == expected
        assert sum(some.counts(rmid).data.total for rmid in range(RMIDS)) % (1 << sample) == 0


def _agree(ours: Model, reference: Reference) -> None:
    for domain in range(DOMAINS):
        for rmid in range(RMIDS):
            counts = ours.counts(rmid, domain)
            assert counts.occupancy == reference.occupancy(rmid, domain)
            assert counts.writebacks == reference.writebacks[domain, rmid]
            for of in range(RMIDS):
                assert ours.evicted(rmid, of, domain) == reference.evicted[domain, rmid, of]


def _counted(ours: Model, trace: Sequence[Access], served: Sequence[From]) -> None:
    """The counts are those of the trace."""
    expected = Counter(
        (access.domain, access.rmid, access.kind, where) for access, where in zip(trace, served, strict=True)
    )
    for domain in range(DOMAINS):
        for rmid in range(RMIDS):
            counts = ours.counts(rmid, domain)
            for kind, of_kind in zip(Kind, (counts.load, counts.store, counts.fetch), strict=True):
                found = (of_kind.l2, of_kind.l3, of_kind.memory)
                assert found == tuple(expected[domain, rmid, kind, where] for where in From)


def _trace(pattern: str, length: int) -> list[Access]:
    """Four CPUs take turns, each in a class of its own; masks change now and then."""
    chance = random.Random(pattern)
    masks = [0x7FF, 0x00F, 0x7F0, 0x001]
    trace = []
    for n in range(length):
        cpu = chance.randrange(CPUS)
        if n % 5_000 == 4_999:
            chance.shuffle(masks)
        line = {
            "random": chance.randrange(3_000),
            "stream": n % 2_500,
            "stride": n * 17 % 4_096,
            "zipf": int(3_000 * chance.random() ** 4),
        }[pattern]
        kind = chance.choices(tuple(Kind), (6, 3, 1))[0]
        trace.append(
            Access(cpu * 1_000_000 + line if cpu < 2 else line, kind, masks[cpu], 0xF, cpu, cpu // 2, cpu % RMIDS)
        )
    return trace
