# SPDX-License-Identifier: Apache-2.0
"""Others on the kernel's own resctrl: what is theirs stays as it is, and ours gets out of the way or says why not."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_coexistence import (
    reserving,
    test_a_settled_agent_writes_nothing,
    test_a_vm_moves_out_of_the_way_of_a_foreign_group,
    test_a_vm_that_can_not_get_out_of_the_way_names_who_is_in_it,
    test_reserved_ways_are_nobodys,
    test_tasks_in_a_foreign_group_are_left_there,
    test_the_kernel_itself_keeps_others_out,
    unguarded,
)
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, EXCLUSIVE_4, SHARED_3, all_in, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeVm, WaitFor
from tests.kernel.agent import foreign
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tests.kernel.agent.witness import Step, Witness
from tools.lab import vms
from tools.lab.agent import Agent

pytestmark = pytest.mark.guest(machines=("cascade-lake",), kernels=("6.12",))


def test_groups_of_pqos_are_never_touched(
    resctrl: KernelResctrl, tree: Tree, agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    # pqos makes every class there can be, and has all ways in all of them.
    subprocess.run(["pqos", "--iface=os", "-e", "llc:1=0x3"], check=True, capture_output=True)
    subprocess.run(["pqos", "--iface=os", "-a", f"pid:1={os.getpid()}"], check=True, capture_output=True)
    classes = tree.groups()
    assert classes == [f"COS{number}" for number in sorted(range(1, len(classes) + 1), key=str)]
    before = foreign.belongings(resctrl.root, classes)
    vm = make_vm(EXCLUSIVE_2)
    assert "CLOSID" in wait_for_vm(vm, "pending")["reason"]
    assert foreign.belongings(resctrl.root, classes) == before
    # What an operator does: give one class up, and keep the others off two ways.
    os.rmdir(resctrl.root / "COS7")
    assert "COS" in wait_for_vm(vm, "pending", ways_requested=2)["reason"]
    theirs = [name for name in classes if name != "COS7"]
    for name in theirs:
        subprocess.run(
            ["pqos", "--iface=os", "-e", "llc:1=0x3"] if name == "COS1" else ["true"], check=True, capture_output=True
        )
        foreign.set_masks(resctrl.root, name, 0x3)
    before = foreign.belongings(resctrl.root, theirs)
    wait_for_vm(vm, "kept")
    assert not list(tree.violations([group(vm)]))
    vm.change_flavor(vms.Flavor("bigger", EXCLUSIVE_4))
    wait_for_vm(vm, "kept", ways_requested=4)
    vm.change_flavor(vms.Flavor("nothing"))
    wait_for_vm(vm, "none", tasks_in_place=len(vm.tasks()))
    assert foreign.belongings(resctrl.root, theirs) == before


def test_monitoring_by_pqos_goes_on(
    resctrl: KernelResctrl, agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    with monitoring_by_pqos() as pqos:
        wait_for(lambda: bool(theirs_in(resctrl.root)), "pqos having its monitoring groups")
        theirs = [f"mon_groups/{name}" for name in theirs_in(resctrl.root)]
        before = foreign.belongings(resctrl.root, theirs)
        vm = make_vm(EXCLUSIVE_2)
        wait_for_vm(vm, "kept")
        vm.change_flavor(vms.Flavor("shared", SHARED_3))
        wait_for_vm(vm, "kept", policy="shared")
        vm.change_flavor(vms.Flavor("nothing"))
        wait_for_vm(vm, "none", policy=None)
        assert foreign.belongings(resctrl.root, theirs) == before
        assert pqos.poll() is None


@contextmanager
def monitoring_by_pqos() -> Iterator[subprocess.Popen[bytes]]:
    """pqos, watching the occupancy of one CPU each second."""
    command = ["pqos", "--iface=os", "--mon-core=llc:0", "--mon-interval=10", "--mon-time=inf"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def theirs_in(root: Path) -> list[str]:
    """The default group's monitoring groups that are not ours."""
    return sorted(name for name in os.listdir(root / "mon_groups") if not name.startswith("vmqos."))


def test_a_foreign_group_in_the_middle_of_the_agents_work_is_met_with_another_plan(
    resctrl: KernelResctrl, witness: Witness, tree: Tree, agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm()
    wait_for_vm(vm, "none")
    for number in range(1, 6):
        meddler = Meddler(resctrl, before_write=number)
        with meddling(witness, meddler):
            vm.change_flavor(vms.Flavor("exclusive", EXCLUSIVE_4))
            wait_for_vm(vm, "kept")
        assert meddler.done, f"there was no write of number {number}"
        assert foreign.belongings(resctrl.root, ["foreign"]) == meddler.made
        assert not list(tree.violations([group(vm)]))
        assert all_in(tree, group(vm), vm)
        vm.change_flavor(vms.Flavor("nothing"))
        wait_for_vm(vm, "none", policy=None)
        assert foreign.belongings(resctrl.root, ["foreign"]) == meddler.made
        os.rmdir(resctrl.root / "foreign")


class Meddler:
    """Makes a group before a certain write of the agent's, on the lowest ways, without asking for the lock.

    :ivar made: the group as it was left.
    :ivar done: whether it was made.
    """

    def __init__(self, resctrl: KernelResctrl, before_write: int) -> None:
        self._resctrl = resctrl
        self._left = before_write
        self.done = False
        self.made: foreign.Belongings = {}

    def __call__(self, step: Step) -> None:
        self._left -= 1
        if self._left == 0:
            root = self._resctrl.root
            (root / "foreign").mkdir()
            # Where the kernel guards these ways already it refuses, and foreign has what the kernel gave it.
            with suppress(OSError):
                foreign.set_masks(root, "foreign", 0x3)
            self.made = foreign.belongings(root, ["foreign"])
            self.done = True


@contextmanager
def meddling(witness: Witness, meddler: Callable[[Step], None]) -> Iterator[None]:
    """Have ``meddler`` called before each write of the agent's, after what is looked at anyway."""
    look = witness.look

    def both(step: Step) -> None:
        if look is not None:
            look(step)
        meddler(step)

    witness.look = both
    try:
        yield
    finally:
        witness.look = look


def test_others_may_make_and_remove_groups_all_the_time(
    resctrl: KernelResctrl, tree: Tree, agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm()
    wait_for_vm(vm, "none")
    ended = threading.Event()
    turns: list[int] = []

    def race() -> None:
        names = [resctrl.root / f"racer-{number}" for number in range(3)]
        while not ended.is_set():
            for name in names:
                name.mkdir()
            # Nobody else may have removed one: rmdir would fail.
            for name in names:
                name.rmdir()
            turns.append(1)

    racer = threading.Thread(target=race)
    racer.start()
    try:
        for specs in (EXCLUSIVE_4, EXCLUSIVE_2, SHARED_3, EXCLUSIVE_4):
            vm.change_flavor(vms.Flavor("changed", specs))
            wait_for_vm(vm, "kept", ways_requested=int(specs["hw:cache_ways"]))
    finally:
        alive = racer.is_alive()
        ended.set()
        racer.join()
    assert alive and len(turns) > 3, "the racer had all its groups until the end"
    assert tree.groups() == [group(vm)]


__all__ = [
    "reserving",
    "test_a_settled_agent_writes_nothing",
    "test_a_vm_moves_out_of_the_way_of_a_foreign_group",
    "test_a_vm_that_can_not_get_out_of_the_way_names_who_is_in_it",
    "test_reserved_ways_are_nobodys",
    "test_tasks_in_a_foreign_group_are_left_there",
    "test_the_kernel_itself_keeps_others_out",
    "unguarded",
]
