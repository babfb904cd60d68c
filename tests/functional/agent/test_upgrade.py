# SPDX-License-Identifier: Apache-2.0
"""Agent and gateway are exchanged for another version, forth and back, and no VM notices."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.functional.agent.conftest import wait_until_told
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, EXCLUSIVE_4, SHARED_3, all_in, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, Pace, WaitFor, extracted
from tests.functional.telemetry.scraped import scrape
from tools.lab import processes, vms
from tools.lab.agent import Agent
from tools.lab.resctrl import Resctrl
from tools.lab.versions import BEFORE, LATELY, Exchangeable
from tools.lab.vms import RunningVm
from tools.lab.workspace import Workspace

EXCLUSIVE_1 = {"hw:cache_ways": "1"}

LOOK = 0.005
"""Seconds from one look at the VMs' tasks to the next."""

FORTH_AND_BACK = (True, False, True, False)
"""Whether the next version is the new one. The version before runs at first."""


@pytest.fixture
def installed(request: pytest.FixtureRequest) -> Exchangeable:
    """What is installed: at first the version before."""
    launch = request.getfixturevalue("pace").launch
    assert isinstance(launch, Exchangeable)
    return launch


@pytest.fixture
def tree_before(request: pytest.FixtureRequest, workspace: Workspace) -> Path:
    """The version before: of the commit that an indirect parameter names, or the one that hosts are upgraded from."""
    return extracted(workspace, getattr(request, "param", BEFORE))


@pytest.fixture
def pace(pace: Pace, tree_before: Path) -> Pace:
    """Programs are started in the version that is installed."""
    exchangeable = Exchangeable(pace.launch, tree_before)
    exchangeable.install(agent=False, gateway=False)
    return replace(pace, launch=exchangeable)


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """A running agent of the version before, and its gateway."""
    started = make_agent({"gateway": {}})
    started.start()
    return started


class Watch:
    """Looks at the tasks of VMs all the time, and notes each that is not where it was at first.

    :param homes: the directory in resctrl that each VM's tasks belong in.
    :ivar found: what is wrong.
    :ivar looks: how often it has looked.
    """

    def __init__(self, tree: Tree, homes: Mapping[RunningVm, str]) -> None:
        self._tree = tree
        self._homes = homes
        self.found: list[str] = []
        self.looks = 0

    def look(self) -> None:
        """Look once."""
        for vm, home in self._homes.items():
            before = vm.tasks().keys()
            try:
                inside = self._tree.tasks(home)
            except OSError as error:
                self.found.append(f"{home}: {error}")
                continue
            # QEMU's workers come and go.
            if outside := (before & vm.tasks().keys()) - inside:
                self.found.append(f"{sorted(outside)} of {vm.name} are not in {home}")
            if not before:
                self.found.append(f"{vm.name} has no task")
        self.looks += 1

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Look all the time while the block runs.

        :raises AssertionError: if anything was wrong.
        """
        ends = threading.Event()

        def run() -> None:
            try:
                while not ends.wait(LOOK):
                    self.look()
            except Exception as error:
                self.found.append(repr(error))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()
        self.look()
        assert not self.found, "\n".join(self.found[:10])


def identity(vm: RunningVm) -> tuple[int, int | None]:
    """What tells this run of a VM from any other: PID and start time of its QEMU."""
    return vm.pid, processes.start_time(vm.pid)


def is_placed(agent: Agent, vm: RunningVm) -> bool:
    """Whether all tasks of a VM are in its group, the monitoring one included: of that, the list of all VMs tells."""
    return any(
        one["uuid"] == vm.uuid and 0 < one["tasks"] == one["tasks_in_place"] for one in agent.get("/v1/vms")["vms"]
    )


def home_of(agent: Agent, wait_for: WaitFor, vm: RunningVm, state: str) -> str:
    """Where all tasks of a VM are, once it is in this state."""
    told = wait_until_told(agent, wait_for, vm, state, whole=lambda told: is_placed(agent, vm))
    assert told["group"] or told["monitoring_group"]
    return str(told["monitoring_group"] or told["group"])


def exchange(agent: Agent, installed: Exchangeable, *, is_new: bool, by_force: bool = False) -> None:
    """Replace agent and gateway, as a package's upgrade does it: install, stop, start.

    :param by_force: whether the agent has no time to end.
    """
    installed.install(agent=is_new, gateway=is_new)
    if by_force:
        agent.kill()
        agent.gateway.kill()
    else:
        assert agent.stop() == 0
    agent.start()


def changes_of_groups(changes: list[str]) -> list[str]:
    """Of the changes in the simulator's record those after which a VM could have other ways, or another group."""
    told = map(json.loads, changes)
    return [
        str(one)
        for one in told
        if one["op"] in ("mkdir", "rmdir", "rename")
        or (one["op"] == "write" and one["path"].endswith(("schemata", "tasks", "mode")))
    ]


@pytest.mark.parametrize("tree_before", [BEFORE, LATELY], ids=["before", "lately"], indirect=True)
@pytest.mark.parametrize("by_force", [False, True], ids=["stopped", "killed"])
def test_an_upgrade_and_a_rollback_touch_no_vm(
    agent: Agent,
    installed: Exchangeable,
    resctrl: Resctrl,
    tree: Tree,
    make_vm: MakeVm,
    wait_for: WaitFor,
    by_force: bool,
) -> None:
    states = {
        make_vm(EXCLUSIVE_4): "kept",
        make_vm(EXCLUSIVE_2, vcpus=2): "kept",
        make_vm(SHARED_3): "kept",
        make_vm(SHARED_3): "kept",
        make_vm(): "none",
        make_vm({"hw:cache_ways": "99"}): "pending",
    }
    homes = {vm: home_of(agent, wait_for, vm, state) for vm, state in states.items()}
    runs = {vm: identity(vm) for vm in states}
    inodes = {name: (tree.root / name).stat().st_ino for name in tree.groups()}
    masks = {name: tree.masks(name) for name in ("", *tree.groups())}
    told = {vm: agent.get(f"/v1/vms/{vm.uuid}")["masks"] for vm in states}
    changes = resctrl.changes()
    watch = Watch(tree, homes)
    with watch.going_on():
        for is_new in FORTH_AND_BACK:
            looks = watch.looks
            exchange(agent, installed, is_new=is_new, by_force=by_force)
            for vm, state in states.items():
                assert home_of(agent, wait_for, vm, state) == homes[vm]
                assert agent.get(f"/v1/vms/{vm.uuid}")["masks"] == told[vm]
            assert watch.looks > looks
    assert changes_of_groups(resctrl.changes()[len(changes) :]) == []
    assert {name: tree.masks(name) for name in ("", *tree.groups())} == masks
    assert {name: (tree.root / name).stat().st_ino for name in tree.groups()} == inodes
    assert {vm: identity(vm) for vm in states} == runs


@pytest.mark.parametrize("simulator", ["broadwell"], indirect=True)
@pytest.mark.parametrize("is_new", [True, False], ids=["upgrade", "rollback"])
def test_what_happens_while_the_agent_is_exchanged_is_made_up_for_and_costs_the_others_nothing(
    agent: Agent,
    installed: Exchangeable,
    tree: Tree,
    make_vm: MakeVm,
    wait_for: WaitFor,
    is_new: bool,
) -> None:
    if not is_new:
        exchange(agent, installed, is_new=True)
    stays, shares, ends, grows = make_vm(EXCLUSIVE_4), make_vm(SHARED_3), make_vm(EXCLUSIVE_2), make_vm(EXCLUSIVE_2)
    homes = {vm: home_of(agent, wait_for, vm, "kept") for vm in (stays, shares, ends, grows)}
    masks = {vm: tree.masks(group(vm)) for vm in (stays, grows)}
    runs = {vm: identity(vm) for vm in (stays, shares, grows)}
    with Watch(tree, {vm: homes[vm] for vm in (stays, shares, grows)}).going_on():
        installed.install(agent=is_new, gateway=is_new)
        assert agent.stop() == 0
        ends.domain.destroy()
        comes = make_vm(EXCLUSIVE_2)
        grows.change_flavor(vms.Flavor("larger", {"hw:cache_ways": "3"}))
        agent.start()
        wait_until_told(agent, wait_for, comes, "kept")
        wait_until_told(agent, wait_for, grows, "kept", ways_requested=3)
        for vm in (stays, shares):
            assert home_of(agent, wait_for, vm, "kept") == homes[vm]
        wait_for(lambda: group(ends) not in tree.groups(), "the group of the VM that is gone being removed")
    assert tree.masks(group(stays)) == masks[stays]
    assert all_in(tree, group(comes), comes)
    assert not list(tree.violations([group(stays), group(grows), group(comes)]))
    assert {vm: identity(vm) for vm in (stays, shares, grows)} == runs


@pytest.mark.parametrize("simulator", ["broadwell"], indirect=True)
def test_vms_that_start_while_versions_change_are_all_served_and_nobody_loses_ways(
    agent: Agent, installed: Exchangeable, tree: Tree, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    stays = make_vm(EXCLUSIVE_4)
    home = home_of(agent, wait_for, stays, "kept")
    masks, started = tree.masks(group(stays)), list[RunningVm]()
    with Watch(tree, {stays: home}).going_on():
        for is_new in FORTH_AND_BACK:
            # One that the old version hears of, one that nobody hears of, and one that is there when the new one comes.
            started.append(make_vm(EXCLUSIVE_1))
            installed.install(agent=is_new, gateway=is_new)
            agent.kill()
            started.append(make_vm(EXCLUSIVE_1))
            agent.start(wait=False)
            started.append(make_vm(SHARED_3))
    exclusive = [vm for number, vm in enumerate(started) if number % 3 < 2]
    for vm in started:
        assert all_in(tree, home_of(agent, wait_for, vm, "kept"), vm)
    assert tree.masks(group(stays)) == masks
    assert sorted(tree.groups()) == sorted([*map(group, [stays, *exclusive]), "vmqos.shared-ways3"])
    assert not list(tree.violations(map(group, [stays, *exclusive])))


@pytest.mark.parametrize("is_new", [True, False], ids=["new-agent", "new-gateway"])
def test_a_gateway_of_either_version_tells_what_an_agent_of_the_other_one_says(
    agent: Agent, installed: Exchangeable, make_vm: MakeVm, wait_for: WaitFor, is_new: bool
) -> None:
    vm, plain = make_vm(EXCLUSIVE_2), make_vm()
    installed.install(agent=is_new, gateway=not is_new)
    if is_new:
        # The gateway of before stays, and has the agent exchanged under it.
        agent.kill()
        agent.launch()
    else:
        agent.gateway.stop()
        agent.gateway.start()
    told = wait_until_told(agent, wait_for, vm, "kept")
    wait_until_told(agent, wait_for, plain, "none")
    wait_for(lambda: bool(agent.gateway.get("/v1/vms")["vms"]), "the gateway telling of the VMs")
    passed_on = agent.gateway.get(f"/v1/vms/{vm.uuid}")
    assert {name: passed_on[name] for name in ("state", "masks", "group", "pid")} == {
        name: told[name] for name in ("state", "masks", "group", "pid")
    }
    assert {row["uuid"] for row in agent.gateway.get("/v1/vms")["vms"]} == {vm.uuid, plain.uuid}
    wait_for(lambda: agent.gateway.get("/v1/health")["status"] == "ok", "the gateway telling that all is well")
    assert agent.gateway.get("/v1/caches")["caches"] == agent.get("/v1/caches")["caches"]
    scraped = scrape(agent.gateway.socket)
    assert scraped.value("vmqos_vm_state", uuid=vm.uuid, state="kept") == 1
    assert scraped.value("vmqos_vm_state", uuid=plain.uuid, state="none") == 1
    wait_for(
        lambda: bool(scrape(agent.gateway.socket).find("vmqos_vm_llc_occupancy_bytes", uuid=vm.uuid)),
        "the gateway telling how much of the cache the VM fills",
    )
    for log in (agent.log, agent.gateway.log):
        assert "Traceback" not in log.read_text()
