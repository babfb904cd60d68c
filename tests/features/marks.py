# SPDX-License-Identifier: Apache-2.0
"""The mark of tests that show a feature, as a plugin of pytest's; ``tests/conftest.py`` loads it.

::

    @pytest.mark.feature("cdp")
    def test_code_and_data_have_ways_of_their_own(agent, make_vm): ...

    @pytest.mark.feature("cdp", kept=False)
    def test_without_cdp_a_vm_waits_and_is_told_the_command(agent, make_vm): ...

With ``kept=False`` the test shows that the feature is refused with a reason, because the machine lacks it or resctrl is
not mounted for it. Where a test runs is known from its guest or from its simulator; ``machine="broadwell"`` is for one
that has a simulator of its own. A mark at the test stands before one of that feature at its module.

The report of a test tells what it shows, so that whoever counts need not have collected it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.features.place import Place
from tests.kernel.lab.pair import INSIDE, Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "feature"
PROPERTY = "feature"
"""The property of a report: name, whether it was kept, and the fields of a :class:`.Place`."""

SIMULATED = "cascade-lake"
"""The machine of a test that asks for no other (``tests/functional/conftest.py``)."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "feature(name, kept=True, machine=None): shows the feature, or why there is none (tests.features)"
    )
    if INSIDE is None and not hasattr(config, "workerinput"):
        from tests.counted.counting import Counting
        from tests.features.matrix import PAGES

        for page in PAGES:
            config.pluginmanager.register(Counting(config, page))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.user_properties.extend((PROPERTY, [name, kept, *place]) for name, kept, place in shown_by(item))


def shown_by(item: pytest.Item) -> Iterator[tuple[str, bool, Place]]:
    """The features that a test shows: name, whether it is kept, and where.

    :raises pytest.UsageError: if there is no such feature, or the machine has not what it would take to keep it.
    """
    seen: set[str] = set()
    for mark in item.iter_markers(MARK):
        name, kept, machine = _read(*mark.args, **mark.kwargs)
        if name not in seen:
            seen.add(name)
            place = _place(item, machine)
            if INSIDE is None:
                _check(item, name, kept, place)
            yield name, kept, place


def _read(name: str, kept: bool = True, machine: str | None = None) -> tuple[str, bool, str | None]:
    return name, kept, machine


def _place(item: pytest.Item, machine: str | None) -> Place:
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    guest = params.get("guest_machine")
    if isinstance(guest, Pair):
        return Place("kernel", guest.kernel, guest.machine)
    from vmqos.simulator.hardware.profiles import PROFILES

    wanted = machine or params.get("simulator", SIMULATED)
    name = wanted if isinstance(wanted, str) else wanted[0]
    return Place("simulator", PROFILES[name].kernel.version, name)


def _check(item: pytest.Item, name: str, kept: bool, place: Place) -> None:
    from tests.features.catalog import FEATURES
    from tests.features.machines import PROFILE_AT

    if name not in FEATURES:
        raise pytest.UsageError(f"{item.nodeid}: there is no feature {name!r}; there are: {', '.join(FEATURES)}")
    if kept and not FEATURES[name].is_on(PROFILE_AT[place]):
        raise pytest.UsageError(f"{item.nodeid}: {place.machine} has not {FEATURES[name].needs}: is it kept=False?")
