# SPDX-License-Identifier: Apache-2.0
"""Which items a case becomes: one for each machine that has what it needs, kernel and target."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance import needs
from tests.conformance.machines import KERNEL, PAIRS, SIMULATOR, Pair
from tests.kernel.lab.pair import Pair as GuestPair

GUEST = "VMQOS_GUEST"
"""The environment variable that is set inside the lab's guest: ``machine:kernel``."""

ONLY = "VMQOS_CONFORMANCE_ONLY"
"""The environment variable that names the one place to be tried, such as ``milan-6.12-simulator``: quicker than ``-k``,
because the other items are not even made."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where a case is tried.

    :ivar target: ``simulator`` or ``kernel``.
    """

    pair: Pair
    target: str

    def __str__(self) -> str:
        return f"{self.pair}-{self.target}"


def everywhere() -> list[Where]:
    """Where cases are tried: inside a guest, there alone."""
    guest = os.environ.get(GUEST)
    if guest is not None:
        return [Where(Pair(*guest.split(":")), KERNEL)]
    places = [Where(pair, target) for pair in PAIRS for target in (SIMULATOR, KERNEL)]
    return [place for place in places if os.environ.get(ONLY, str(place)) == str(place)]


def without_place(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items of cases for which there is nothing to be tried here; pytest makes one of each and would skip it."""
    return [
        item
        for item in items
        if "where" in getattr(item, "fixturenames", ()) and not isinstance(_params(item).get("where"), Where)
    ]


def _params(item: pytest.Item) -> dict[str, Any]:
    found: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return found


def in_order(items: list[pytest.Item]) -> None:
    """Bring the items of a pair together, the comparison last: each pair is one guest's work."""
    pairs = {str(pair): number for number, pair in enumerate(PAIRS)}

    def place(item: pytest.Item) -> tuple[int, bool]:
        where = _params(item).get("where")
        pair = where.pair if isinstance(where, Where) else _params(item).get("pair")
        return pairs.get(str(pair), len(pairs)), not isinstance(where, Where)

    items.sort(key=place)


def generate(metafunc: pytest.Metafunc) -> None:
    """Parametrise a case, by ``where`` and, if it asks for one, by ``cache``."""
    if "where" not in metafunc.fixturenames:
        return
    wanted = [need for mark in metafunc.definition.iter_markers(needs.MARK) for need in mark.args]
    of_caches = "cache" in metafunc.fixturenames
    # The lab runs an item whose "guest_machine" is a machine in that guest.
    metafunc.fixturenames.append("guest_machine")
    params = []
    for where in everywhere():
        profile = where.pair.profile
        if not all(need(profile) for need in wanted):
            continue
        if of_caches:
            for cache in needs.caches_of(profile):
                params.append(_param(where, where, _guest(where), cache, name=f"{where}-{cache.name}"))
        else:
            params.append(_param(where, where, _guest(where), name=str(where)))
    metafunc.parametrize("where, guest_machine, cache" if of_caches else "where, guest_machine", params)


def _param(where: Where, *values: Any, name: str) -> Any:
    # One process has all of a pair's items, so that it can compare their recordings.
    return pytest.param(*values, id=name, marks=pytest.mark.xdist_group(group(where.pair)))


def _guest(where: Where) -> GuestPair | None:
    return GuestPair(where.pair.machine, where.pair.kernel) if where.target == KERNEL else None


def group(pair: Pair) -> str:
    """The name of a pair's group for pytest-xdist: the lab's."""
    return GuestPair(pair.machine, pair.kernel).group


def case_and_target(nodeid: str) -> tuple[str, Pair, str] | None:
    """A case's name without where it was tried, and where that was; ``None`` for a test that is no case."""
    # pytest-xdist appends the name of the group.
    nodeid = nodeid.partition("@")[0]
    name, bracket, rest = nodeid.partition("[")
    for pair in PAIRS:
        for target in (SIMULATOR, KERNEL):
            here = f"{pair}-{target}"
            if bracket and rest.startswith((f"{here}]", f"{here}-")):
                return f"{name}[{rest[len(here) :].lstrip('-')}", pair, target
    return None
