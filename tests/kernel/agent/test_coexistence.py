# SPDX-License-Identifier: Apache-2.0
"""Others on the kernel's own resctrl: what is theirs stays as it is, and ours gets out of the way or says why not."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.functional.agent.conftest import WaitForVm, wait_until_told
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
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.kernel.agent import eyes, foreign
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tests.kernel.agent.registers import L3Registers
from tests.kernel.agent.witness import Step, Witness
from tools.lab import vms
from tools.lab.agent import Agent

pytestmark = [pytest.mark.guest(machines=("cascade-lake",), kernels=("6.12",)), pytest.mark.feature("ways")]

LOCK_TRIES = 10


def test_groups_of_pqos_are_never_touched(
    resctrl: KernelResctrl,
    registers: L3Registers,
    tree: Tree,
    make_agent: MakeAgent,
    make_vm: MakeVm,
    wait_for: WaitFor,
    sleeper: int,
) -> None:
    # pqos makes every class there can be.
    pqos("-e", "llc:1=0x3")
    classes = tree.groups()
    assert "COS1" in classes and all(name.startswith("COS") for name in classes)
    pqos("-e", ";".join(f"llc:{number}=0x3" for number in range(1, len(classes) + 1)))
    pqos("-a", f"pid:1={sleeper}")
    before = foreign.belongings(resctrl.root, classes)
    assert before["COS1"]["tasks"] == f"{sleeper}\n"
    vm = make_vm(EXCLUSIVE_2)
    agent = make_agent()
    agent.start()
    wait_until_told(agent, wait_for, vm, "pending", reason="CLOSID")
    assert foreign.belongings(resctrl.root, classes) == before
    # What an operator can do.
    os.rmdir(resctrl.root / "COS7")
    del before["COS7"]
    for specs in (EXCLUSIVE_2, EXCLUSIVE_4):
        vm.change_flavor(vms.Flavor("changed", specs))
        wait_until_told(agent, wait_for, vm, "kept", ways_requested=int(specs["hw:cache_ways"]))
        assert not list(eyes.faults(resctrl.root, registers, vm))
        assert not list(tree.violations([group(vm)]))
    vm.change_flavor(vms.Flavor("nothing"))
    wait_until_told(agent, wait_for, vm, "none", policy=None)
    assert foreign.belongings(resctrl.root, before) == before


def pqos(*arguments: str) -> None:
    """Run pqos on the kernel's resctrl; it waits for the lock for about a second only, and is then asked again."""
    for _ in range(LOCK_TRIES):
        ran = subprocess.run(["pqos", "--iface=os", *arguments], capture_output=True, text=True, check=False)
        if "Failed to acquire lock" not in ran.stdout + ran.stderr:
            break
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "infinity"]) as process:
        yield process.pid
        process.kill()


@pytest.mark.long
def test_monitoring_groups_of_pqos_are_never_touched(
    resctrl: KernelResctrl,
    tree: Tree,
    agent: Agent,
    make_vm: MakeVm,
    wait_for_vm: WaitForVm,
    wait_for: WaitFor,
    tmp_path: Path,
) -> None:
    def watches() -> bool:
        directories = [resctrl.root / "mon_groups" / name for name in theirs_in(resctrl.root)]
        return any(int((directory / "cpus").read_text().replace(",", ""), 16) for directory in directories)

    for number in range(LOCK_TRIES):
        with monitoring_by_pqos(watches, wait_for, tmp_path / f"pqos-{number}.log") as ended_for_the_lock:
            theirs = [f"mon_groups/{name}" for name in theirs_in(resctrl.root)]
            # It has made every class there can be, though it needs none of them.
            for name in tree.groups():
                os.rmdir(resctrl.root / name)
            before = foreign.belongings(resctrl.root, theirs)
            vm = make_vm(EXCLUSIVE_2)
            wait_for_vm(vm, "kept")
            vm.change_flavor(vms.Flavor("shared", SHARED_3))
            wait_for_vm(vm, "kept", policy="shared")
            vm.change_flavor(vms.Flavor("nothing"))
            wait_for_vm(vm, "none", policy=None)
            try:
                assert foreign.belongings(resctrl.root, theirs) == before
                return
            except FileNotFoundError:
                # Where the lock is not to be had for a second, pqos ends, and takes its groups along.
                if not ended_for_the_lock():
                    raise
    pytest.fail(f"pqos did not get the lock in any of {LOCK_TRIES} tries")


@contextmanager
def monitoring_by_pqos(watches: Callable[[], bool], wait_for: WaitFor, log: Path) -> Iterator[Callable[[], bool]]:
    """pqos, watching the occupancy of one CPU each second; the emulated CPUs count neither instructions nor misses.

    It ends where it does not get the lock within about a second, and is started again until it watches.

    :param watches: whether it does so.
    :param log: the file that has what it says.
    :returns: a function that tells whether it has ended for want of the lock since then, waiting for a moment for that.
    """
    command = [
        "pqos",
        "--iface=os",
        "--mon-core=llc:0",
        "--mon-time=inf",
        "--disable-mon-ipc",
        "--disable-mon-llc_miss",
    ]
    started: list[subprocess.Popen[bytes]] = []

    def is_watching() -> bool:
        if not started or (len(started) < LOCK_TRIES and started[-1].poll() is not None):
            with log.open("wb") as output:
                started.append(subprocess.Popen(command, stdout=output, stderr=output))
        return watches()

    def ended_for_the_lock() -> bool:
        with suppress(subprocess.TimeoutExpired):
            started[-1].wait(10)
        return started[-1].poll() is not None and b"Failed to acquire lock" in log.read_bytes()

    try:
        wait_for(is_watching, "pqos watching a CPU")
        yield ended_for_the_lock
    finally:
        for process in started:
            process.terminate()
            process.wait()


def theirs_in(root: Path) -> list[str]:
    """The default group's monitoring groups that are not ours."""
    return sorted(name for name in os.listdir(root / "mon_groups") if not name.startswith("vmqos."))


@pytest.mark.long
def test_a_foreign_group_in_the_middle_of_the_agents_work_is_met_with_another_plan(
    resctrl: KernelResctrl, witness: Witness, tree: Tree, agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm()
    wait_for_vm(vm, "none")
    # Placing it takes three writes: two schemata and the tasks; and a mode, where the kernel has not refused it yet.
    for number in range(1, 4):
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


@pytest.mark.long
def test_others_may_make_and_remove_groups_all_the_time(
    resctrl: KernelResctrl, tree: Tree, agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm()
    wait_for_vm(vm, "none")
    racer = Racer(resctrl.root)
    racer.start()
    try:
        for specs in (EXCLUSIVE_4, EXCLUSIVE_2, SHARED_3, EXCLUSIVE_4):
            vm.change_flavor(vms.Flavor("changed", specs))
            wait_for_vm(vm, "kept", ways_requested=int(specs["hw:cache_ways"]))
    finally:
        racer.stop()
    assert racer.turns > 3 and not racer.complaints
    wait_for_vm(vm, "kept", whole=lambda told: tree.groups() == [group(vm)])


class Racer(threading.Thread):
    """Makes groups, has the lowest ways in them for a moment, removes them, and again; asks nobody for the lock.

    :ivar turns: how often.
    :ivar complaints: what somebody else did to the groups.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._names = [f"racer-{number}" for number in range(2)]
        self._root = root
        self._ended = threading.Event()
        self.turns = 0
        self.complaints: list[str] = []

    def stop(self) -> None:
        """Remove what there is, and end."""
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.is_set():
            made = [name for name in self._names if self._make(name)]
            before = foreign.belongings(self._root, made)
            self._ended.wait(0.1)
            try:
                if foreign.belongings(self._root, made) != before:
                    self.complaints.append(f"changed: {before} to {foreign.belongings(self._root, made)}")
                for name in made:
                    (self._root / name).rmdir()
            except FileNotFoundError as error:
                self.complaints.append(str(error))
            self.turns += 1

    def _make(self, name: str) -> bool:
        try:
            (self._root / name).mkdir()
        except OSError as error:
            # The RMID of the last one is still in limbo, or the kernel has no free way to begin with.
            assert error.errno in (errno.EBUSY, errno.ENOSPC)
            return False
        with suppress(OSError):
            # The kernel refuses where these ways are an exclusive VM's.
            foreign.set_masks(self._root, name, 0x3)
        return True


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
