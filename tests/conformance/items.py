# SPDX-License-Identifier: Apache-2.0
"""Which items a case becomes: one for each machine that has what it needs, kernel and target."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance import needs
from tests.conformance.machines import KERNEL, KERNEL_OF, PAIRS, PROFILE_OF, SIMULATED, SIMULATOR, TARGETS
from tests.kernel.lab.pair import INSIDE, Pair

CASES = "tests.conformance.cases"
"""The package of the cases."""

ONLY = "VMQOS_CONFORMANCE_ONLY"
"""The environment variable that names the one place to be tried, such as ``milan-6.12-simulator``: quicker than ``-k``,
because the other items are not even made."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where a case is tried.

    :ivar target: one of :data:`.TARGETS`.
    """

    pair: Pair
    target: str

    def __str__(self) -> str:
        return f"{self.pair}-{self.target}"


def everywhere() -> list[Where]:
    """Where cases are tried: inside a guest, there alone.

    :raises pytest.UsageError: if :data:`ONLY` names no place.
    """
    if INSIDE is not None:
        return [Where(INSIDE, KERNEL)]
    places = [Where(pair, target) for pair in PAIRS for target in TARGETS]
    places += [Where(pair, SIMULATOR) for pair in SIMULATED]
    only = os.environ.get(ONLY)
    if only is None:
        return places
    chosen = [place for place in places if str(place) == only]
    if not chosen:
        raise pytest.UsageError(f"{ONLY}={only} is no place; there are: {', '.join(map(str, places))}")
    return chosen


def pairs_of(case: pytest.Item) -> list[Pair]:
    """The machines and kernels that have what a case needs."""
    of_machine = [need for mark in case.iter_markers(needs.MACHINE) for need in mark.args]
    of_kernel = [mark.args for mark in case.iter_markers(needs.KERNEL)]
    return [
        pair
        for pair in (*PAIRS, *SIMULATED)
        if all(need(PROFILE_OF[pair.machine]) for need in of_machine)
        and all(difference.is_in(KERNEL_OF[pair.kernel].version) == newer for difference, newer in of_kernel)
    ]


def generate(metafunc: pytest.Metafunc) -> None:
    """Parametrise a case, by ``where`` and, if it asks for one, by ``cache``.

    :raises pytest.Collector.CollectError: if it would be tried nowhere, or asks for no resctrl.
    """
    if "where" not in metafunc.fixturenames:
        if metafunc.module.__package__ == CASES:
            raise pytest.Collector.CollectError(f"{metafunc.function.__name__} asks for neither 'rdt' nor 'bare'")
        return
    pairs = pairs_of(metafunc.definition)
    if not pairs:
        raise pytest.Collector.CollectError(f"nobody has what {metafunc.function.__name__} needs")
    of_caches = "cache" in metafunc.fixturenames
    # The lab runs an item whose "guest_machine" is a machine in that guest.
    metafunc.fixturenames.append("guest_machine")
    params = []
    for where in everywhere():
        if where.pair not in pairs:
            continue
        guest = where.pair if where.target == KERNEL else None
        if of_caches:
            for cache in needs.caches_of(PROFILE_OF[where.pair.machine]):
                params.append(_param(where, where, guest, cache, name=f"{where}-{cache.name}"))
        else:
            params.append(_param(where, where, guest, name=str(where)))
    metafunc.parametrize("where, guest_machine, cache" if of_caches else "where, guest_machine", params)


def without_place(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items of cases for which there is nothing to be tried here; pytest makes one of each and would skip it."""
    return [
        item
        for item in items
        if "where" in getattr(item, "fixturenames", ()) and not isinstance(_params(item).get("where"), Where)
    ]


def in_order(items: list[pytest.Item]) -> None:
    """Bring the items of a pair together, the comparison last: each pair is one guest's work."""
    pairs = {pair: number for number, pair in enumerate((*PAIRS, *SIMULATED))}

    def place(item: pytest.Item) -> tuple[int, bool]:
        where = _params(item).get("where")
        pair = where.pair if isinstance(where, Where) else _params(item).get("pair")
        return pairs[pair] if pair in pairs else len(pairs), not isinstance(where, Where)

    items.sort(key=place)


def case_and_place(nodeid: str) -> tuple[str, Where] | None:
    """A case's name without where it was tried, and where that was; ``None`` for a test that is no case.

    :raises ValueError: if it is a case and does not say where.
    """
    # pytest-xdist appends the name of the group.
    nodeid = nodeid.partition("@guest-")[0]
    name, bracket, rest = nodeid.partition("[")
    for pair in (*PAIRS, *SIMULATED):
        for target in TARGETS:
            here = f"{pair}-{target}"
            if bracket and rest.startswith((f"{here}]", f"{here}-")):
                return f"{name}[{rest[len(here) :].lstrip('-')}", Where(pair, target)
    if f"{CASES.replace('.', '/')}/" in name and "::" in name:
        raise ValueError(f"{nodeid} does not begin its parameters with a place")
    return None


def _param(where: Where, *values: Any, name: str) -> Any:
    # One process has all of a pair's items, so that it can compare their recordings.
    return pytest.param(*values, id=name, marks=pytest.mark.xdist_group(where.pair.group))


def _params(item: pytest.Item) -> dict[str, Any]:
    found: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return found
