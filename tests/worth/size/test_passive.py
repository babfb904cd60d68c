# SPDX-License-Identifier: Apache-2.0
"""What the past of a few VMs tells, beside the truth; ``python -m tests.worth size_passive`` watches hundreds."""

from __future__ import annotations

import pytest

from tests.worth.native import Load, Order
from tests.worth.sections.size import POINTS
from tests.worth.size.loads import SIZE, WALKS, WAYS, draw
from tests.worth.size.passive import watched

SEED = 100_000


def test_of_data_much_larger_than_the_cache_the_past_tells_the_curve() -> None:
    store = watched(draw(SEED)["key-value store, large"], SEED)
    assert not store.found.why_not and store.worst <= POINTS
    assert len(store.found.curve) >= 4 and min(store.found.curve) <= 9 and max(store.found.curve) == WAYS
    assert store.found.curve[min(store.found.curve)] > store.found.curve[WAYS] + POINTS


def test_of_a_stream_it_tells_that_ways_are_of_no_use() -> None:
    stream = watched(draw(SEED)["stream"], SEED)
    assert set(stream.found.curve.values()) == {1.0} and stream.found.knee == min(stream.found.curve)


@pytest.mark.parametrize("kind", ["walker, small", "walker, large", "random, fits"])
def test_of_a_vm_that_fits_it_tells_nothing(kind: str) -> None:
    walker = watched(draw(SEED)[kind], SEED)
    assert not walker.found.curve and "may be all that it wants" in walker.found.why_not


def test_of_a_walk_hardly_larger_than_the_cache_it_tells_nothing() -> None:
    """It fills nearly all, and misses; but with a way less it would miss everything."""
    walk = watched([Load(Order.SHUFFLED, int(1.2 * SIZE), WALKS)], SEED)
    assert not walk.found.curve
