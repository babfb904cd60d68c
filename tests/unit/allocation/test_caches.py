# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.allocation import caches


@pytest.mark.parametrize("number", [0, 1, 63, 1 << 31])
def test_the_caches_of_both_levels_are_told_apart(number: int) -> None:
    assert (caches.level(number), caches.id_of(number)) == (3, number)
    assert (caches.level(caches.l2(number)), caches.id_of(caches.l2(number))) == (2, number)


def test_one_level_is_taken_out_of_both() -> None:
    both = {1: "L3 1", 0: "L3 0", caches.l2(0): "L2 0", caches.l2(7): "L2 7"}
    assert caches.of_level(3, both) == {0: "L3 0", 1: "L3 1"}
    assert caches.of_level(2, both) == {0: "L2 0", 7: "L2 7"}
    assert caches.among(2, both) == {caches.l2(0), caches.l2(7)}
