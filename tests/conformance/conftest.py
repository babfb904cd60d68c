# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the cases: a resctrl of a machine, on the simulator or, in the lab's guest, on a kernel.

Every operation of a case is recorded; what both targets answered is compared at the end (``test_alike.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.comparison import RECORDING, Recordings
from tests.conformance.items import Where, generate, in_order, without_place
from tests.conformance.machines import SIMULATOR, profile_of
from tests.conformance.resctrl import Resctrl
from tests.conformance.table import PAGE
from tests.conformance.target import Target
from tests.conformance.tasks import Tasks
from tests.counted.counting import Counting
from tests.kernel.lab.pair import INSIDE

_RECORDINGS = pytest.StashKey[Recordings]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*functions): what a case needs of a machine (tests.conformance.needs)")
    config.addinivalue_line("markers", "needs_kernel(difference, newer): what it needs of a kernel")
    if INSIDE is not None:
        return
    config.stash[_RECORDINGS] = Recordings()
    config.pluginmanager.register(config.stash[_RECORDINGS])
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Counting(config, PAGE))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    nothing_to_try = set(without_place(items))
    items[:] = [item for item in items if item not in nothing_to_try]
    in_order(items)


@pytest.fixture(scope="session")
def recordings(pytestconfig: pytest.Config) -> Recordings:
    """What was recorded so far in this process."""
    return pytestconfig.stash[_RECORDINGS]


@pytest.fixture(scope="session")
def targets() -> Iterator[Callable[[Where], Target]]:
    """The machine of a place; it lasts for the session."""
    made: dict[Where, Target] = {}

    def target(where: Where) -> Target:
        if where not in made:
            made[where] = _make(where)
        return made[where]

    yield target
    for one in made.values():
        one.close()


@pytest.fixture
def bare(request: pytest.FixtureRequest, where: Where, targets: Callable[[Where], Target]) -> Iterator[Resctrl]:
    """A resctrl that is not mounted; the case mounts it, if it likes."""
    resctrl = Resctrl(targets(where), profile_of(where.pair))
    try:
        yield resctrl
        resctrl.clean_up()
    finally:
        request.node.user_properties.append((RECORDING, [one.as_json() for one in resctrl.recording]))


@pytest.fixture
def rdt(bare: Resctrl) -> Resctrl:
    """A resctrl that is mounted without options."""
    assert bare.mount() is None
    return bare


@pytest.fixture
def two(rdt: Resctrl) -> Resctrl:
    """The same with two groups, ``g`` and ``h``."""
    rdt.group("g")
    rdt.group("h")
    return rdt


@pytest.fixture
def tasks(bare: Resctrl) -> Iterator[Tasks]:
    """Tasks to be moved about; they end before resctrl is unmounted."""
    found = Tasks(bare.names)
    yield found
    found.end()


def _make(where: Where) -> Target:
    if where.target == SIMULATOR:
        from tests.conformance.simulator_target import SimulatorTarget

        return SimulatorTarget(profile_of(where.pair))
    if INSIDE is None:
        raise RuntimeError("this runs inside the lab's guest; is the lab's plugin loaded?")
    from tests.conformance.kernel_target import KernelTarget

    return KernelTarget()
