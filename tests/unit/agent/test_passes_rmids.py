# SPDX-License-Identifier: Apache-2.0
"""A promise goes before a graph, and an event before a look at all VMs."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.unit.agent.host import OWN, SHARED, Host, MakeHost
from vmqos.agent.act import monitoring_groups
from vmqos.allocation import PromiseState
from vmqos.simulator.hardware import rmids

KEPT = PromiseState.KEPT


def run_until(host: Host, reached: Callable[[], bool], *, everything: bool = True) -> None:
    """Passes, until the kernel gives out RMIDs again: it looks once a second whether it can."""
    for _ in range(50):
        host.clock += 1.1
        host.run(everything=everything)
        if reached():
            return
        time.sleep(0.2)
    pytest.fail("the RMIDs did not come back")


def test_graphs_that_one_pass_had_no_time_for_are_made_by_those_after_it(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring_groups, "MAKING", 0.0)
    host = make_host("minimal")
    plain = [host.boot({}) for _ in range(4)]
    host.settle()
    assert host.graphs() == set(plain)


def test_the_latest_plain_vm_gives_up_its_graph_for_a_promise(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, the kernel's second of limbo may be over before the test has looked.
    monkeypatch.setattr(rmids, "CHECK_INTERVAL", 3600.0)
    host = make_host("minimal")
    allocator = host.resctrl.machine.hardware.rmids
    plain = [host.boot({}) for _ in range(4)]
    host.settle()
    assert host.graphs() == set(plain)
    for number in range(3):
        host.resctrl.mkdir(f"mon_groups/telegraf{number}")
    vm = host.boot(OWN)
    host.settle()
    assert host.graphs() == set(plain[:3]) and host.told(vm).state is PromiseState.PENDING
    assert vm in host.unmonitored(plain[3]) and "no RMID is left" in host.unmonitored(plain[3])
    for _ in range(3):
        host.run()
    assert host.graphs() == set(plain[:3]), "one is enough"
    for rmid in allocator.in_limbo:
        allocator.release(rmid)
    monkeypatch.setattr(rmids, "CHECK_INTERVAL", 1.0)
    run_until(host, lambda: host.told(vm).state is KEPT)
    for _ in range(5):
        host.run(everything=True)
        assert host.graphs() == set(plain[:3]) and host.told(vm).state is KEPT
    assert vm in host.unmonitored(plain[3])
    for number in range(3):
        host.resctrl.rmdir(f"mon_groups/telegraf{number}")
    # A pass whose share of the lock is used up moves its tasks later.
    run_until(host, lambda: host.graphs() == set(plain) and not host.unmonitored(plain[3]))


def test_what_another_program_frees_during_a_pass_is_given_out_by_a_later_one(make_host: MakeHost) -> None:
    host = make_host("minimal")
    taken = [f"mon_groups/telegraf{number}" for number in range(7)]
    for name in taken:
        host.resctrl.mkdir(name)
    waits = host.boot({})
    host.settle()
    assert "no RMID is left" in host.unmonitored(waits)

    def free(path: str) -> None:
        # Between the plan and the last look.
        if path.endswith("tasks"):
            host.resctrl.before = lambda path: None
            for name in taken:
                host.resctrl.rmdir(name)

    host.resctrl.before = free
    host.boot({})
    host.run()
    assert not any(name.startswith("telegraf") for name in host.resctrl.directories("mon_groups"))
    run_until(host, lambda: waits in host.graphs(), everything=False)


def test_what_another_program_frees_while_libvirt_does_not_answer_is_given_out_afterwards(make_host: MakeHost) -> None:
    host = make_host("minimal")
    taken = [f"mon_groups/telegraf{number}" for number in range(7)]
    for name in taken:
        host.resctrl.mkdir(name)
    waits = host.boot({})
    host.settle()
    for name in taken:
        host.resctrl.rmdir(name)
    # What the loop does then instead of a pass.
    host.reconciler.read(host.topology, host.policy)
    run_until(host, lambda: waits in host.graphs(), everything=False)


def test_a_promise_that_waits_for_an_rmid_is_tried_every_second_and_keeps_no_other_waiting(
    make_host: MakeHost,
) -> None:
    host = make_host("minimal")
    taken = [f"mon_groups/telegraf{number}" for number in range(7)]
    for name in taken:
        host.resctrl.mkdir(name)
    vm = host.boot(OWN)
    for name in taken:
        # All that are free are in limbo.
        host.resctrl.rmdir(name)
    for _ in range(8):
        host.run()
        failure = host.backoff.get(vm)
        assert failure is not None and failure.delay <= 1.0
        host.clock += 1.0
    run_until(host, lambda: host.told(vm).state is KEPT)


def test_a_vm_does_not_wait_for_its_ways_until_strays_were_looked_for(host: Host) -> None:
    touched: list[str] = []
    host.boot({})
    host.settle()
    vm = host.boot(OWN)
    host.resctrl.before = touched.append
    host.run()
    assert touched.index(f"vmqos.{vm}/schemata", touched.index(f"vmqos.{vm}")) < touched.index("tasks")
    # A pass that has nothing else to do looks, too.
    host.settle()
    touched.clear()
    host.run()
    assert "tasks" in touched and not any(path.endswith("/tasks") for path in touched)
    host.resctrl.write("tasks", str(host.libvirt.vms[vm].process.pid))
    host.settle()
    assert host.inside(vm, f"vmqos.{vm}") == 1


def test_the_group_of_a_vm_that_ended_is_gone_before_strays_are_looked_for(host: Host) -> None:
    touched: list[str] = []
    ends, stays = host.boot(OWN), host.boot(OWN)
    host.settle()
    host.libvirt.shut_off(ends)
    host.resctrl.before = touched.append
    host.run(everything=True)
    assert touched.index(f"vmqos.{ends}") < touched.index("tasks") < touched.index(f"vmqos.{stays}/tasks")
    assert host.groups() == {f"vmqos.{stays}"} and host.told(stays).state is KEPT


def test_a_class_is_removed_after_the_tasks_of_its_vm_are_in_the_vms_own_group(host: Host) -> None:
    touched: list[str] = []
    vm = host.boot(SHARED)
    host.settle()
    shared = host.told(vm).group
    host.libvirt.resize(vm, OWN)
    host.resctrl.before = touched.append
    host.run()
    assert touched.index(f"vmqos.{vm}/tasks") < touched.index(shared)
    assert host.groups() == {f"vmqos.{vm}"} and host.inside(vm, f"vmqos.{vm}") == len(host.threads(vm))
