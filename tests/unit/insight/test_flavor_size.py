# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping

import pytest

from vmqos.insight.flavor_size import FlavorSize, cost, flavor_size
from vmqos.insight.size import Size, knee


def of(curve: Mapping[int, float], *, is_counted: bool = True, is_steady: bool = True) -> Size:
    return Size(curve, {}, knee(curve), is_counted, is_steady)


TWO_DO = of({2: 0.1, 3: 0.1, 4: 0.1, 5: 0.1})
FOUR_DO = of({2: 0.9, 3: 0.5, 4: 0.2, 5: 0.18})
FIVE_AT_LEAST = of({2: 0.9, 3: 0.7, 4: 0.5, 5: 0.3})
CUT_OFF = of({2: 0.9, 3: 0.5})
CHANGED = of({2: 0.9, 3: 0.7, 4: 0.5, 5: 0.0}, is_steady=False)
GUESS = of({2: 1.0, 3: 0.2, 4: 0.2}, is_counted=False)


@pytest.mark.parametrize(
    ("sizes", "needs"),
    [
        ([TWO_DO], FlavorSize(2, 1, 0, False, True, True)),
        ([TWO_DO, FOUR_DO, TWO_DO], FlavorSize(4, 3, 2, False, True, True)),
        ([FOUR_DO, FOUR_DO], FlavorSize(4, 2, 0, False, True, True)),
        ([TWO_DO, FIVE_AT_LEAST], FlavorSize(5, 2, 1, True, True, True)),
        ([CUT_OFF, FOUR_DO, TWO_DO], FlavorSize(4, 3, 1, True, True, True)),
        ([TWO_DO, CHANGED], FlavorSize(2, 1, 0, False, True, True)),
        ([CHANGED], FlavorSize(5, 1, 0, False, True, False)),
        ([GUESS, TWO_DO], FlavorSize(3, 2, 1, False, False, True)),
    ],
    ids=[
        "one VM",
        "the greatest knee",
        "all need the same",
        "one may need more than was tried",
        "one that may need more has the smaller knee, and fewer may not do for it",
        "one that did other work does not count",
        "unless there is no other",
        "one is a guess",
    ],
)
def test_a_flavor_needs_what_its_vm_in_most_need_does(sizes: list[Size], needs: FlavorSize) -> None:
    assert flavor_size(sizes) == needs
    assert flavor_size(sizes[::-1]) == needs


@pytest.mark.parametrize(
    ("ways", "promised", "found"),
    [
        (4, [{0: 2, 1: 2}, {0: 2}], {0: 4, 1: 2}),
        (2, [{0: 2}, {0: 2}], {0: 0}),
        (3, [{0: 2}, {0: 6}], {0: -2}),
        (3, [{1: 2}, {0: 4}], {0: -1, 1: 1}),
        (3, [], {}),
    ],
)
def test_it_costs_what_each_vm_lacks_on_each_of_its_caches(
    ways: int, promised: list[dict[int, int]], found: dict[int, int]
) -> None:
    assert list(cost(ways, promised).items()) == list(found.items())
