# SPDX-License-Identifier: Apache-2.0
"""A libvirtd that is there and does not answer: what the agent knows it keeps, and what it can't know it waits for."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.stopped import stopped
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, EXCLUSIVE_4, all_in, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.functional.hypervisor.hung_workers import hung_workers
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.stalls import Stalls
from tools.lab.vms import RunningVm
from tools.lab.workspace import Workspace
from vmqos.agent.loop import HUNG_AFTER
from vmqos.hypervisor import cgroup

WATCHDOG = 6.0
"""Seconds within which the service manager of these tests wants a sign of life, while the machine has a CPU for it.

libvirt hangs for twice as long. That the agent gives its sign in time is what the test is about.
"""


Hang = Callable[[int], contextlib.AbstractContextManager[None]]


@pytest.fixture(params=[stopped, hung_workers])
def hang(request: pytest.FixtureRequest) -> Hang:
    """Makes libvirtd hang, as a whole or its workers only."""
    found: Hang = request.param
    return found


def pid_of(host: PrivateLibvirt) -> int:
    assert host.pid is not None
    return host.pid


def threads_of(agent: Agent) -> int:
    return len(os.listdir(f"/proc/{agent.pid}/task"))


def threads_at_rest(agent: Agent, wait_for: WaitFor) -> int:
    """How many threads the agent has once that has not changed during some passes.

    The one that waits for ends of processes begins after the pass that has a VM kept for the first time.
    """

    def is_at_rest() -> bool:
        nonlocal count, since
        passes = agent.get("/v1/health")["passes"]
        if threads_of(agent) != count:
            count, since = threads_of(agent), passes
        return bool(passes > since + 5)

    count, since = threads_of(agent), agent.get("/v1/health")["passes"]
    wait_for(is_at_rest, "the agent having as many threads as before")
    return count


def unanswered(agent: Agent) -> str:
    """The call that the agent says libvirt does not answer; empty where it says none."""
    told = agent.get("/v1/health")["libvirt"]["unanswered"]
    return str(told["call"]) if told else ""


@contextlib.contextmanager
def helper_process(vm: RunningVm) -> Iterator[int]:
    """A process that turns up in the VM's cgroup, as a helper that libvirt starts later does; its PID."""
    own = cgroup.vm_cgroup(vm.pid)
    assert own is not None
    emulator = next(Path(own).glob("**/emulator"))
    with subprocess.Popen(["sleep", "1000"]) as helper:
        try:
            (emulator / "cgroup.procs").write_text(str(helper.pid))
            yield helper.pid
        finally:
            helper.kill()


def test_the_known_vms_are_watched_over_while_libvirt_hangs(
    agent: Agent,
    tree: Tree,
    libvirt_host: PrivateLibvirt,
    make_vm: MakeVm,
    wait_for_vm: WaitForVm,
    wait_for: WaitFor,
    hang: Hang,
) -> None:
    stays, dies = make_vm(EXCLUSIVE_4), make_vm(EXCLUSIVE_2)
    kept = wait_for_vm(stays, "kept")
    wait_for_vm(dies, "kept")
    assert agent.get("/v1/health")["libvirt"]["unanswered"] is None
    with hang(pid_of(libvirt_host)), helper_process(stays) as helper:
        wait_for(lambda: helper in tree.tasks(group(stays)), "the new process of the VM being placed")
        (tree.root / "tasks").write_text(f"{stays.pid}\n")
        wait_for(lambda: stays.pid in tree.tasks(group(stays)), "a task that was moved away being brought back")
        os.kill(dies.pid, signal.SIGKILL)
        wait_for(lambda: tree.groups() == [group(stays)], "the group of the VM whose process died being removed")
        health: dict[str, Any] = {}

        def is_told() -> bool:
            health.update(agent.get("/v1/health"))
            return health["libvirt"]["unanswered"] is not None

        wait_for(is_told, "the agent saying that libvirt hangs")
        assert health["status"] == "degraded"
        assert health["libvirt"]["unanswered"]["seconds"] >= 5
        assert health["libvirt"]["unanswered"]["call"] in health["libvirt"]["error"]
        assert agent.get(f"/v1/vms/{stays.uuid}")["masks"] == kept["masks"]
    wait_for(lambda: not unanswered(agent), "libvirt answering again")
    late = make_vm(EXCLUSIVE_2)
    wait_for_vm(late, "kept")
    wait_for(lambda: tree.groups() == sorted([group(stays), group(late)]), "the groups being those of both VMs")
    assert not list(tree.violations([group(stays), group(late)]))
    assert agent.get(f"/v1/vms/{stays.uuid}")["masks"] == kept["masks"]
    wait_for(lambda: agent.get("/v1/health")["status"] == "ok", "the agent saying that all is well again")


def test_the_service_manager_sees_a_living_agent_while_libvirt_hangs(
    make_agent: MakeAgent,
    workspace: Workspace,
    libvirt_host: PrivateLibvirt,
    make_vm: MakeVm,
    monkeypatch: pytest.MonkeyPatch,
    hang: Hang,
    stalls: Stalls,
) -> None:
    make_vm(EXCLUSIVE_2)
    path = workspace.path / "notify"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        monkeypatch.setenv("WATCHDOG_USEC", str(int(WATCHDOG * 1e6)))
        agent = make_agent()
        agent.start()
        assert b"WATCHDOG=1" in manager.recv(4096)
        with hang(pid_of(libvirt_host)):
            last = time.monotonic()
            until = last + 2 * WATCHDOG
            while last < until:
                assert b"WATCHDOG=1" in manager.recv(4096)
                assert stalls.took(last) < WATCHDOG, "the service manager would have killed the agent"
                last = time.monotonic()


def test_hanging_again_and_again_leaves_no_thread(
    agent: Agent, libvirt_host: PrivateLibvirt, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor, hang: Hang
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")
    before = threads_at_rest(agent, wait_for)
    for _ in range(3):
        with hang(pid_of(libvirt_host)):
            passes = agent.get("/v1/health")["passes"]
            wait_for(lambda passes=passes: agent.get("/v1/health")["passes"] > passes + 4, "passes")  # type: ignore[misc]
            # A look at the VM that is under way when libvirt begins to hang costs a thread until libvirt answers.
            wait_for(lambda: threads_of(agent) <= before + 1, "no more threads than before, but for that look")
        after = make_vm(EXCLUSIVE_2)
        wait_for_vm(after, "kept")
        after.domain.destroy()
        wait_for(lambda: [one["uuid"] for one in agent.get("/v1/vms")["vms"]] == [vm.uuid], "the VM's end being seen")
        # Of the look at that VM.
        passes = agent.get("/v1/health")["passes"]
        wait_for(lambda passes=passes: agent.get("/v1/health")["passes"] > passes + 1, "no look being under way")  # type: ignore[misc]
    wait_for(lambda: threads_of(agent) <= before, "no more threads than before")


def test_a_hung_libvirtd_may_be_replaced(
    agent: Agent,
    tree: Tree,
    libvirt_host: PrivateLibvirt,
    make_vm: MakeVm,
    wait_for_vm: WaitForVm,
    wait_for: WaitFor,
    hang: Hang,
) -> None:
    before = make_vm(EXCLUSIVE_4)
    kept = wait_for_vm(before, "kept")
    with hang(pid_of(libvirt_host)):
        wait_for(lambda: bool(unanswered(agent)), "the agent saying that libvirt hangs")
        libvirt_host.kill()
    libvirt_host.start()
    after = make_vm(EXCLUSIVE_2)
    wait_for_vm(after, "kept")
    assert wait_for_vm(before, "kept")["masks"] == kept["masks"]
    wait_for(lambda: not unanswered(agent), "every call being answered again")
    assert not list(tree.violations([group(before), group(after)]))


def test_an_agent_that_starts_under_a_hung_libvirtd_takes_nothing_down(
    make_agent: MakeAgent, tree: Tree, libvirt_host: PrivateLibvirt, make_vm: MakeVm, wait_for: WaitFor, hang: Hang
) -> None:
    vm = make_vm(EXCLUSIVE_4)
    agent = make_agent()
    assert agent.run_once() == 0
    masks = tree.masks(group(vm))
    with hang(pid_of(libvirt_host)):
        agent.start()
        wait_for(lambda: unanswered(agent) == "virConnectOpenReadOnly", "the agent saying that libvirt hangs")
        assert all_in(tree, group(vm), vm) and tree.masks(group(vm)) == masks
        assert agent.get("/v1/vms")["vms"] == []
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being kept")
    assert tree.masks(group(vm)) == masks


def test_an_agent_is_starting_until_libvirt_has_said_which_vms_run(
    make_agent: MakeAgent, libvirt_host: PrivateLibvirt, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    make_vm(EXCLUSIVE_4)
    agent = make_agent()
    told: list[dict[str, Any]] = []
    with stopped(pid_of(libvirt_host)):
        # One that had no CPU for seconds, and was asked after that only, rightly says that libvirt hangs.
        while not told or told[-1]["uptime_seconds"] >= HUNG_AFTER:
            agent.kill()
            agent.start(wait=False)
            wait_for(lambda: not told.append(agent.get("/v1/health")), "the agent answering")
    assert told[-1]["status"] == "starting"
    assert told[-1]["libvirt"]["error"] is None
    assert told[-1]["resctrl"]["mounted"] is not False
    wait_for(lambda: agent.get("/v1/health")["status"] == "ok", "the first look being done")


def test_the_agent_stops_in_time_while_libvirt_hangs(
    agent: Agent,
    tree: Tree,
    libvirt_host: PrivateLibvirt,
    make_vm: MakeVm,
    wait_for_vm: WaitForVm,
    hang: Hang,
    stalls: Stalls,
) -> None:
    vm = make_vm(EXCLUSIVE_4)
    wait_for_vm(vm, "kept")
    with hang(pid_of(libvirt_host)):
        time.sleep(1.5)
        began = time.monotonic()
        assert agent.stop() == 0
        assert stalls.took(began) < 15
    assert all_in(tree, group(vm), vm)


def test_a_vm_whose_qemu_hangs_keeps_no_other_vm_waiting(
    agent: Agent, tree: Tree, libvirt_host: PrivateLibvirt, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    hung = make_vm(EXCLUSIVE_4)
    kept = wait_for_vm(hung, "kept")
    connection = libvirt_host.connect()
    domain = connection.lookupByUUIDString(hung.uuid)
    with stopped(hung.pid):
        # It holds the VM's job and a worker of libvirtd until QEMU answers.
        asking = threading.Thread(target=lambda: _quietly(domain.blockStats, ""), daemon=True)
        monitoring = threading.Thread(target=lambda: _quietly(domain.memoryStats), daemon=True)
        asking.start()
        monitoring.start()
        time.sleep(0.5)
        other = make_vm(EXCLUSIVE_2)
        wait_for_vm(other, "kept")
        assert agent.get(f"/v1/vms/{hung.uuid}")["masks"] == kept["masks"]
        assert all_in(tree, group(hung), hung)
    asking.join(30)
    monitoring.join(30)
    connection.close()
    wait_for_vm(hung, "kept")


def _quietly(function: Callable[..., object], *arguments: object) -> None:
    with contextlib.suppress(libvirt.libvirtError):
        function(*arguments)
