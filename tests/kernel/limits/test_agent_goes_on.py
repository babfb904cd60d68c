# SPDX-License-Identifier: Apache-2.0
"""The running agent while ids run out, caches go and come, and resctrl is mounted otherwise.

One agent watches two VMs over all tests of the module: each test mounts resctrl anew under it, and unmounts it.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from tests.functional.agent.tree import Tree
from tests.kernel.inside import msr
from tests.kernel.limits import patiently, processor
from tools.lab import mounts, vms
from tools.lab.agent import Agent, Options
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.processes import wait_until
from tools.lab.vms import RunningVm
from tools.lab.workspace import Workspace
from vmqos.resctrl import exceptions, groups, info, mount
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem

pytestmark = pytest.mark.guest(machines=("cascade-lake",))

OPTIONS: Options = {
    "agent": {"audit_interval": 0.2, "full_audit_interval": 600.0, "retry_delay_min": 0.1, "retry_delay_max": 1},
    "telemetry": {"keep_open": False},
}
"""No full audit comes to a test's help, and the counters' files do not keep resctrl from being unmounted."""

PATIENCE = 300.0
"""Seconds in which the agent does what takes it a second or two where nobody else needs the processors."""


@pytest.fixture(scope="module")
def host() -> Iterator[tuple[Workspace, PrivateLibvirt]]:
    """A private libvirtd."""
    with Workspace() as workspace:
        daemon = PrivateLibvirt(workspace)
        daemon.start()
        yield workspace, daemon
        daemon.stop()


def start_paused(daemon: PrivateLibvirt, name: str, extra_specs: dict[str, str]) -> RunningVm:
    """A VM with all its threads, which does not keep the emulated processor busy."""
    vm = vms.Vm(name, vms.Flavor(name, extra_specs))
    vms.define(daemon.connection(), vm).createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    return RunningVm(vm.uuid, vm.name, daemon)


@pytest.fixture(scope="module")
def exclusive(host: tuple[Workspace, PrivateLibvirt]) -> RunningVm:
    """A VM with two ways of its own."""
    return start_paused(host[1], "exclusive", {"hw:cache_ways": "2"})


@pytest.fixture(scope="module")
def plain(host: tuple[Workspace, PrivateLibvirt]) -> RunningVm:
    """A VM that asks for nothing, and so needs an RMID for a monitoring group."""
    return start_paused(host[1], "plain", {})


@pytest.fixture(scope="module")
def running(host: tuple[Workspace, PrivateLibvirt], exclusive: RunningVm, plain: RunningVm) -> Iterator[Agent]:
    """The agent; resctrl is not mounted yet."""
    workspace, daemon = host
    agent = Agent(
        workspace,
        resctrl=Path(mount.DEFAULT_PATH),
        sysfs=None,
        uri=daemon.uri,
        run_dir=daemon.run_dir,
        options=OPTIONS,
    )
    agent.start()
    yield agent
    agent.stop()


@pytest.fixture
def agent(running: Agent) -> Iterator[Agent]:
    """The same; what it said during the test is shown with a failure."""
    said = running.log.stat().st_size
    yield running
    print(running.log.read_text(errors="replace")[said:][-6000:])


@pytest.fixture
def fs(agent: Agent, exclusive: RunningVm, plain: RunningVm) -> Iterator[Filesystem]:
    """resctrl, mounted under the agent, with both VMs where they belong; unmounted under the agent in the end."""
    subprocess.run(["mount", "-t", "resctrl", "-o", "debug", "resctrl", mount.DEFAULT_PATH], check=True)
    try:
        # Until it has looked, what the agent says is of the test before, and of a resctrl that is gone.
        wait_for_tasks(exclusive, f"res:{group(exclusive)}", "mon:")
        wait_for_tasks(plain, "res:/", f"mon:{group(plain)}")
        wait_for_vm(agent, exclusive, state="kept")
        wait_for_vm(agent, plain, state="none", monitoring_group=f"mon_groups/{group(plain)}", unmonitored_reason="")
        yield Filesystem(mount.DEFAULT_PATH)
    finally:
        mounts.unmount(mount.DEFAULT_PATH, patience=PATIENCE)


def group(vm: RunningVm) -> str:
    return f"vmqos.{vm.uuid}"


def wait_for_vm(agent: Agent, vm: RunningVm, **expected: object) -> dict[str, Any]:
    """Wait until the agent says this of a VM; a text is looked for in what it says. The result is all it says."""
    told: dict[str, Any] = {}

    def reached() -> bool:
        with contextlib.suppress(OSError, RuntimeError):
            told.update(agent.get(f"/v1/vms/{vm.uuid}"))
            return all(_says(told[key], value) for key, value in expected.items())
        return False

    try:
        wait_until(reached, f"{vm.name} being {expected}", PATIENCE)
    except TimeoutError as error:
        raise AssertionError(f"{error}; the agent says {told}") from error
    return told


def _says(told: object, expected: object) -> bool:
    if isinstance(told, str) and isinstance(expected, str) and expected:
        return expected in told
    return told == expected


def tasks_are_in(vm: RunningVm, *groups: str) -> bool:
    """Whether the kernel has every task of a VM in these groups, in the words of cpu_resctrl_groups."""
    found = []
    for tid in vm.tasks():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append(Path(f"/proc/{tid}/cpu_resctrl_groups").read_text().split())
    return bool(found) and all(each == list(groups) for each in found)


def wait_for_tasks(vm: RunningVm, *groups: str) -> None:
    """Wait until the kernel has every task of a VM in these groups."""
    wait_until(lambda: tasks_are_in(vm, *groups), f"{vm.name} being in {groups}", PATIENCE)


@pytest.mark.feature("ways")
def test_a_cache_that_comes_back_gets_its_promise_back(
    agent: Agent, fs: Filesystem, exclusive: RunningVm, caches: dict[int, frozenset[int]], last_cache: int
) -> None:
    tree = Tree(Path(fs.root))
    before = {name: (tree.masks(name), tree.mode(name)) for name in ("", group(exclusive))}
    with processor.offline(caches[last_cache]):
        wait_for_vm(agent, exclusive, state="kept", caches=[cache for cache in caches if cache != last_cache])
        assert not list(tree.violations([group(exclusive)]))
    deadline = time.monotonic() + PATIENCE
    while {name: (tree.masks(name), tree.mode(name)) for name in before} != before:
        assert time.monotonic() < deadline, (tree.masks(), tree.masks(group(exclusive)), tree.mode(group(exclusive)))
        others = [line for line in tree.violations([group(exclusive)]) if f"cache {last_cache} " not in line]
        assert not others, "the other caches have nothing to do with it"
    assert not list(tree.violations([group(exclusive)]))
    wait_for_vm(agent, exclusive, state="kept", caches=list(caches))


@pytest.mark.feature("cdp")
@pytest.mark.feature("ways")
def test_resctrl_may_be_mounted_with_other_options_under_the_agent(
    agent: Agent, fs: Filesystem, exclusive: RunningVm, plain: RunningVm
) -> None:
    mounts.unmount(mount.DEFAULT_PATH, patience=PATIENCE)
    wait_for_vm(agent, exclusive, state="pending", reason="mount -t resctrl resctrl /sys/fs/resctrl", masks={})
    assert agent.get("/v1/health")["status"] == "failing"
    with mounted_under("cdp"):
        wait_for_vm(agent, exclusive, state="kept")
        code, data = (Tree(Path(fs.root)).values(resource, group(exclusive)) for resource in ("L3CODE", "L3DATA"))
        assert code == data and {int(mask, 16).bit_count() for mask in code.values()} == {2}
        # On a slow machine its monitoring group is made, and filled, a pass or two after the promise is kept.
        wait_for_tasks(plain, "res:/", f"mon:{group(plain)}")
        wait_for_vm(agent, plain, monitoring_group=f"mon_groups/{group(plain)}", unmonitored_reason="")
        # The VMs' states are told a moment before the pass, and its word on resctrl, is over.
        wait_until(lambda: agent.get("/v1/health")["resctrl"]["error"] is None, "the agent being well", PATIENCE)
        assert tasks_are_in(plain, "res:/", f"mon:{group(plain)}")
    # The agent may not have looked between the two mounts, which have the same device number.
    subprocess.run(["mount", "-t", "resctrl", "resctrl", mount.DEFAULT_PATH], check=True)
    wait_for_tasks(exclusive, f"res:{group(exclusive)}", "mon:")
    wait_for_vm(agent, exclusive, state="kept")
    assert not list(Tree(Path(fs.root)).violations([group(exclusive)]))


@contextlib.contextmanager
def mounted_under(*options: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "resctrl", "-o", ",".join(options), "resctrl", mount.DEFAULT_PATH], check=True)
    try:
        yield
    finally:
        mounts.unmount(mount.DEFAULT_PATH, patience=PATIENCE)


@pytest.mark.feature("ways")
def test_without_a_closid_the_vm_waits_and_is_served_when_one_is_free(
    agent: Agent, fs: Filesystem, exclusive: RunningVm, caches: dict[int, frozenset[int]]
) -> None:
    closids = info.read_capabilities(fs).num_closids
    with fs.lock(exclusive=True):
        groups.remove(fs, group(exclusive))
        foreign = [f"foreign{number}" for number in range(1, closids)]
        for name in foreign:
            patiently.create(fs, name)
            groups.write_values(fs, name, "L3", dict.fromkeys(caches, CapacityBitmask(0b1)))
    told = wait_for_vm(agent, exclusive, state="pending", reason="CLOSID", masks={})
    assert f"of {closids} one is the default group's" in told["reason"]
    groups.remove(fs, foreign[0])
    wait_for_vm(agent, exclusive, state="kept")
    assert tasks_are_in(exclusive, f"res:{group(exclusive)}", "mon:")


def test_without_an_rmid_the_vm_is_reported_unmonitored_and_gets_one_when_limbo_ends(
    agent: Agent, fs: Filesystem, plain: RunningVm
) -> None:
    monitoring = info.read_capabilities(fs).monitoring
    assert monitoring is not None
    made = []
    with fs.lock(exclusive=True):
        groups.remove_monitoring_group(fs, "", group(plain))
        with contextlib.suppress(exceptions.NoRmidLeft):
            for number in itertools.count():
                name = f"foreign{number}"
                patiently.create_monitoring_group(fs, "", name)
                made.append(name)
    reason = f"no RMID is left: the machine has {monitoring.num_rmids}"
    wait_for_vm(agent, plain, state="none", monitoring_group=None, unmonitored_reason=reason)
    # More than the agent keeps for VMs with a promise, each of which needs a CLOSID.
    freed = made[: info.read_capabilities(fs).num_closids]
    rmids = [int(fs.read("mon_groups", name, "mon_hw_id")) for name in freed]

    def is_told_of_limbo() -> bool:
        with contextlib.suppress(OSError, RuntimeError):
            return "lines in the cache" in str(agent.get(f"/v1/vms/{plain.uuid}")["unmonitored_reason"])
        return False

    with contextlib.ExitStack() as lost:
        # Linux keeps an RMID in limbo while it can't read how many lines the RMID has (monitor.c, __check_limbo). Lines
        # themselves would fade, perhaps before the agent asks.
        for rmid in rmids:
            lost.enter_context(processor.unavailable(0, rmid))
        for name in freed:
            groups.remove_monitoring_group(fs, "", name)
        wait_until(is_told_of_limbo, "the agent saying that RMIDs are in limbo", PATIENCE)
    for rmid in rmids:
        msr.set_occupancy(0, rmid, 0)
    wait_for_vm(agent, plain, unmonitored_reason="", monitoring_group=f"mon_groups/{group(plain)}")
    # On a slow machine the group is filled a pass or two after it is made.
    wait_for_tasks(plain, "res:/", f"mon:{group(plain)}")
