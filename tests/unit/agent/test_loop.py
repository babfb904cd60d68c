# SPDX-License-Identifier: Apache-2.0
"""The loop: what passes do when something fails, and what is told of them.

The real loop, the simulator's machine in this process, processes as VMs.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.loop_host import FOUR, LONG, SOON, THREE, TWO, Host, Trouble, agent_in, time_until
from tests.unit.agent.remember.test_announce import MEANS
from tests.unit.eventually import eventually
from tools.lab.stalls import Stalls
from vmqos.agent import loop
from vmqos.agent.act import monitoring_groups
from vmqos.agent.observe import flavor_request as wishes
from vmqos.agent.observe import running_vms
from vmqos.agent.observe.told_flavors import Found
from vmqos.agent.remember import announce
from vmqos.agent.serve.sizes import Sizes
from vmqos.agent.snapshot import Snapshot
from vmqos.allocation import PromiseState
from vmqos.hypervisor import exceptions as hypervisor_exceptions
from vmqos.hypervisor import processes, vm_tasks
from vmqos.hypervisor.connection import Call
from vmqos.hypervisor.model import VirtualMachine
from vmqos.reason import Code
from vmqos.resctrl import topology


@pytest.fixture
def further_options() -> str:
    """What else the agent's configuration says."""
    return ""


@pytest.fixture
def host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, further_options: str
) -> Iterator[Host]:
    caplog.set_level(logging.INFO)
    with agent_in(tmp_path, monkeypatch, further_options) as found:
        yield found


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
        failed = host.agent.health
        assert failed.last_error and failed.failed_at is not None and failed.failed_at <= time.monotonic()
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


def test_a_pass_gives_way_while_groups_of_a_vm_are_made_that_is_being_started(host: Host) -> None:
    assert not host.agent.reconciler.is_wanted()
    host.agent._early._is_at_work = True
    assert host.agent.reconciler.is_wanted()


def test_what_needs_a_restart_is_not_taken_from_a_new_configuration(host: Host) -> None:
    before = host.agent.resctrl.lock_timeout, host.agent.resctrl.sysfs_cpu_path, host.agent.hostname
    text = re.sub("sysfs_cpu_path = .*", "sysfs_cpu_path = /nowhere", host.conf.read_text())
    text = re.sub("lock_timeout = .*", "lock_timeout = 77", text).replace(
        "audit_interval = 60", "audit_interval = 61", 1
    )
    host.conf.write_text(text + "[placement]\nhypervisor_hostname = another\n")
    host.agent._read_configuration_again()
    assert host.agent.conf.agent.audit_interval == 61
    assert (host.agent.resctrl.lock_timeout, host.agent.resctrl.sysfs_cpu_path, host.agent.hostname) == before
    host.agent.run_passes()
    assert not host.agent.health.last_error


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


def test_a_failed_pass_is_tried_again_soon_and_not_at_the_next_audit(host: Host, stalls: Stalls) -> None:
    first = host.libvirt.boot(TWO)
    with host.running():
        eventually(lambda: host.state(first) is PromiseState.KEPT)
        with host.locked():
            second = host.libvirt.boot(THREE)
            host.agent._on_change(second)
            eventually(lambda: "lock" in host.agent.health.unserved.get(second, ""))
        assert time_until(lambda: host.ways(second) == 3, stalls) < SOON
        eventually(lambda: not host.agent.health.unserved)


@pytest.mark.parametrize("told_by", ["libvirt", "/proc"])
def test_a_vm_that_has_ended_is_not_told_of_though_passes_fail(host: Host, trouble: Trouble, told_by: str) -> None:
    vm, other = host.serve(TWO), host.serve(THREE)
    host.settle()
    with trouble(host):
        host.libvirt.shut_off(vm)
        host.libvirt.is_connected = told_by == "libvirt"
        host.agent._on_change(vm)
        host.agent.run_passes()
        assert host.agent.snapshot.vms.keys() == {other}
        ends_told = [event["uuid"] for event in host.agent.events.after(0)["events"] if event["kind"] == "ended"]
        assert ends_told == [vm]
    assert host.ways(vm) == 2
    host.agent.run_passes()
    assert host.ways(vm) == 0 and host.ways(other) == 3, "the next pass that can removes its group"


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
    assert host.agent._retry.get(loop._PASS) is None

    def rests() -> bool:
        # Where other programs start many tasks, a pass may leave some of them to the next one.
        host.agent.run_passes()
        return host.agent._pause() > 50

    eventually(rests)


def test_the_service_manager_hears_of_the_agent_while_another_process_holds_the_lock(
    host: Host, stalls: Stalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
                    assert stalls.took(last) < watchdog, "the service manager would have killed the agent"
                    last = time.monotonic()
                assert "lock" in host.agent.health.last_error


def test_the_service_manager_hears_of_the_agent_between_passes_that_follow_each_other_at_once(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, passes = list[bytes](), list[int]()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LONG)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", str(10**9))
        run_pass = host.agent._run_pass

        def gets_further() -> bool:
            """Each pass may have waited for the lock for as long as one is allowed to."""
            passes.append(len(told))
            return run_pass() or len(passes) < loop.PASSES_IN_A_ROW

        def hear(state: str) -> None:
            notify(state)
            told.append(manager.recv(4096))

        notify = host.agent._notify
        monkeypatch.setattr(host.agent, "_run_pass", gets_further)
        monkeypatch.setattr(host.agent, "_notify", hear)
        with host.running():
            eventually(lambda: len(passes) >= loop.PASSES_IN_A_ROW)
    assert passes[: loop.PASSES_IN_A_ROW] == list(range(loop.PASSES_IN_A_ROW))
    assert all(b"WATCHDOG=1" in state for state in told[: loop.PASSES_IN_A_ROW])


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
    assert "passes: works again" in caplog.messages
    assert host.state(vm) is PromiseState.KEPT


def test_a_resctrl_that_fails_is_one_line_for_each_reason_and_one_when_it_works(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    host.serve(TWO)
    caplog.clear()
    with host.locked():
        for _ in range(3):
            host.agent.run_passes()
    host.resctrl.before, before = refuse, host.resctrl.before
    for _ in range(3):
        host.agent.run_passes()
    host.resctrl.before = before
    host.settle()
    found = [record for record in caplog.records if record.name in (loop.__name__, announce.__name__)]
    assert [(record.levelname, record.journal_fields["VMQOS_STATE"]) for record in found] == [  # type: ignore[attr-defined]
        ("ERROR", "fails"),
        ("ERROR", "fails"),
        ("INFO", "works"),
    ]
    assert "was not free" in found[0].message and "(EIO)" in found[1].message


def test_a_libvirt_that_fails_is_one_line_for_each_reason_and_one_when_it_works(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    def passes() -> None:
        for _ in range(3):
            host.agent.run_passes()

    host.serve(TWO)
    caplog.clear()
    host.libvirt.under_way = Call("virConnectListAllDomains", time.monotonic() - 2 * loop.HUNG_AFTER)
    passes()
    host.libvirt.is_connected, host.libvirt.last_error = False, "libvirtd closed the connection"
    passes()
    host.libvirt.under_way, host.libvirt.is_connected, host.libvirt.last_error = None, True, ""
    passes()
    found = [record for record in caplog.records if "libvirt" in record.message]
    assert [(record.levelname, record.message, record.journal_fields["VMQOS_PART"]) for record in found] == [  # type: ignore[attr-defined]
        (level, f"libvirt: {text}", "libvirt")
        for level, text in (
            ("WARNING", f"fails: libvirt does not answer virConnectListAllDomains{MEANS}"),
            ("WARNING", f"fails: no connection to {host.agent.uri}: libvirtd closed the connection{MEANS}"),
            ("INFO", "works again"),
        )
    ]


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


def test_systemd_is_told_that_the_counts_of_promises_are_of_before_the_last_pass(host: Host) -> None:
    host.serve(TWO)
    assert host.agent._summary().startswith("1 kept") and "failed" not in host.agent._summary()
    with host.locked():
        host.agent.run_passes()
        assert host.agent._summary().endswith("; the last pass failed")
    host.agent.run_passes()
    assert "failed" not in host.agent._summary()


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


def test_no_flavor_is_asked_for_where_nova_is_not_to_be_asked(host: Host) -> None:
    vm = host.libvirt.boot(None)
    host.agent.run_passes()
    assert host.agent.flavors.wanted() == []
    assert host.agent.snapshot.vms[vm].allocation.reason.code is Code.NO_EXTRA_SPECS


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


def sized(pid: int) -> dict[str, list[str]]:
    """A curve as a client tells it."""
    told = {"pid": f"{pid}", "ways": "2", "at_least": "false", "counted": "true", "steady": "true", "curve": "2:0.5:1"}
    return {name: [value] for name, value in told.items()}


@contextlib.contextmanager
def not_to_be_looked_at(host: Host, vm: str, trouble: str) -> Iterator[None]:
    known, read_file = host.libvirt.vms[vm], processes.read_file

    def fail(path: str, *rest: Any, **further: Any) -> bytes:
        if f"/{known.process.pid}/" in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read_file(path, *rest, **further)

    with pytest.MonkeyPatch.context() as patch:
        if trouble == "libvirt refuses to describe it":
            patch.setitem(host.libvirt.broken, vm, hypervisor_exceptions.HypervisorUnreachable(uri="test", error="no"))
        elif trouble == "libvirt hangs":
            patch.setattr(running_vms, "LOOK_DEADLINE", 0.01)
            patch.setitem(host.libvirt.hung, vm, threading.Event())
        elif trouble == "libvirt knows it no more":
            patch.delitem(host.libvirt.vms, vm)
        elif trouble == "libvirt is away":
            patch.setattr(host.libvirt, "is_connected", False)
        else:
            patch.setattr(processes, "read_file", fail)
        try:
            yield
        finally:
            if vm in host.libvirt.hung:
                host.libvirt.hung[vm].set()


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize(
    "trouble",
    [
        "libvirt refuses to describe it",
        "libvirt hangs",
        "libvirt knows it no more",
        "libvirt is away",
        "/proc does not tell of its process",
    ],
)
def test_what_is_remembered_of_a_vm_stays_while_it_can_not_be_looked_at(
    host: Host, trouble: str, everything: bool
) -> None:
    """A counter that goes back is a restart to Prometheus, and a curve takes minutes to be found again."""
    vm = host.serve(TWO)
    sizes = Sizes(lambda: host.agent.snapshot)
    sizes.take(vm, sized(host.libvirt.vms[vm].process.pid))
    promised = [0.0]

    def look() -> None:
        host.agent._on_change(None if everything else vm)
        host.agent.run_passes()
        spent = host.agent.snapshot.vms[vm].time
        assert spent is not None and [one["uuid"] for one in sizes.told()["sizes"]] == [vm]
        promised.append(spent.promised_until(time.monotonic()))

    look()
    with not_to_be_looked_at(host, vm, trouble):
        for _ in range(3):
            look()
    look()
    assert promised == sorted(promised) and promised[1] > 0
    host.libvirt.shut_off(vm)
    host.settle()
    assert vm not in host.agent.snapshot.vms and not sizes.told()["sizes"]
