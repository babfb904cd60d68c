# SPDX-License-Identifier: Apache-2.0
"""The loop: what passes do when something fails, and the ``[allocation]`` section as the planner gets it.

The real loop, the simulator's machine in this process, processes as VMs.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from tests.unit.agent.machine import PlayedLibvirt, SimulatedResctrl
from tests.unit.eventually import eventually
from tools.lab.stalls import Stalls
from vmqos import allocation
from vmqos.agent import loop, trial
from vmqos.agent.act import monitoring_groups
from vmqos.agent.loop import Agent, policy_from
from vmqos.agent.observe import flavor_request as wishes
from vmqos.agent.observe import running_vms
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.observe.told_flavors import Found
from vmqos.agent.serve import trials
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.trial import TrialRefused
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Policy, PromiseState
from vmqos.conf import loader
from vmqos.conf.exceptions import ConfigurationError
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.hypervisor import vm_tasks
from vmqos.hypervisor.model import VirtualMachine
from vmqos.reason import Code
from vmqos.resctrl import exceptions, mount, tasks, topology

LOCK_TIMEOUT = 0.1
LONG = 30.0
SOON = 3.0
STALLS = Stalls()
SHIPPED = {name: getattr(running_vms, name) for name in ("LIST_PATIENCE", "LOOK_DEADLINE", "ROUND_BUDGET")}
"""Seconds within which what takes less than a second has happened on a machine that is busy, too."""
TWO, THREE, FOUR = ({"hw:cache_ways": str(ways)} for ways in (2, 3, 4))


class Host:
    """An agent, and what it runs on."""

    def __init__(self, agent: Agent, resctrl: SimulatedResctrl, libvirt: PlayedLibvirt, conf: Path) -> None:
        self.agent = agent
        self.resctrl = resctrl
        self.libvirt = libvirt
        self.conf = conf

    def ways(self, uuid: str) -> int:
        """How many ways of the first cache the VM's own group has; 0 where it has no group."""
        try:
            text = self.resctrl.read(f"vmqos.{uuid}", "schemata")
        except exceptions.ResctrlError:
            return 0
        mask = next(line for line in text.splitlines() if "L3:" in line).split("0=")[1].split(";")[0]
        return int(mask, 16).bit_count()

    def settle(self) -> None:
        """Have passes run until there is nothing left to do: the next one does only what it is told."""
        for _ in range(3):
            self.agent.run_passes()

    def state(self, uuid: str) -> PromiseState | None:
        record = self.agent.snapshot.vms.get(uuid)
        return record.allocation.state if record is not None else None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Another process holds the lock on resctrl."""
        descriptor = os.open(self.resctrl.root, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def faulty(self) -> Iterator[None]:
        """The pass meets a fault of its own when it reads resctrl."""

        def fail(path: str) -> None:
            raise RuntimeError(f"a fault of ours at {path}")

        self.resctrl.before, before = fail, self.resctrl.before
        try:
            yield
        finally:
            self.resctrl.before = before

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The agent runs by itself."""
        thread = threading.Thread(target=self.agent.run)
        thread.start()
        try:
            yield
        finally:
            self.agent.stop()
            thread.join(LONG)
            assert not thread.is_alive()


@pytest.fixture(scope="module", autouse=True)
def stalls() -> Iterator[Stalls]:
    """Tells what something took without the time in which this machine had no CPU for it."""
    with STALLS:
        yield STALLS


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bear a machine that has no CPU for a while."""
    for name in SHIPPED:
        monkeypatch.setattr(running_vms, name, LONG)


@pytest.fixture
def hasty(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave behind what takes longer than milliseconds, as shipped: for tests in which libvirt hangs, or is slow."""
    for name, value in SHIPPED.items():
        monkeypatch.setattr(running_vms, name, value)


@pytest.fixture
def further_options() -> str:
    """What else the agent's configuration says."""
    return ""


@pytest.fixture
def host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, further_options: str
) -> Iterator[Host]:
    """An agent that makes no audit during a test: what is served at once is served for another reason."""
    caplog.set_level(logging.INFO)
    root, sysfs, conf = tmp_path / "resctrl", tmp_path / "cpu", tmp_path / "vmqos.conf"
    root.mkdir()
    resctrl, libvirt = SimulatedResctrl(root, sysfs), PlayedLibvirt()
    monkeypatch.setattr(loop, "Filesystem", lambda path: resctrl)
    monkeypatch.setattr(loop, "Connection", lambda *_, **__: libvirt)
    # The folder is no mount point.
    mounted = mount.Mount(str(root), frozenset(), read_only=False, simulated=True)
    monkeypatch.setattr(mount, "find", lambda path, **_: mounted)
    conf.write_text(
        f"[resctrl]\npath = {root}\nsysfs_cpu_path = {sysfs}\nlock_timeout = {LOCK_TIMEOUT}\n"
        f"[agent]\nstate_path = {tmp_path}\naudit_interval = 60\nfull_audit_interval = 600\n{further_options}"
    )
    agent = Agent(loader.load(["--config-file", str(conf)]), lambda: loader.load(["--config-file", str(conf)]))
    yield Host(agent, resctrl, libvirt, conf)
    libvirt.end()
    agent._running_vms.close()


def time_until(condition: Callable[[], bool]) -> float:
    """Wait until the condition is true; the seconds it took, while this machine had a CPU for it."""
    began = time.monotonic()
    eventually(condition)
    return STALLS.took(began)


Trouble = Callable[[Host], contextlib.AbstractContextManager[None]]


@pytest.fixture(params=[Host.locked, Host.faulty], ids=["locked", "faulty"])
def trouble(request: pytest.FixtureRequest) -> Trouble:
    """Makes passes fail: before they act, or while they do."""
    found: Trouble = request.param
    return found


def test_a_vm_gets_what_its_flavor_asks_for(host: Host) -> None:
    vm = host.libvirt.boot(TWO)
    host.agent.run_passes()
    assert host.state(vm) is PromiseState.KEPT and host.ways(vm) == 2


def test_what_was_told_while_a_pass_failed_is_owed_to_the_next(host: Host, trouble: Trouble) -> None:
    stays, goes = host.libvirt.boot(TWO), host.libvirt.boot(TWO)
    host.settle()
    with trouble(host):
        comes = host.libvirt.boot(THREE)
        host.libvirt.resize(stays, FOUR)
        host.libvirt.shut_off(goes)
        for uuid in (stays, goes, comes):
            host.agent._on_change(uuid)
        for _ in range(3):
            host.agent.run_passes()
        assert host.agent.health.last_error
    assert (host.ways(stays), host.ways(goes), host.ways(comes)) == (2, 2, 0)
    host.agent.run_passes()
    assert (host.ways(stays), host.ways(goes), host.ways(comes)) == (4, 0, 3)
    assert not host.agent.health.resctrl_error


def assert_once(audits: list[bool]) -> None:
    """The first pass was a full audit, and those that followed were not; a busy machine needs more of them."""
    assert audits[0]
    assert len(audits) > 1
    assert not any(audits[1:])


def test_a_full_audit_that_failed_is_owed(host: Host, trouble: Trouble) -> None:
    vm = host.libvirt.boot(TWO)
    host.settle()
    host.agent._on_change(None)
    with trouble(host):
        host.agent.run_passes()
        looked = host.libvirt.described.count(vm)
        host.agent.run_passes()
        assert host.libvirt.described.count(vm) == looked, "what was looked at need not be looked at again"
    seen: list[bool] = []
    run = host.agent.reconciler.run
    host.agent.reconciler.run = lambda change, *rest: seen.append(change.everything) or run(change, *rest)  # type: ignore[func-returns-value,method-assign]
    host.agent.run_passes()
    host.agent.run_passes()
    assert_once(seen)


def test_an_audit_after_hotplug_that_failed_is_owed_and_so_is_the_one_when_it_has_settled(
    host: Host, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.settle()
    # However slow this machine is, the time is over when the test says so.
    monkeypatch.setattr(loop, "HOTPLUG_SETTLES", 3600.0)
    claims: list[bool] = []
    run = host.agent.reconciler.run
    host.agent.reconciler.run = lambda change, *rest: claims.append(change.everything) or run(change, *rest)  # type: ignore[func-returns-value,method-assign]
    with trouble(host):
        monkeypatch.setattr(topology, "online_cpus", lambda path: frozenset({0}))
        host.agent.run_passes()
    claims.clear()
    host.agent.run_passes()
    host.agent.run_passes()
    assert_once(claims)
    with trouble(host):
        host.agent._settles_at = time.monotonic()
        host.agent.run_passes()
    claims.clear()
    host.agent.run_passes()
    host.agent.run_passes()
    assert_once(claims)


def test_a_new_configuration_is_acted_on_although_the_pass_after_it_failed(host: Host, trouble: Trouble) -> None:
    vm = host.libvirt.boot({"hw:cache_ways": "8"})
    host.settle()
    assert host.state(vm) is PromiseState.KEPT
    host.conf.write_text(host.conf.read_text() + "[allocation]\nreserved_ways = 7f0\n")
    host.agent._read_configuration_again()
    with trouble(host):
        host.agent.run_passes()
    host.agent.run_passes()
    assert host.agent.snapshot.policy.reserved_ways.count == 7


def test_a_task_that_strayed_is_brought_back_although_a_pass_failed(host: Host, trouble: Trouble) -> None:
    vm = host.libvirt.boot(TWO)
    host.settle()
    pid = host.libvirt.vms[vm].process.pid
    host.resctrl.write("tasks", str(pid))
    with trouble(host):
        host.agent.run_passes()
    host.agent.run_passes()
    assert str(pid) in host.resctrl.read(f"vmqos.{vm}", "tasks").split()


def test_a_task_that_strays_right_after_it_was_moved_is_brought_back(host: Host) -> None:
    """The default group's tasks are then what they were before, as far as no other process came or went."""
    vm = host.libvirt.boot(TWO)
    host.agent.run_passes()
    pid = host.libvirt.vms[vm].process.pid
    host.resctrl.write("tasks", str(pid))
    host.agent.run_passes()
    assert str(pid) in host.resctrl.read(f"vmqos.{vm}", "tasks").split()


def test_a_vm_whose_tasks_can_not_be_moved_for_a_fault_of_ours_ends_no_pass(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = host.libvirt.boot(TWO), host.libvirt.boot(THREE)
    lister = vm_tasks.lister

    def faulty(vm: VirtualMachine) -> contextlib.AbstractContextManager[Callable[[], set[int]]]:
        if vm.uuid == bad:
            raise KeyError("a fault of ours")
        return lister(vm)

    with monkeypatch.context() as patched:
        patched.setattr(vm_tasks, "lister", faulty)
        # The look at the VM lists its tasks, too: this fault is the placer's alone.
        patched.setattr(vm_tasks, "all_tasks", lambda vm: {vm.process.pid})
        host.agent.run_passes()
    assert host.state(good) is PromiseState.KEPT and not host.agent.health.last_error
    assert "a fault of ours" in host.agent.snapshot.vms[bad].allocation.reason.text
    time.sleep(1.0)
    host.agent.run_passes()
    assert host.state(bad) is PromiseState.KEPT, "it is tried again"


def test_what_is_told_during_a_pass_is_left_for_the_next(host: Host) -> None:
    vm = host.libvirt.boot(TWO)
    told: list[str] = []

    def tell(path: str) -> None:
        if not told:
            told.append(path)
            host.libvirt.resize(vm, FOUR)
            host.agent._on_change(vm)
            host.agent._on_change(None)

    host.resctrl.before = tell
    host.agent._run_pass()
    assert told and host.ways(vm) == 2
    host.agent.run_passes()
    assert host.ways(vm) == 4


def test_nothing_is_paid_before_libvirt_has_said_which_vms_run(host: Host) -> None:
    vm = host.libvirt.boot(TWO)
    host.libvirt.is_connected = False
    host.agent.run_passes()
    assert host.agent.health.passed_at is None and host.agent.health.looked_at is None
    host.libvirt.is_connected = True
    host.agent.run_passes()
    assert host.ways(vm) == 2
    assert host.agent.health.passed_at is not None and host.agent.health.looked_at is not None


def test_a_full_look_that_libvirt_refused_is_made_once_it_answers(host: Host) -> None:
    vm = host.libvirt.boot(TWO)
    host.settle()
    host.libvirt.is_connected = False
    host.agent._on_change(None)
    host.agent.run_passes()
    host.libvirt.resize(vm, FOUR)
    host.libvirt.is_connected = True
    host.agent.run_passes()
    assert host.ways(vm) == 4


def test_a_failed_pass_is_tried_again_soon_and_not_at_the_next_audit(host: Host) -> None:
    first = host.libvirt.boot(TWO)
    with host.running():
        eventually(lambda: host.state(first) is PromiseState.KEPT)
        with host.locked():
            second = host.libvirt.boot(THREE)
            host.agent._on_change(second)
            eventually(lambda: "lock" in host.agent.health.unserved.get(second, ""))
        assert time_until(lambda: host.ways(second) == 3) < SOON
        eventually(lambda: not host.agent.health.unserved)


@pytest.mark.parametrize("lock_timeout", [0.1, 0.3])
def test_passes_that_fail_for_ever_get_rare(host: Host, lock_timeout: float) -> None:
    host.agent.run_passes()
    with host.locked():
        for delay in (0.1, 0.2, 0.4, 0.8, 1.6):
            host.agent.run_passes()
            assert host.agent._pause() <= delay
            failure = host.agent._retry.get(loop._PASS)
            assert failure is not None
            assert failure.delay == delay
    host.agent.run_passes()
    assert host.agent._pause() > 50


def test_the_service_manager_hears_of_the_agent_while_another_process_holds_the_lock(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchdog = 3.0
    # An operator may set it to more than the unit's WatchdogSec=.
    host.agent.conf.set_override("lock_timeout", 60.0, "resctrl")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LONG)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", str(int(watchdog * 1e6)))
        with host.running():
            assert b"WATCHDOG=1" in manager.recv(4096)
            with host.locked():
                last = time.monotonic()
                until = last + 2 * watchdog
                while last < until:
                    assert b"WATCHDOG=1" in manager.recv(4096)
                    assert STALLS.took(last) < watchdog, "the service manager would have killed the agent"
                    last = time.monotonic()
                assert "lock" in host.agent.health.last_error


def test_a_pass_that_fails_for_ever_is_logged_once(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    vm = host.libvirt.boot(TWO)
    host.agent.run_passes()
    caplog.clear()
    with host.faulty():
        for _ in range(200):
            host.agent.run_passes()
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert sum(len(record.getMessage()) for record in caplog.records) < 1000
    caplog.clear()
    host.agent.run_passes()
    assert "passes succeed again" in caplog.messages
    assert host.state(vm) is PromiseState.KEPT


def test_a_vm_whose_description_can_not_be_read_for_a_fault_of_ours_ends_no_pass(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    known = host.libvirt.boot(TWO)
    host.agent.run_passes()
    unknown = host.libvirt.boot(TWO)
    for uuid in (known, unknown):
        host.libvirt.broken[uuid] = ValueError("no such thing")
    good = host.libvirt.boot(THREE)
    host.agent._on_change(None)
    caplog.clear()
    for _ in range(5):
        host.agent._on_change(known)
        host.agent.run_passes()
    assert host.ways(good) == 3 and not host.agent.health.last_error
    assert host.ways(known) == 2, "what it has is kept"
    assert host.agent.health.unserved.keys() == {known, unknown}
    assert all("ValueError: no such thing" in reason for reason in host.agent.health.unserved.values())
    assert len([record for record in caplog.records if record.exc_info]) == 2, "once for each VM"
    host.libvirt.broken.clear()
    host.agent._on_change(unknown)
    host.agent._on_change(known)
    host.agent.run_passes()
    assert host.ways(unknown) == 2 and not host.agent.health.unserved


def test_a_vm_whose_flavor_can_not_be_read_for_a_fault_of_ours_keeps_what_it_has(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad = host.libvirt.boot(TWO)
    host.agent.run_passes()
    read = wishes.read

    def faulty(vm: VirtualMachine, found: Found | None) -> wishes.FlavorRequest:
        if vm.uuid == bad:
            raise KeyError("a fault of ours")
        return read(vm, found)

    monkeypatch.setattr(wishes, "read", faulty)
    good = host.libvirt.boot(THREE)
    for _ in range(3):
        host.agent._on_change(None)
        host.agent.run_passes()
    assert (host.ways(bad), host.ways(good)) == (2, 3)
    assert "a fault of ours" in host.agent.health.unserved[bad]
    assert "a fault of ours" in host.agent.snapshot.vms[bad].allocation.reason.text
    assert len([record for record in caplog.records if record.exc_info]) == 1


@pytest.mark.usefixtures("hasty")
def test_vms_that_start_or_change_are_served_while_libvirt_does_not_list_them(host: Host) -> None:
    known = host.libvirt.boot(TWO)
    with host.running():
        eventually(lambda: host.ways(known) == 2)
        # It locks each VM for the list, and keeps a VM locked that it starts or ends.
        host.libvirt.listing = threading.Event()
        host.agent._on_change(None)
        for ways, specs in ((3, THREE), (4, FOUR), (2, TWO)):
            host.libvirt.resize(known, specs)
            host.agent._on_change(known)
            assert time_until(lambda ways=ways: host.ways(known) == ways) < SOON  # type: ignore[misc]
        new = host.libvirt.boot(THREE)
        host.agent._on_change(new)
        assert time_until(lambda: host.ways(new) == 3) < SOON
        host.libvirt.listing.set()
        eventually(lambda: not host.agent.health.unserved and host.ways(new) == 3)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("others", [0, 5, 20])
def test_a_vm_whose_look_hangs_keeps_no_other_vm_waiting_for_a_second(host: Host, others: int) -> None:
    known = host.libvirt.boot(TWO)
    with host.running():
        eventually(lambda: host.ways(known) == 2)
        hung = [known, *(host.libvirt.boot({}) for _ in range(others))]
        for uuid in hung:
            host.libvirt.hung[uuid] = threading.Event()
            host.agent._on_change(uuid)
        served = []
        for _ in range(3):
            good = host.libvirt.boot({"hw:cache_ways": "1"})
            host.agent._on_change(good)
            served.append(time_until(lambda good=good: host.state(good) is PromiseState.KEPT))  # type: ignore[misc]
        assert max(served) < SOON
        assert host.ways(known) == 2, "what it has is kept"
        eventually(lambda: host.agent.health.unserved.keys() == set(hung))
        eventually(lambda: set(host.agent.health.unserved.values()) == {running_vms.SLOW})
        assert len([thread for thread in threading.enumerate() if thread.name == "look"]) <= len(hung) + 2
        host.libvirt.resize(known, FOUR)
        for event in host.libvirt.hung.values():
            event.set()
        # Nothing but the end of the looks wakes the loop now.
        eventually(lambda: host.ways(known) == 4 and not host.agent.health.unserved)


def test_looks_that_take_long_come_after_the_others(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    # A look of milliseconds is quick also where this machine has no CPU for it for a while.
    monkeypatch.setattr(running_vms, "QUICK_LOOK", 0.5)
    slow, quick = host.libvirt.boot(TWO), host.libvirt.boot(TWO)
    describe = host.libvirt.describe

    def slowly(uuid: str) -> VirtualMachine | None:
        time.sleep(0.6 if uuid == slow else 0)
        return describe(uuid)

    monkeypatch.setattr(host.libvirt, "describe", slowly)
    host.agent.run_passes()
    assert host.libvirt.described == [slow, quick], "the VM that was started first"
    host.agent._on_change(None)
    host.agent.run_passes()
    assert host.libvirt.described[2:] == [quick, slow]
    new = host.libvirt.boot(TWO)
    host.agent._on_change(None)
    host.agent.run_passes()
    assert host.libvirt.described[4:] == [new, quick, slow]


@pytest.mark.usefixtures("hasty")
def test_a_round_of_many_slow_looks_ends_in_time_and_the_rest_follows_at_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe, told = host.libvirt.describe, list[tuple[int, bool]]()

    def slowly(uuid: str) -> VirtualMachine | None:
        # What the last pass told, before the next one does.
        if host.agent.health.passes:
            told.append((len(host.agent.snapshot.vms), running_vms.WAITING in host.agent.health.unserved.values()))
        time.sleep(0.15)
        return describe(uuid)

    monkeypatch.setattr(host.libvirt, "describe", slowly)
    vms = [host.libvirt.boot({}) for _ in range(8)]
    with host.running():
        eventually(lambda: bool(told))
        assert told[0][0] < len(vms) and told[0][1]
        good = host.libvirt.boot(TWO)
        host.agent._on_change(good)
        assert time_until(lambda: host.ways(good) == 2) < SOON
        eventually(lambda: host.agent.snapshot.vms.keys() == {*vms, good} and not host.agent.health.unserved)


def test_the_only_pass_looks_at_all_vms_however_long_that_takes(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    describe = host.libvirt.describe

    def slowly(uuid: str) -> VirtualMachine | None:
        time.sleep(0.15)
        return describe(uuid)

    monkeypatch.setattr(host.libvirt, "describe", slowly)
    vms = [host.libvirt.boot({"hw:cache_ways": "1"}) for _ in range(6)]
    assert host.agent.run_once()
    assert [host.ways(vm) for vm in vms] == [1] * 6


def test_health_has_the_times_of_what_went_well_last(host: Host) -> None:
    host.libvirt.boot(TWO)
    began = time.monotonic()
    host.agent.run_passes()
    first = host.agent.health
    assert first.looked_at is not None and first.passed_at is not None
    assert began <= first.looked_at <= first.passed_at <= time.monotonic()
    with host.locked():
        host.agent.run_passes()
    second = host.agent.health
    assert second.looked_at is not None and second.looked_at > first.looked_at and second.passed_at == first.passed_at
    host.libvirt.is_connected = False
    host.agent.run_passes()
    assert host.agent.health.looked_at == second.looked_at


def test_systemd_is_told_how_many_vms_are_not_served(host: Host) -> None:
    vm = host.libvirt.boot(TWO)
    host.libvirt.broken[vm] = ValueError("no such thing")
    host.agent.run_passes()
    assert host.agent._summary().endswith(", 1 not served")


@pytest.mark.parametrize("further_options", ["[nova]\nauth_type = password\n"])
def test_a_vm_is_served_once_the_gateway_has_told_its_flavor_and_keeps_what_it_has_before(host: Host) -> None:
    vm = host.libvirt.boot(None)
    with host.running():
        eventually(lambda: host.state(vm) is PromiseState.PENDING)
        (wanted,) = host.agent.flavors.wanted()
        host.agent.flavors.tell(vm, wanted["process"], Found(None, "Nova is away"))
        eventually(lambda: "Nova is away" in host.agent.snapshot.vms[vm].allocation.reason.text)
        assert host.ways(vm) == 0
        host.agent.flavors.tell(vm, wanted["process"], Found(TWO))
        eventually(lambda: host.ways(vm) == 2)
        assert host.agent.flavors.wanted() == []


def configuration(tmp_path: Path, text: str) -> cfg.ConfigOpts:
    file = tmp_path / "vmqos.conf"
    file.write_text(text)
    return loader.load(["--config-file", str(file)])


def test_without_a_word_in_the_file_the_policy_is_the_planners_own(tmp_path: Path) -> None:
    assert policy_from(configuration(tmp_path, "")) == Policy()


def test_listed_classes_are_read_and_each_counts_once(tmp_path: Path) -> None:
    text = "[allocation]\nshared_classes = ways4, mb50, ways4-mb50, mb50\nother_classes = 3\n"
    found = policy_from(configuration(tmp_path, text))
    cap, half = CacheRequest(4, CachePolicy.SHARED), CacheRequest(bandwidth_percent=50)
    both = CacheRequest(4, CachePolicy.SHARED, bandwidth_percent=50)
    assert (found.shared_classes, found.other_classes) == ((cap, half, both), 3)


@pytest.mark.parametrize("name", ["way4", "mb500", "mbps900", "code1"])
def test_a_class_that_can_not_be_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    conf = configuration(tmp_path, f"[allocation]\nshared_classes = ways4, {name}\n")
    with pytest.raises(ConfigurationError, match=rf"\[allocation\] shared_classes: '{name}' names no shared class: .+"):
        policy_from(conf)


@pytest.mark.parametrize(
    ("told", "counts"),
    [
        ("", False),
        ("check_interval = 100\n", False),
        ("provider_yaml = /etc/nova/provider_config/vmqos.yaml\n", True),
        ("os_cloud = vmqos\n", True),
        ("auth_type = none\n", True),
    ],
)
def test_placement_counts_where_it_is_told(tmp_path: Path, told: str, counts: bool) -> None:
    assert policy_from(configuration(tmp_path, f"[placement]\n{told}")).placement_counts is counts


def test_counters_are_assigned_to_monitoring_groups_that_a_later_pass_makes(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = list[set[str]]()

    def note(filesystem: object, snapshot: Snapshot) -> int:
        counted.append({uuid for uuid, record in snapshot.vms.items() if record.tasks and not record.unmonitored})
        return 0

    monkeypatch.setattr(loop, "assign_counters", note)
    # A pass has time for one group.
    monkeypatch.setattr(monitoring_groups, "MAKING", 0.0)
    vms = {host.libvirt.boot({}) for _ in range(3)}
    host.settle()
    assert len(counted[0]) == 1 and counted[-1] == vms
    # On a busy machine a pass leaves something to the next one.
    for _ in range(100):
        calls = len(counted)
        host.settle()
        if len(counted) == calls:
            return
    pytest.fail("an idle pass has nothing to assign")


# A trial: everything is as before when it is over, however it ends.

CAP = {"hw:cache_ways": "2", "hw:cache_policy": "shared"}


def try_a_limit(host: Host, vm: str, percent: int = 20) -> None:
    trials.begin(host.agent, "key", vm, CacheRequest(bandwidth_percent=percent))


def layout_of(host: Host) -> dict[str, tuple[str, list[str], set[int]]]:
    """All control groups, with what they have, their monitoring groups and their tasks but for this process's."""
    names = ["", *(name for name in host.resctrl.directories() if name.startswith("vmqos."))]
    ours = {vm.process.pid for vm in host.libvirt.vms.values()}
    return {
        name: (
            host.resctrl.read(name, "schemata"),
            host.resctrl.directories(name, "mon_groups"),
            ours & tasks.read_tasks(host.resctrl, name),
        )
        for name in names
    }


def values_on(host: Host, vm: str, resource: str) -> list[str]:
    """What the control group that has the VM has of each cache: masks of ``L3``, or limits of ``MB``."""
    pid = host.libvirt.vms[vm].process.pid
    text = next(text for text, _, there in layout_of(host).values() if pid in there)
    line = next(line for line in text.splitlines() if f"{resource}:" in line)
    return [part.split("=")[1].strip() for part in line.split(":")[1].split(";")]


def limits_on(host: Host, vm: str) -> set[str]:
    """The limits of memory bandwidth, in per cent, of the control group that has the VM."""
    return set(values_on(host, vm, "MB"))


def seen(look: Callable[[], object]) -> object:
    """What a look finds while the agent works; ``None`` where a group went away, or a task moved, in between."""
    try:
        return look()
    except (exceptions.Vanished, StopIteration):
        return None


def settled_with(host: Host, specs: dict[str, str]) -> str:
    vm = host.libvirt.boot(specs)
    host.libvirt.boot(TWO)
    host.settle()
    return vm


@pytest.mark.parametrize("specs", [{}, TWO, CAP], ids=["nothing promised", "ways of its own", "in a class"])
def test_a_trial_limits_a_vm_takes_no_way_and_leaves_everything_as_it_was(host: Host, specs: dict[str, str]) -> None:
    vm = settled_with(host, specs)
    before, state, told = layout_of(host), host.state(vm), host.agent.snapshot.vms[vm]
    ways = values_on(host, vm, "L3")
    # On a busy machine, there may be more than one event before the trial.
    newest = host.agent.events.after(0)["last"]
    try_a_limit(host, vm)
    host.settle()
    record = host.agent.snapshot.vms[vm]
    assert host.agent.trials.state() is not None and host.agent.trials.state()[1], "it is in force"  # type: ignore[index]
    assert limits_on(host, vm) == {"20"} and values_on(host, vm, "L3") == ways
    assert host.state(vm) is state and record.allocation.reason.code is Code.TRIAL
    assert record.allocation.masks == told.allocation.masks
    host.agent.trials.end("key")
    host.settle()
    assert layout_of(host) == before
    after = host.agent.snapshot.vms[vm]
    assert (after.allocation, after.outside) == (told.allocation, told.outside)
    assert after.tasks is not None and told.tasks is not None
    assert (after.tasks.target, after.tasks.in_place) == (told.tasks.target, told.tasks.in_place)
    events = [one for one in host.agent.events.after(newest)["events"] if one["uuid"] == vm]
    assert [(one["kind"], one["state"], one["reason_code"]) for one in events] == [
        ("promise", state.value, "trial"),  # type: ignore[union-attr]
        ("promise", state.value, ""),  # type: ignore[union-attr]
    ]
    assert events[-1]["reason"] == "the trial is over: it has what its flavor asks for again"


@pytest.mark.parametrize("specs", [{}, TWO, CAP], ids=["nothing promised", "ways of its own", "in a class"])
def test_a_trial_of_which_nobody_hears_any_more_lapses_by_itself(
    host: Host, specs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "LEASE", 1.0)
    vm = settled_with(host, specs)
    before = layout_of(host)
    # No audit, and no event: the trial's own end makes the pass.
    with host.running():
        eventually(lambda: not host.agent.reconciler.is_unfinished and host.agent.health.passes > 3)
        try_a_limit(host, vm)

        def is_in_force() -> bool:
            try:
                host.agent.trials.renew("key")
            except TrialRefused:
                # For a second this test had no CPU to ask in.
                with contextlib.suppress(TrialRefused):
                    try_a_limit(host, vm)
            return seen(lambda: limits_on(host, vm)) == {"20"}

        eventually(is_in_force)
        eventually(lambda: seen(lambda: layout_of(host)) == before)
    assert host.agent.trials.running is None


def test_a_trial_is_given_up_by_an_agent_that_ends(host: Host) -> None:
    vm = settled_with(host, {})
    before = layout_of(host)
    with host.running():
        eventually(lambda: host.agent.health.passes > 3)
        try_a_limit(host, vm)
        eventually(lambda: seen(lambda: limits_on(host, vm)) == {"20"})
    assert layout_of(host) == before


@pytest.mark.parametrize("specs", [{}, TWO, CAP], ids=["nothing promised", "ways of its own", "in a class"])
def test_an_agent_that_is_started_anew_knows_no_trial_and_puts_everything_back(
    host: Host, specs: dict[str, str]
) -> None:
    vm = settled_with(host, specs)
    before = layout_of(host)
    try_a_limit(host, vm)
    host.settle()
    assert limits_on(host, vm) == {"20"}
    killed, host.agent = host.agent, Agent(loader.load(["--config-file", str(host.conf)]))
    host.settle()
    assert layout_of(host) == before
    with pytest.raises(TrialRefused, match="there is no such trial"):
        host.agent.trials.renew("key")
    host.agent._running_vms.close()
    host.agent = killed


def test_what_was_told_of_a_trial_while_passes_failed_is_done_by_the_next(host: Host, trouble: Trouble) -> None:
    vm = settled_with(host, {})
    before = layout_of(host)
    with trouble(host):
        try_a_limit(host, vm)
        host.agent.run_passes()
    assert layout_of(host) == before
    host.agent.run_passes()
    assert limits_on(host, vm) == {"20"}
    with trouble(host):
        host.agent.trials.end("key")
        host.agent.run_passes()
    assert limits_on(host, vm) == {"20"}
    host.agent.run_passes()
    assert layout_of(host) == before


def fill(host: Host, leave: int) -> int:
    """Start VMs with ways until so many CLOSIDs are left; how many VMs these are."""
    count = 0
    resctrl = host.agent.snapshot.resctrl
    assert resctrl is not None
    while resctrl.capabilities.num_closids - len(resctrl.layout.groups) > leave:
        host.libvirt.boot({"hw:cache_ways": "1"} if count < 5 else {"hw:cache_ways": str(count), **SHARE})
        count += 1
        host.settle()
        resctrl = host.agent.snapshot.resctrl
        assert resctrl is not None
    return count


SHARE = {"hw:cache_policy": "shared"}


def test_a_trial_without_a_free_closid_is_refused_and_changes_nothing(host: Host) -> None:
    vm = settled_with(host, {})
    fill(host, leave=0)
    before = layout_of(host)
    with pytest.raises(TrialRefused, match=r"no class of service \(CLOSID\) is left"):
        try_a_limit(host, vm)
    host.settle()
    assert layout_of(host) == before and host.agent.trials.running is None


def test_a_trial_gives_the_last_closid_to_a_vm_that_is_promised_ways(host: Host) -> None:
    vm = settled_with(host, {})
    fill(host, leave=1)
    try_a_limit(host, vm)
    host.settle()
    assert limits_on(host, vm) == {"20"}
    newcomer = host.libvirt.boot({"hw:cache_ways": "1"})
    host.agent._on_change(newcomer)
    host.settle()
    assert host.state(newcomer) is PromiseState.KEPT and limits_on(host, vm) == {"100"}
    with pytest.raises(TrialRefused, match=f"VM {newcomer} needs a class of service"):
        host.agent.trials.renew("key")


# A trial of ways.


@pytest.fixture
def long_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy takes its time between two questions for a trial."""
    monkeypatch.setattr(trial, "LEASE", 600.0)


def try_ways(host: Host, vm: str, ways: int, *, may_fill_fewer: bool = False) -> None:
    trials.begin(host.agent, "key", vm, CacheRequest(ways=ways), may_fill_fewer=may_fill_fewer)


def fit(host: Host, beside: int = 2) -> tuple[str, str, int]:
    """A VM of two ways, another one of ``beside`` ways, and how many ways are free."""
    vm, other = host.libvirt.boot(TWO), host.libvirt.boot({"hw:cache_ways": str(beside)})
    host.settle()
    return vm, other, free_on(host)


def free_on(host: Host) -> int:
    resctrl = host.agent.snapshot.resctrl
    assert resctrl is not None
    room = allocation.free_ways(resctrl.capabilities, resctrl.layout, host.agent.snapshot.policy)
    return min(cache.free_ways for cache in room.values())


def counts_of(host: Host, vm: str) -> set[int]:
    """How many ways the VM's own group has, on any cache."""
    return {int(mask, 16).bit_count() for mask in values_on(host, vm, "L3")}


@pytest.mark.usefixtures("long_lease")
def test_ways_are_tried_one_after_the_other_and_are_free_again_when_the_trial_is_over(host: Host) -> None:
    vm, other, free = fit(host)
    told, of_other, before = host.agent.snapshot.vms[vm], host.agent.snapshot.vms[other].allocation, layout_of(host)
    for ways in range(2, 3 + free):
        try_ways(host, vm, ways)
        host.settle()
        found = host.agent.trials.state()
        assert found is not None and found[1], "it is in force"
        assert counts_of(host, vm) == {ways} and counts_of(host, other) == {2}
        given = host.agent.snapshot.vms[vm].allocation
        assert (given.state, given.reason.code) == (PromiseState.KEPT, Code.TRIAL)
    assert free_on(host) == 0
    with pytest.raises(TrialRefused, match=f"nothing is tried on VM {vm}: has {2 + free} of {3 + free} ways"):
        try_ways(host, vm, 3 + free)
    host.agent.trials.end("key")
    host.settle()
    # Masks that were moved are where they were, so that the pool is in one piece again.
    assert layout_of(host) == before and free_on(host) == free
    after = host.agent.snapshot.vms[vm].allocation
    assert (after.state, after.reason, after.since) == (
        PromiseState.KEPT,
        told.allocation.reason,
        told.allocation.since,
    )
    assert host.agent.snapshot.vms[other].allocation.since == of_other.since
    events = [one for one in host.agent.events.after(0)["events"] if one["uuid"] == vm]
    # One when it begins, whatever its steps, and one when it is over.
    assert [(one["state"], one["reason_code"]) for one in events[1:]] == [("kept", "trial"), ("kept", "")]


def test_ways_of_which_nobody_hears_any_more_are_free_again_by_themselves(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "LEASE", 0.5)
    vm, _, _ = fit(host)
    before = layout_of(host)
    with host.running():
        eventually(lambda: not host.agent.reconciler.is_unfinished and host.agent.health.passes > 3)
        try_ways(host, vm, 3)
        eventually(lambda: host.agent.trials.running is None)
        eventually(lambda: seen(lambda: layout_of(host)) == before)
    assert "nobody asked for it" in host.agent.trials._over[1]


@pytest.mark.usefixtures("long_lease")
def test_ways_are_given_back_by_an_agent_that_ends(host: Host) -> None:
    vm, _, _ = fit(host)
    before = layout_of(host)
    with host.running():
        eventually(lambda: host.agent.health.passes > 3)
        try_ways(host, vm, 4)
        eventually(lambda: seen(lambda: counts_of(host, vm)) == {4})
    assert layout_of(host) == before


@pytest.mark.usefixtures("long_lease")
def test_an_agent_that_is_started_anew_takes_back_the_ways_that_were_tried(host: Host) -> None:
    vm, other, free = fit(host)
    try_ways(host, vm, 2 + free)
    host.settle()
    assert counts_of(host, vm) == {2 + free}
    killed, host.agent = host.agent, Agent(loader.load(["--config-file", str(host.conf)]))
    host.settle()
    assert counts_of(host, vm) == counts_of(host, other) == {2} and free_on(host) == free
    host.agent._running_vms.close()
    host.agent = killed


@pytest.mark.usefixtures("long_lease")
def test_a_vm_that_is_promised_ways_has_them_at_once_though_they_are_tried_on_another(host: Host) -> None:
    vm, other, free = fit(host)
    try_ways(host, vm, 2 + free)
    host.settle()
    newcomer = host.libvirt.boot({"hw:cache_ways": str(free)})
    host.agent._on_change(newcomer)
    host.settle()
    assert host.state(newcomer) is PromiseState.KEPT and counts_of(host, newcomer) == {free}
    assert counts_of(host, vm) == counts_of(host, other) == {2}
    assert host.state(vm) is PromiseState.KEPT
    events = [one for one in host.agent.events.after(0)["events"] if one["uuid"] == newcomer]
    assert [one["state"] for one in events if one["kind"] == "promise"] == ["kept"], "it never waited"
    with pytest.raises(TrialRefused, match=f"VM {newcomer} would have less for it"):
        host.agent.trials.renew("key")


@pytest.mark.usefixtures("long_lease")
def test_a_vm_that_is_being_started_gets_ways_that_are_tried_on_another(host: Host) -> None:
    vm, _, free = fit(host)
    try_ways(host, vm, 2 + free)
    host.settle()
    newcomer = host.libvirt.boot({"hw:cache_ways": str(free)})
    description = host.libvirt.vms.pop(newcomer)
    record = VmRecord(ObservedVm(description, frozenset({0})), wishes.read(description))
    with host.agent.filesystem.lock(exclusive=True, timeout=LONG):
        targets = host.agent.reconciler.start({newcomer: record})
    assert targets[newcomer].control == f"vmqos.{newcomer}"
    assert host.ways(newcomer) == free and counts_of(host, vm) == {2}
    host.libvirt.vms[newcomer] = description
    host.agent._on_change(newcomer)
    host.settle()
    assert host.state(newcomer) is host.state(vm) is PromiseState.KEPT and counts_of(host, vm) == {2}
    assert host.agent.trials.running is None


@pytest.mark.usefixtures("long_lease")
def test_ways_that_another_trial_would_take_are_refused(host: Host) -> None:
    vm, other, _ = fit(host)
    try_ways(host, vm, 3)
    host.settle()
    with pytest.raises(TrialRefused, match=f"a trial on VM {vm} runs already"):
        trials.begin(host.agent, "another", other, CacheRequest(ways=3))
    assert counts_of(host, vm) == {3} and counts_of(host, other) == {2}


@pytest.mark.usefixtures("long_lease")
def test_a_vm_that_is_resized_while_ways_are_tried_on_it_has_what_its_flavor_promises(host: Host) -> None:
    vm, _, _ = fit(host)
    try_ways(host, vm, 4)
    host.settle()
    host.libvirt.resize(vm, THREE)
    host.agent._on_change(vm)
    host.settle()
    assert counts_of(host, vm) == {4}
    host.agent.trials.end("key")
    host.settle()
    assert counts_of(host, vm) == {3}


@pytest.mark.usefixtures("long_lease")
def test_ways_whose_trial_ended_while_passes_failed_are_free_again_with_the_next(host: Host, trouble: Trouble) -> None:
    vm, other, free = fit(host)
    try_ways(host, vm, 5)
    host.settle()
    with trouble(host):
        host.agent.trials.end("key")
        host.agent.run_passes()
    assert counts_of(host, vm) == {5}
    host.settle()
    assert counts_of(host, vm) == counts_of(host, other) == {2} and free_on(host) == free


NO_OWN = pytest.mark.parametrize(
    ("specs", "least"), [({}, 1), (CAP, 2), ({"hw:mem_bandwidth_percent": "50"}, 1)], ids=["none", "class", "limit"]
)
"""VMs without ways of their own, and the fewest with which a trial begins."""


def beside_one_alike(host: Host, specs: dict[str, str]) -> tuple[str, str, str]:
    """A VM without ways of its own, one with the same flavor, and one with two ways."""
    vm, alike, other = host.libvirt.boot(specs), host.libvirt.boot(specs), host.libvirt.boot(TWO)
    host.settle()
    return vm, alike, other


@NO_OWN
@pytest.mark.usefixtures("long_lease")
def test_a_vm_without_ways_of_its_own_has_some_for_a_while_and_is_where_it_was_when_the_trial_is_over(
    host: Host, specs: dict[str, str], least: int
) -> None:
    vm, alike, other = beside_one_alike(host, specs)
    before, told, free = layout_of(host), host.agent.snapshot.vms[vm], free_on(host)
    of_alike, bandwidth = host.agent.snapshot.vms[alike].allocation, limits_on(host, vm)
    newest, name = host.agent.events.after(0)["last"], f"vmqos.{vm}"
    (place,) = (control for control, (_, inside, _) in before.items() if name in inside)
    for ways in range(least, free + 1):
        try_ways(host, vm, ways, may_fill_fewer=True)
        host.settle()
        found = host.agent.trials.state()
        assert found is not None and found[1], "it is in force"
        assert counts_of(host, vm) == {ways} and counts_of(host, other) == {2}
        assert host.state(vm) is told.allocation.state and limits_on(host, vm) == bandwidth
        assert name in layout_of(host)[place][1] and trials.left_bytes(host.agent, vm) is not None, "that is counted"
        own = set(values_on(host, vm, "L3"))
        for one in (alike, other):
            assert all(not int(mask, 16) & int(mine, 16) for mask in values_on(host, one, "L3") for mine in own)
            assert host.state(one) is (of_alike.state if one == alike else PromiseState.KEPT)
        if specs is CAP:
            assert counts_of(host, alike) == {2}
    with pytest.raises(TrialRefused, match="ways"):
        try_ways(host, vm, free + 1, may_fill_fewer=True)
    host.agent.trials.end("key")
    host.settle()
    assert layout_of(host) == before and free_on(host) == free and trials.left_bytes(host.agent, vm) is None
    after = host.agent.snapshot.vms[vm]
    assert (after.allocation, after.outside) == (told.allocation, told.outside)
    events = [one for one in host.agent.events.after(newest)["events"] if one["uuid"] == vm]
    state = told.allocation.state.value
    assert [(one["state"], one["reason_code"]) for one in events] == [(state, "trial"), (state, "")]


@pytest.mark.usefixtures("long_lease")
def test_a_vm_in_a_class_never_has_fewer_ways_than_its_class(host: Host) -> None:
    vm, alike, _ = beside_one_alike(host, CAP)
    try_ways(host, vm, 1, may_fill_fewer=True)
    host.settle()
    assert counts_of(host, vm) == {2} == counts_of(host, alike)


@pytest.mark.usefixtures("long_lease")
def test_the_class_of_a_vm_that_is_alone_in_it_is_kept_for_it(host: Host) -> None:
    vm, other = host.libvirt.boot(CAP), host.libvirt.boot(TWO)
    host.settle()
    before, classes = layout_of(host), {"vmqos.shared-ways2"}
    try_ways(host, vm, 3)
    host.settle()
    assert counts_of(host, vm) == {3} and classes <= layout_of(host).keys()
    # It takes all that is free beside what the class may fill.
    newcomer = host.libvirt.boot({"hw:cache_ways": str(free_on(host))})
    host.agent._on_change(newcomer)
    host.settle()
    assert host.state(newcomer) is PromiseState.KEPT and counts_of(host, vm) == {3}
    host.agent.trials.end("key")
    host.settle()
    assert host.state(vm) is host.state(newcomer) is host.state(other) is PromiseState.KEPT
    assert counts_of(host, vm) == {2} and layout_of(host).keys() == {*before, f"vmqos.{newcomer}"}


@NO_OWN
@pytest.mark.usefixtures("long_lease")
def test_an_agent_that_is_started_anew_puts_a_vm_without_ways_of_its_own_where_it_was(
    host: Host, specs: dict[str, str], least: int
) -> None:
    vm, _, _ = beside_one_alike(host, specs)
    before = layout_of(host)
    try_ways(host, vm, least + 1, may_fill_fewer=True)
    host.settle()
    assert counts_of(host, vm) == {least + 1}
    killed, host.agent = host.agent, Agent(loader.load(["--config-file", str(host.conf)]))
    host.settle()
    assert layout_of(host).keys() == before.keys()
    assert {name: there for name, (_, _, there) in layout_of(host).items()} == {
        name: there for name, (_, _, there) in before.items()
    }
    host.agent._running_vms.close()
    host.agent = killed


@NO_OWN
def test_a_vm_without_ways_of_its_own_is_where_it_was_when_nobody_asks_for_its_trial(
    host: Host, specs: dict[str, str], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "LEASE", 0.5)
    vm, _, _ = beside_one_alike(host, specs)
    before = layout_of(host)
    with host.running():
        eventually(lambda: not host.agent.reconciler.is_unfinished and host.agent.health.passes > 3)
        try_ways(host, vm, least + 1, may_fill_fewer=True)
        eventually(lambda: host.agent.trials.running is None)
        eventually(lambda: seen(lambda: layout_of(host)) == before)


@NO_OWN
@pytest.mark.usefixtures("long_lease")
def test_a_newcomer_has_at_once_what_it_is_promised_though_a_vm_without_ways_of_its_own_tries_them(
    host: Host, specs: dict[str, str], least: int
) -> None:
    vm, _, _ = beside_one_alike(host, specs)
    where, free = host.agent.snapshot.vms[vm].allocation.group, free_on(host)
    try_ways(host, vm, free, may_fill_fewer=True)
    host.settle()
    newcomer = host.libvirt.boot({"hw:cache_ways": str(free)})
    host.agent._on_change(newcomer)
    host.settle()
    assert host.state(newcomer) is PromiseState.KEPT and counts_of(host, newcomer) == {free}
    assert host.agent.snapshot.vms[vm].allocation.group == where
    with pytest.raises(TrialRefused, match=f"VM {newcomer} would have less for it"):
        host.agent.trials.renew("key")


@pytest.mark.usefixtures("long_lease")
def test_a_vm_that_is_promised_nothing_is_not_tried_unless_its_client_says_that_it_may_fill_fewer(host: Host) -> None:
    vm, _, _ = beside_one_alike(host, {})
    before = layout_of(host)
    with pytest.raises(TrialRefused, match=r"it may have fewer to fill, and be slower; .* \(may_fill_fewer=true\)"):
        try_ways(host, vm, 3)
    host.settle()
    assert layout_of(host) == before and host.agent.trials.running is None


@NO_OWN
@pytest.mark.usefixtures("long_lease")
def test_the_last_closid_goes_to_a_vm_that_is_promised_ways_though_one_without_tries_them(
    host: Host, specs: dict[str, str], least: int
) -> None:
    vm = settled_with(host, specs)
    where = host.agent.snapshot.vms[vm].allocation.group
    fill(host, leave=1)
    try_ways(host, vm, least, may_fill_fewer=True)
    host.settle()
    assert counts_of(host, vm) == {least} and host.agent.snapshot.vms[vm].allocation.group == f"vmqos.{vm}"
    newcomer = host.libvirt.boot({"hw:cache_ways": "1"})
    host.agent._on_change(newcomer)
    host.settle()
    assert host.state(newcomer) is PromiseState.KEPT
    assert host.agent.snapshot.vms[vm].allocation.group == where
    with pytest.raises(TrialRefused, match=f"VM {newcomer} would have less for it"):
        host.agent.trials.renew("key")


@NO_OWN
@pytest.mark.usefixtures("long_lease")
def test_ways_for_a_vm_without_its_own_are_refused_where_no_closid_is_free(
    host: Host, specs: dict[str, str], least: int
) -> None:
    vm = settled_with(host, specs)
    for percent in range(10, 100, 10):
        resctrl = host.agent.snapshot.resctrl
        assert resctrl is not None
        if len(resctrl.layout.groups) < resctrl.capabilities.num_closids:
            host.libvirt.boot({"hw:mem_bandwidth_percent": str(percent)})
            host.settle()
    before = layout_of(host)
    with pytest.raises(TrialRefused, match=r"no class of service \(CLOSID\) is left"):
        try_ways(host, vm, least, may_fill_fewer=True)
    host.settle()
    assert layout_of(host) == before and host.agent.trials.running is None
