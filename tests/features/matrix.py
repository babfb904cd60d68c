# SPDX-License-Identifier: Apache-2.0
"""The matrix of features and machines in the documentation, made from the counts of runs.

``doc/source/reference/features.rst`` includes it in three parts: what the features are, what a whole run of
``tests/functional`` showed on the simulator, and what one of ``tests/kernel`` showed in guests. ``python -m
tests.features.matrix`` writes them from what the last whole runs counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.machines import KERNEL, SIMULATOR
from tests.counted import page as counted
from tests.counted.page import CHECKOUT
from tests.counted.rst import joined, table, titled
from tests.features.catalog import FEATURES, Feature
from tests.features.machines import PROFILE_AT
from tests.features.marks import PROPERTY
from tests.features.place import Place

COMMAND = "python -m tests.features.matrix"
EXPLAINED = Path("doc/source/reference/features-explained.inc")
_HEAD = f".. This part is made by the tests: {COMMAND}\n"

KEPT, TOLD = "kept", "told"
"""How a feature may have been shown."""

_Counts = Mapping[tuple[str, str, Place], int]
"""How many tests showed a feature, in either way, at a place."""


def explained() -> str:
    """What the features are."""
    return joined([_HEAD, table(_features())])


def places(target: str, report: pytest.TestReport) -> Iterator[counted.Place]:
    """What a test that passed showed on a target."""
    for name, value in report.user_properties:
        # What comes from a guest has gone through JSON, which knows no tuples.
        if name == PROPERTY and isinstance(value, list | tuple):
            feature, kept, *place = value
            if place[0] == target:
                yield (feature, KEPT if kept else TOLD, *place)


def text(target: str, passed: counted.Passed) -> str:
    """The part of a target: a table for each kernel that runs in guests, or one for all that are simulated."""
    counts = {(feature, how, Place(*place)): count for (feature, how, *place), count in passed.items()}
    here = [place for place in PROFILE_AT if place.target == target]
    if target == SIMULATOR:
        return joined([_HEAD, titled("On the simulator", table(_matrix(here, counts, simulated=True)))])
    parts = [_HEAD]
    for kernel in dict.fromkeys(place.kernel for place in here):
        title = f"On Linux {kernel}" if kernel[0].isdigit() else f"On the {kernel} Linux"
        parts.append(titled(title, table(_matrix([place for place in here if place.kernel == kernel], counts))))
    return joined(parts)


PAGES = tuple(
    counted.Page(
        path=Path(f"doc/source/reference/features-{target}.inc"),
        counts=Path(f"doc/build/features-{target}.json"),
        suite=suite,
        places=partial(places, target),
        text=partial(text, target),
        command=COMMAND,
    )
    for target, suite in ((SIMULATOR, Path("tests/functional")), (KERNEL, Path("tests/kernel")))
)


def _features() -> Iterator[list[str]]:
    yield ["Feature", "What tests show of it", "What it needs"]
    for feature in FEATURES.values():
        yield [feature.title, feature.shown, feature.needs]


def _matrix(columns: list[Place], counts: _Counts, *, simulated: bool = False) -> Iterator[list[str]]:
    yield ["Feature", *(f"{at.machine} ({at.kernel})" if simulated else at.machine for at in columns)]
    for feature in FEATURES.values():
        yield [feature.title, *(_cell(feature, place, counts) for place in columns)]


def _cell(feature: Feature, place: Place, counts: _Counts) -> str:
    kept, told = (counts.get((feature.name, how, place), 0) for how in (KEPT, TOLD))
    parts = [f"{word} ({count})" for word, count in ((KEPT, kept), (TOLD, told)) if count]
    if not feature.is_on(PROFILE_AT[place]):
        parts.insert(0, "lacks it")
    return ", ".join(parts) or "not tried"


if __name__ == "__main__":
    (CHECKOUT / EXPLAINED).write_text(explained(), encoding="utf-8")
    counted.write_anew(*PAGES)
