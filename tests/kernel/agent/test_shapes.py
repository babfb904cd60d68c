# SPDX-License-Identifier: Apache-2.0
"""Many caches, gaps, ways for devices, slow memory on the kernel's own resctrl: the functional tests of that name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional.agent import test_shapes as functional
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tools.lab.agent import Agent

pytestmark = pytest.mark.guest(pairs=("genoa-newest",))

AMD = pytest.mark.guest(machines=("milan", "genoa"))
GENOA = pytest.mark.guest(machines=("genoa",))


@pytest.fixture
def devices(resctrl: KernelResctrl) -> Iterator[None]:
    """Devices can be confined while the test lasts: umount leaves that as it is."""
    yield
    (resctrl.root / "info/L3/io_alloc").write_text("0\n")


@pytest.mark.feature("caches")
@pytest.mark.feature("confined")
@pytest.mark.feature("ways")
@AMD
def test_a_vm_pays_on_the_few_of_many_caches_that_it_can_run_on(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    functional.test_a_vm_pays_on_the_few_of_many_caches_that_it_can_run_on(agent, tree, make_vm, wait_for)


@pytest.mark.feature("gaps")
@AMD
def test_gaps_and_empty_masks_of_others_are_lived_with(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    functional.test_gaps_and_empty_masks_of_others_are_lived_with(agent, tree, make_vm, wait_for)


@pytest.mark.feature("io_alloc")
@pytest.mark.usefixtures("devices")
def test_ways_that_devices_are_confined_to_are_no_vms_and_their_class_is_gone(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    functional.test_ways_that_devices_are_confined_to_are_no_vms_and_their_class_is_gone(agent, tree, make_vm, wait_for)


@pytest.mark.feature("io_alloc")
@pytest.mark.usefixtures("devices")
def test_a_class_less_is_a_vm_less(make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor) -> None:
    functional.test_a_class_less_is_a_vm_less(make_agent, tree, make_vm, wait_for)


@pytest.mark.feature("smba")
@GENOA
def test_bandwidth_of_slow_memory_is_left_as_it_is(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    functional.test_bandwidth_of_slow_memory_is_left_as_it_is(agent, tree, make_vm, wait_for)
