# SPDX-License-Identifier: Apache-2.0
"""Whatever dies, the host ends where it would have ended, and no promise is broken on the way."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from tests.functional.agent.conftest import WaitForVm, wait_until_all_are_counted, wait_until_told
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, EXCLUSIVE_4, SHARED_3, all_in, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab import mounts, vms
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.resctrl import Resctrl
from tools.lab.simulator import Simulator
from tools.lab.workspace import Workspace

SEEDS = range(20261121, 20261126)
KILLS = 10
"""For each seed; one test of all would be left alone at the end of a run."""


def layout(tree: Tree) -> dict[str, object]:
    """Everything an operator would compare: groups, masks, monitoring groups and their tasks that last."""
    return {
        name: (tree.masks(name), tree.mode(name), tree.monitoring_groups(name), lasting(tree, name) if name else None)
        for name in ("", *tree.groups())
    }


def lasting(tree: Tree, name: str) -> set[int]:
    """The tasks of a group without QEMU's workers, which come and go."""
    found = set()
    for tid in tree.tasks(name):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{tid}/comm").read_text().strip() != "worker":
                found.add(tid)
    return found


def threads_of(pid: int) -> set[int]:
    return {int(tid) for tid in os.listdir(f"/proc/{pid}/task")}


def union(masks: Iterable[int]) -> int:
    return functools.reduce(operator.or_, masks, 0)


def widest_run(ways: int) -> int:
    """The longest run of neighbouring ways."""
    runs = [int(digits, 2) << len(rest) for digits, rest in runs_of(f"{ways:b}")]
    return max(runs, key=int.bit_count)


def runs_of(digits: str) -> Iterator[tuple[str, str]]:
    """Each run of ones in a binary number, and the digits after it."""
    for run in re.finditer("1+", digits):
        yield run[0], digits[run.end() :]


def test_sigterm_ends_the_agent_and_changes_nothing(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4)
    wait_for_vm(vm, "kept")
    wait_until_all_are_counted(agent, wait_for)
    before = layout(tree)
    assert agent.stop() == 0
    assert layout(tree) == before
    assert not agent.socket.exists()


def test_a_new_agent_finds_everything_as_the_old_one_left_it(
    agent: Agent, resctrl: Resctrl, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    first, second = make_vm(EXCLUSIVE_4), make_vm(SHARED_3)
    wait_for_vm(first, "kept")
    wait_for_vm(second, "kept")
    wait_until_all_are_counted(agent, wait_for)
    before = layout(tree)
    agent.kill()
    changes = resctrl.changes()
    agent.start()
    wait_for_vm(first, "kept")
    wait_for_vm(second, "kept")
    assert layout(tree) == before
    assert resctrl.changes() == changes, "nothing had to be written"


def test_what_happened_while_the_agent_was_dead_is_made_up_for(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    gone, stays = make_vm(EXCLUSIVE_4), make_vm(EXCLUSIVE_2)
    wait_for_vm(gone, "kept")
    kept = wait_for_vm(stays, "kept")
    agent.kill()
    gone.domain.destroy()
    late = make_vm(EXCLUSIVE_4)
    agent.start()
    wait_for_vm(late, "kept")
    assert wait_for_vm(stays, "kept")["masks"] == kept["masks"]
    wait_for(lambda: group(gone) not in tree.groups(), "the group of the VM that is gone being removed")
    assert not list(tree.violations([group(stays), group(late)]))


def test_once_does_the_work_and_ends(make_agent: MakeAgent, tree: Tree, make_vm: MakeVm) -> None:
    vm = make_vm(EXCLUSIVE_2)
    agent = make_agent()
    assert agent.run_once() == 0
    assert all_in(tree, group(vm), vm)
    assert not list(tree.violations([group(vm)]))


def test_a_second_agent_refuses(agent: Agent, make_agent: MakeAgent) -> None:
    second = make_agent(name="second")
    assert second.run_once() == 1
    assert f"PID {agent.pid}" in second.log.read_text()
    assert agent.get("/v1/health")["status"] == "ok"


def test_a_restart_of_libvirtd_is_survived(
    agent: Agent, tree: Tree, libvirt_host: PrivateLibvirt, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    before = make_vm(EXCLUSIVE_4)
    kept = wait_for_vm(before, "kept")
    libvirt_host.kill()
    wait_for(lambda: not agent.get("/v1/health")["libvirt"]["connected"], "the agent noticing")
    assert agent.get(f"/v1/vms/{before.uuid}")["masks"] == kept["masks"]
    assert all_in(tree, group(before), before)
    libvirt_host.start()
    after = make_vm(EXCLUSIVE_2)
    wait_for_vm(after, "kept", whole=lambda told: told["tasks"] >= len(after.tasks()))
    assert wait_for_vm(before, "kept")["masks"] == kept["masks"]
    assert agent.get("/v1/health")["libvirt"]["connected"]


@pytest.mark.parametrize("specs", [EXCLUSIVE_4, SHARED_3], ids=["exclusive", "shared"])
def test_a_vm_that_libvirtd_has_lost_keeps_its_ways_until_its_process_ends(
    agent: Agent,
    tree: Tree,
    make_vm: MakeVm,
    wait_for_vm: WaitForVm,
    wait_for: WaitFor,
    libvirt_host: PrivateLibvirt,
    specs: dict[str, str],
) -> None:
    lost, stays = make_vm(specs), make_vm(EXCLUSIVE_2)
    told = wait_for_vm(lost, "kept")
    wait_for_vm(stays, "kept")
    masks, pid = tree.masks(told["group"]), lost.pid
    home = told["monitoring_group"] or told["group"]
    libvirt_host.kill()
    (libvirt_host.run_dir / f"{lost.name}.xml").unlink()
    agent.kill()
    try:
        libvirt_host.start()
        assert not lost.domain.isActive()
        agent.start()
        wait_for_vm(stays, "kept")
        passes = agent.get("/v1/health")["passes"]
        wait_for(lambda: agent.get("/v1/health")["passes"] >= passes + 15, "some passes, a full audit among them")
        running, there = threads_of(pid), tree.tasks(home)
        # QEMU's workers come and go.
        assert pid in running and running & threads_of(pid) <= there
        assert tree.masks(told["group"]) == masks
    finally:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: tree.groups() == [group(stays)], "the group being removed once the process has ended")


def test_a_vm_that_dies_while_libvirtd_is_down_gives_its_ways_back(
    agent: Agent, tree: Tree, libvirt_host: PrivateLibvirt, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4)
    wait_for_vm(vm, "kept")
    libvirt_host.kill()
    os.kill(vm.pid, signal.SIGKILL)
    wait_for(lambda: tree.groups() == [], "the group being gone")


def test_without_libvirt_nothing_is_taken_down(
    make_agent: MakeAgent, tree: Tree, libvirt_host: PrivateLibvirt, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(EXCLUSIVE_4)
    agent = make_agent()
    assert agent.run_once() == 0
    before = layout(tree)
    libvirt_host.kill()
    agent.start()
    wait_for(lambda: agent.get("/v1/health")["passes"] > 5, "some passes")
    assert layout(tree) == before
    libvirt_host.start()
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being kept")
    assert layout(tree) == before


@pytest.mark.parametrize(("keep_open", "options"), [(False, []), (True, ["-l"])], ids=["nothing-open", "counters-open"])
def test_resctrl_may_be_unmounted_and_mounted_again(
    agent: Agent,
    tree: Tree,
    resctrl: Resctrl,
    make_vm: MakeVm,
    wait_for_vm: WaitForVm,
    wait_for: WaitFor,
    keep_open: bool,
    options: list[str],
) -> None:
    agent.stop()
    agent.configure({"telemetry": {"keep_open": keep_open}})
    agent.start()
    vm = make_vm(EXCLUSIVE_4)
    wait_for_vm(vm, "kept")
    mounts.unmount(resctrl.root, *options)
    wait_for(lambda: agent.get("/v1/health")["status"] == "failing", "the agent noticing")
    assert "mount" in agent.get("/v1/health")["resctrl"]["error"]
    wait_for_vm(vm, "pending", masks={}, reason="mount")
    resctrl.stop()
    resctrl.start()
    wait_for_vm(vm, "kept")
    wait_for(lambda: all_in(tree, group(vm), vm), "the tasks being in place again")
    assert not list(tree.violations([group(vm)]))


def test_the_agent_waits_for_the_lock_and_goes_on(
    agent: Agent, tree: Tree, resctrl: Resctrl, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    command = ["flock", "--exclusive", str(resctrl.root), "sh", "-c", "echo held; exec cat"]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None and holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    changes = resctrl.changes()
    vm = make_vm(EXCLUSIVE_2)
    time.sleep(1.0)
    assert resctrl.changes() == changes, "nothing may be written while another holds the lock"
    holder.communicate()
    assert holder.returncode == 0
    wait_for_vm(vm, "kept")
    assert all_in(tree, group(vm), vm)


class Killer(Protocol):
    """Kills whoever changes resctrl, in the middle of what it does."""

    def arm(self, changes: int) -> None:
        """Let the next client make that many changes, and kill it then."""
        ...

    def disarm(self) -> None:
        """Kill nobody any more."""
        ...


@dataclass(frozen=True, slots=True)
class KillingSimulator:
    """See :mod:`tests.functional.agent.killing_simulator`."""

    countdown: Path

    def arm(self, changes: int) -> None:
        self.countdown.write_text(str(changes))

    def disarm(self) -> None:
        self.countdown.unlink(missing_ok=True)


@pytest.fixture
def killer(workspace: Workspace, simulator: Simulator) -> Iterator[Killer]:
    """Replaces the simulator by one that kills its client."""
    file = workspace.path / f"{simulator.root.name}.countdown"
    files = (simulator.root, simulator.sysfs, simulator.log, file)
    with simulator.replaced("tests.functional.agent.killing_simulator", *files):
        yield KillingSimulator(file)


@pytest.mark.parametrize("seed", SEEDS)
def test_sigkill_between_any_two_steps_leads_to_the_same_end(
    seed: int, killer: Killer, make_agent: MakeAgent, tree: Tree, make_vm: MakeVm
) -> None:
    kill_and_converge(KILLS, 12, killer, make_agent, tree, make_vm, seed)


def kill_and_converge(
    kills: int, within: int, killer: Killer, make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, seed: int = SEEDS[0]
) -> None:
    """Kill the agent that often, each time on its way to other wishes; after each, have another one get there.

    :param within: the number of changes after which to kill is 1 to this, by chance.
    """
    agent = make_agent({"agent": {"retry_delay_min": 0.1}})
    choose = random.Random(seed)
    first, second, third = make_vm(EXCLUSIVE_4), make_vm(EXCLUSIVE_2), make_vm(SHARED_3)
    make_vm()
    wishes = {first: EXCLUSIVE_4, second: EXCLUSIVE_2, third: SHARED_3}
    killed = 0
    for turn in range(10 * kills):
        if killed == kills:
            break
        if turn:
            changed = choose.choice(list(wishes))
            others = [specs for specs in (EXCLUSIVE_4, EXCLUSIVE_2, SHARED_3, {}) if specs != wishes[changed]]
            wishes[changed] = choose.choice(others)
            changed.change_flavor(vms.Flavor("changed", wishes[changed]))
        exclusive = [group(vm) for vm, specs in wishes.items() if specs in (EXCLUSIVE_2, EXCLUSIVE_4)]
        killer.arm(choose.randint(1, within))
        if agent.run_once() == -signal.SIGKILL:
            killed += 1
            # A group whose VM asks for something else by now is no exclusive VM's any more.
            assert not list(tree.violations([name for name in exclusive if name in tree.groups() and tree.tasks(name)]))
        killer.disarm()
        assert agent.run_once() == 0, agent.log.read_text()[-2000:]
        assert sorted(name for name in tree.groups() if "shared" not in name) == sorted(exclusive)
        assert not list(tree.violations(exclusive))
        for vm, specs in wishes.items():
            if specs in (EXCLUSIVE_2, EXCLUSIVE_4):
                assert {mask.bit_count() for mask in tree.masks(group(vm)).values()} == {int(specs["hw:cache_ways"])}
                assert all_in(tree, group(vm), vm)
            else:
                class_group = "vmqos.shared-ways3/" if specs else ""
                assert all_in(tree, f"{class_group}mon_groups/{group(vm)}", vm)
        for cache, mask in tree.masks().items():
            free = tree.every_way & ~union(tree.masks(name)[cache] for name in exclusive)
            assert mask == (free if tree.gaps_are_fine else widest_run(free)), "no way may be lost"
    assert killed == kills


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_an_outsiders_write_to_the_default_group_costs_no_vm_its_ways(
    make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor, restarted: bool
) -> None:
    agent = make_agent({"allocation": {"kernel_exclusive": False}})
    agent.start()
    wait_for_vm = functools.partial(wait_until_told, agent, wait_for)
    first, growing = make_vm(EXCLUSIVE_4), make_vm(EXCLUSIVE_4)
    wait_for_vm(first, "kept")
    wait_for_vm(growing, "kept")
    growing.change_flavor(vms.Flavor("bigger", {"hw:cache_ways": "8"}))
    wait_for_vm(growing, "degraded", ways_requested=8)
    before = {name: tree.masks(name) for name in ("", group(first), group(growing))}
    if restarted:
        agent.kill()
    told = ";".join(f"{cache}={mask:x}" for cache, mask in tree.masks(group(first)).items())
    (tree.root / "schemata").write_text(f"L3:{told}\n")
    if restarted:
        agent.start()
    wait_for(lambda: {name: tree.masks(name) for name in before} == before, "everybody having the same ways again")
    wait_for_vm(first, "kept")
    assert {mask.bit_count() for mask in tree.masks(group(growing)).values()} == {4}
