# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a fresh resctrl and processes to put into its groups."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.functional.resctrl_client.mounted import ASKED_FOR_KERNEL, ON_KERNEL, Sleepers, kernels, simulated, sleepers
from vmqos.resctrl.filesystem import Filesystem

Mounted = Callable[..., AbstractContextManager[Filesystem]]

_numbers = itertools.count(1)

# The kernel's own resctrl has no such end.
collect_ignore = ["test_simulator_end_on_resctrl.py"] if ASKED_FOR_KERNEL else []


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Have the lab run every module here in its guests of that machine, with either kernel."""
    if ASKED_FOR_KERNEL and isinstance(collector, pytest.Module):
        collector.add_marker(pytest.mark.guest(machines=("cascade-lake",)))


@pytest.fixture
def mounted(request: pytest.FixtureRequest) -> Mounted:
    """Mounts a fresh resctrl with the given options, for as long as the ``with`` lasts."""
    if ON_KERNEL:
        return kernels
    from tools.lab.simulator import Simulator

    workspace = request.getfixturevalue("workspace")
    return lambda *options: simulated(
        Simulator(workspace, "cascade-lake", ",".join(options), name=f"client-{next(_numbers)}")
    )


@pytest.fixture
def fs(mounted: Mounted) -> Iterator[Filesystem]:
    """A fresh resctrl without mount options."""
    with mounted() as found:
        yield found


@pytest.fixture
def three_sleepers() -> Iterator[Sleepers]:
    """A process with three threads."""
    with sleepers(3) as found:
        yield found
