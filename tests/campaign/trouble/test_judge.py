# SPDX-License-Identifier: Apache-2.0
"""The judge notices each of these faults, planted into the agent; and a killed agent changes nothing any more."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.trouble import faults
from tests.campaign.trouble import story as stories
from tests.campaign.trouble.clock import Clock
from tests.campaign.trouble.faults import FAULTS, Patch
from tests.campaign.trouble.host import Host
from tests.campaign.trouble.judge import Judge
from tests.campaign.trouble.killing import Killed, Killer
from tests.campaign.trouble.quiet_host import GIVES_IO_WAYS, Pins, Trouble
from tests.campaign.trouble.simulated import SimulatedHardware
from tests.campaign.trouble.story import Story, play, shortest
from tests.campaign.trouble.verdicts import Kind
from tests.campaign.trouble.vm import Vm
from tests.campaign.trouble.writes import Writes
from vmqos.agent.observe.lost_vms import Lost, LostVms

pytestmark = pytest.mark.timeout(900)
"""Seconds: stories take many times as long on a machine that has other work, and are the same there."""

STORIES = range(1, 40)
"""In one of these stories a fault has to show."""
OWN = {"hw:cache_ways": "2"}


@pytest.mark.parametrize(("plant", "kind"), FAULTS.items(), ids=[plant.__name__ for plant in FAULTS])
def test_a_fault_is_noticed(plant: Callable[[Patch], None], kind: Kind, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    for seed in STORIES:
        kinds = {violation.kind for violation in play(Story("cascade-lake", seed)).violations}
        if kind in kinds:
            return
    pytest.fail("it is not noticed")


def test_nothing_but_the_story_moves_its_clock_on() -> None:
    clock = Clock()
    before = clock.monotonic()
    time.sleep(0.01)
    assert clock.monotonic() == before
    clock.leap(0.5)
    assert clock.monotonic() == before + 0.5


@pytest.fixture
def killer() -> Killer:
    return Killer()


@pytest.fixture
def host(tmp_path: Path, killer: Killer) -> Iterator[Host]:
    made = Host(tmp_path, "cascade-lake", "", killer)
    yield made
    made.close()


def test_a_vm_that_waits_must_be_told_why(host: Host) -> None:
    judge = Judge(host)
    host.run(2)
    host.list_vm(vm := host.new_vm({"hw:cache_ways": "99"}))
    host.run(2)
    row, groups = judge._rows()[vm.uuid], host.troubled.groups()
    assert row["state"] == "pending" and not judge._wrong(vm, row, groups)
    assert "without a reason" in judge._wrong(vm, {**row, "reason": None, "reason_code": None}, groups)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_task_comes_back_to_ways_that_another_program_took_if_the_vm_is_told_so_then(
    host: Host, monkeypatch: Patch, is_told: bool
) -> None:
    host.reload("kernel_exclusive = false")
    judge = Judge(host)
    host.list_vm(vm := host.new_vm(OWN))
    host.run(2)
    host.touch_all()
    host.troubled.outside.mkdir("pqos")
    host.troubled.outside.write("pqos/schemata", "L3:0=7ff;1=7ff")
    host.troubled.outside.write("pqos/tasks", str(host.stranger()))
    host.troubled.outside.write("tasks", str(vm.pid))
    if not is_told:
        faults.every_promise_is_told_to_be_kept(monkeypatch)
    host.run()
    assert host.troubled.group_of(vm.pid) == vm.group
    kinds = {violation.kind for violation in judge.violations}
    assert kinds == (set() if is_told else {Kind.OVERLAP, Kind.WORD})


def test_another_programs_mask_is_its_own_until_the_agent_has_written_another(host: Host) -> None:
    judge = Judge(host)
    host.troubled.outside.write("schemata", "L3:0=7;1=7")
    host.foreign[""] = before = host.troubled.groups()[""].masks
    judge.after("write", "schemata", "L3:0=7ff;1=7ff\n")
    assert host.foreign[""] == before, "this write was refused"
    host.troubled.outside.write("schemata", "L3:0=7ff")
    judge.after("write", "schemata", "L3:0=7ff\n")
    host.troubled.outside.write("schemata", "L3:0=7")
    judge.after("write", "schemata", "L3:0=7\n")
    assert host.foreign[""] == {cache: mask for cache, mask in before.items() if cache != (3, 0)}


@pytest.mark.parametrize("is_told", [True, False])
def test_a_group_may_have_just_the_default_groups_mask_if_the_vm_is_not_told_to_have_ways(
    host: Host, monkeypatch: Patch, is_told: bool
) -> None:
    host.reload("kernel_exclusive = false")
    judge = Judge(host)
    host.list_vm(vm := host.new_vm(OWN))
    host.list_vm(host.new_vm({"hw:cache_ways": "1"}))
    host.run(2)
    host.touch_all()
    # On cache 0 there is room for the other VM and the default group alone, which has as many ways as this VM asks for.
    host.troubled.outside.rmdir(vm.group)
    host.troubled.outside.mkdir("pqos")
    host.troubled.outside.write("pqos/schemata", "L3:0=7f8;1=700")
    if not is_told:
        faults.every_promise_is_told_to_be_kept(monkeypatch)
    host.run()
    own, default = host.troubled.groups()[vm.group], host.troubled.groups()[""]
    assert own.masks[3, 0] == default.masks[3, 0] == 0b11 and host.troubled.group_of(vm.pid) == vm.group
    kinds = {violation.kind for violation in judge.violations}
    assert kinds == (set() if is_told else {Kind.OVERLAP})


@pytest.mark.parametrize("is_planted", [False, True])
def test_it_is_noticed_that_what_a_vm_has_is_taken_for_what_it_was_promised(
    host: Host, monkeypatch: Patch, is_planted: bool
) -> None:
    if is_planted:
        faults.what_a_vm_has_is_taken_for_what_it_was_promised(monkeypatch)
    judge = Judge(host)
    host.run(2)
    host.list_vm(vm := host.new_vm(OWN))
    host.run(2)
    host.trouble = Trouble(error=errno.EIO)
    host.change_flavor(vm, {"hw:cache_ways": "4"})
    # The pass after the one that is refused has the VM keep what it has. The time to try again comes within it, for to
    # plan takes as long.
    passes = host.passes
    host.run()
    assert host.passes == passes + 2 and not host.agent.backoff.waits(vm.uuid)
    assert [violation.kind for violation in judge.violations] == ([Kind.WORD] if is_planted else [])
    assert all("is told to have all" in violation.text for violation in judge.violations)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_planted", [False, True])
def test_it_is_noticed_that_a_vm_has_lost_its_class_before_it_has_another_group(
    host: Host, monkeypatch: Patch, is_planted: bool, is_restarted: bool
) -> None:
    if is_planted:
        faults.a_vm_is_thrown_out_of_its_group(monkeypatch)
    judge, real = Judge(host), host.troubled.before
    host.run(2)
    host.list_vm(vm := host.new_vm({**OWN, "hw:cache_policy": "shared"}))
    host.run(2)

    def refuse(operation: str, path: str) -> None:
        if operation == "mkdir" and path == vm.group:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        real(operation, path)

    monkeypatch.setattr(host.troubled, "before", refuse)
    host.change_flavor(vm, OWN)
    if is_restarted:
        host.restart()
    host.run(2)
    assert {violation.kind for violation in judge.violations} == ({Kind.UNSERVED} if is_planted else set())


def test_a_vm_may_leave_its_group_while_its_ways_are_not_its_own_and_can_not_be_made_so(
    host: Host, monkeypatch: Patch
) -> None:
    host.reload("kernel_exclusive = false")
    judge, real = Judge(host), host.troubled.before
    host.run(2)
    host.list_vm(vm := host.new_vm(OWN))
    host.run(2)
    host.touch_all()
    # The default group has these ways, too.
    host.troubled.outside.write(f"{vm.group}/schemata", "L3:0=600;1=600")

    def refuse(operation: str, path: str) -> None:
        if operation == "write" and path == f"{vm.group}/schemata":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        real(operation, path)

    monkeypatch.setattr(host.troubled, "before", refuse)
    host.run(2)
    assert host.troubled.group_of(vm.pid) == "" and not judge.violations


def test_a_vm_may_have_fewer_ways_for_a_while_if_the_operator_takes_those_of_io_back(host: Host) -> None:
    judge = Judge(host)
    host.reload(GIVES_IO_WAYS)
    host.run(2)
    first, second, third = (host.new_vm({"hw:cache_ways": ways}) for ways in ("3", "2", "1"))
    for vm in (first, second, third):
        host.list_vm(vm)
        host.run(2)
    host.end_vm(second)
    host.run(2)
    host.list_vm(fourth := host.new_vm({"hw:cache_ways": "4"}))
    host.run(2)
    left = first, third, fourth
    assert [vm.in_force for vm in left] == [True, True, True]
    assert host.troubled.groups()[fourth.group].masks[3, 0] & 0x600
    host.reload("")
    assert [vm.in_force for vm in left] == [True, True, False]
    host.run(2)
    assert [vm.in_force for vm in left] == [True, True, True]
    assert not host.troubled.groups()[fourth.group].masks[3, 0] & 0x600
    assert not judge.violations


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_vm_that_libvirt_has_lost_must_keep_its_ways_under_the_next_agent(
    host: Host, monkeypatch: Patch, is_forgotten: bool
) -> None:
    if is_forgotten:
        monkeypatch.setattr(LostVms, "look", lambda self, *_, **__: Lost())
    judge = Judge(host)
    host.run(2)
    host.list_vm(vm := host.new_vm(OWN))
    host.run(2)
    assert vm.in_force
    host.end_vm(vm, process_lives=True)
    host.restart()
    host.run(2)
    assert {violation.kind for violation in judge.violations} == ({Kind.OVERLAP} if is_forgotten else set())
    host.end_vm(vm)
    host.run(2)
    assert host.troubled.groups().keys() == {""}


def test_ways_of_the_l2_are_there_when_the_vm_starts_and_must_be_its_alone(tmp_path: Path, killer: Killer) -> None:
    host = Host(tmp_path, "sapphire-rapids", "", killer)
    try:
        judge, cpus = Judge(host), frozenset({min(host.troubled.cpus)})
        host.run(2)
        vm = host.new_vm({"hw:cache_ways": "1", "hw:l2_cache_ways": "2"}, vcpus=2, pins=Pins((cpus, cpus), cpus))
        host.begin_early(vm, forked=False)
        host.begin_early(vm, forked=True)
        started = host.troubled.groups()
        assert (
            started[vm.group].masks[2, 0].bit_count() == 2
            and not started[vm.group].masks[2, 0] & started[""].masks[2, 0]
        )
        host.list_vm(vm)
        host.run(2)
        row, groups = judge._rows()[vm.uuid], host.troubled.groups()
        assert row["state"] == "kept" and vm.in_force and not judge._wrong(vm, row, groups)
        groups[""].masks[2, 0] |= groups[vm.group].masks[2, 0]
        assert "on L2 0, and the default group has it too" in judge._wrong(vm, row, groups)
        assert not judge.violations
    finally:
        host.close()


@pytest.mark.parametrize("is_seen_by_a_pass", [True, False])
@pytest.mark.parametrize("mask", ["", "3ff"], ids=["the default group's mask", "another mask"])
def test_a_vm_may_be_born_with_the_default_groups_mask_on_a_cache_that_a_pass_found_full(
    host: Host, is_seen_by_a_pass: bool, mask: str
) -> None:
    host.reload("kernel_exclusive = false")
    judge, last = Judge(host), max(host.troubled.cpus)
    host.run(2)
    host.troubled.outside.mkdir("pqos")
    host.troubled.outside.write("pqos/schemata", "L3:0=7")
    host.troubled.switch(last, False)
    host.run(2)
    vm = host.new_vm(OWN)
    host.begin_early(vm, forked=False)
    # Every group has all of a cache that comes online, and nobody takes it from the other program's.
    host.troubled.switch(last, True)
    if is_seen_by_a_pass:
        host.run()
    if mask:
        host.troubled.outside.write(f"{vm.group}/schemata", f"L3:1={mask}")
    host.begin_early(vm, forked=True)
    own, default = host.troubled.groups()[vm.group], host.troubled.groups()[""]
    assert vm.pid in own.tasks and own.masks[3, 0].bit_count() == 2 and default.masks[3, 1] == 0x7FF
    kinds = {violation.kind for violation in judge.violations}
    assert kinds == (set() if is_seen_by_a_pass and not mask else {Kind.OVERLAP})


def test_a_look_that_the_machine_has_no_cpu_for_does_not_count(host: Host, monkeypatch: Patch) -> None:
    judge, outcome, real = Judge(host), stories.Outcome(), host.libvirt.describe
    host.run(2)

    def describe(uuid: str) -> Any:
        time.sleep(1.0)
        return real(uuid)

    monkeypatch.setattr(host.libvirt, "describe", describe)
    host.list_vm(host.new_vm(OWN))
    stories.be_quiet(host, judge, outcome)
    host.let_looks_end()
    assert not judge.violations and outcome.longest < 1.0


def test_of_a_vm_that_is_not_served_is_told_what_the_agent_waits_for(host: Host, monkeypatch: Patch) -> None:
    judge, outcome = Judge(host), stories.Outcome()
    host.run(2)
    host.trouble = Trouble(error=errno.EIO)
    monkeypatch.setattr(host, "calm", lambda: None)
    host.list_vm(host.new_vm(OWN))
    stories.be_quiet(host, judge, outcome)
    unserved = [violation.text for violation in judge.violations if violation.kind is Kind.UNSERVED]
    assert any(re.search(r"it tries again: .* in 0\.\d\d s of 0\.\d\d \(.*EIO", text) for text in unserved)


def test_a_story_that_breaks_off_names_the_command_that_plays_it_again(monkeypatch: Patch) -> None:
    def be_quiet(*_: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(stories, "be_quiet", be_quiet)
    with pytest.raises(OSError, match="Bad file") as raised:
        play(story := Story("minimal", 1, only=()))
    assert story.command in raised.value.__notes__[0]


def test_a_killed_agent_changes_nothing_any_more_and_the_next_one_goes_on(host: Host, killer: Killer) -> None:
    judge = Judge(host)
    host.run(2)
    left = list[object]()

    def before(operation: str, path: str) -> None:
        try:
            killer.before(operation, path)
        except Killed:
            left.append(host.troubled.groups())
            raise

    host.troubled.before = before
    for operation in range(1, 30):
        host.list_vm(vm := host.new_vm(OWN))
        kills = len(left)
        killer.arm(operations=operation)
        host.run()
        killer.arm()
        if len(left) > kills:
            assert host.troubled.groups() == left[-1]
        host.run(2)
        assert not judge.unsettled()
        host.end_vm(vm)
        host.run(2)
        assert not judge.unsettled() and host.troubled.groups().keys() == {""}
    assert killer.kills == len(left) > 10 and not judge.violations


def test_an_agent_is_killed_at_a_line(host: Host, killer: Killer) -> None:
    host.run(2)
    for lines in range(1, 400, 20):
        agent = host.agent
        killer.arm(lines=lines)
        host.list_vm(host.new_vm(OWN))
        host.run()
        assert host.agent is not agent
    assert killer.kills == len(killer.places) == 20
    assert {place.partition("/")[0] for place in killer.places} >= {"agent", "resctrl"}


def test_a_dead_agents_lock_is_free(host: Host, killer: Killer) -> None:
    host.run(2)
    host.list_vm(host.new_vm(OWN))
    killer.arm(operations=5)
    agent = host.agent
    host.run()
    assert host.agent is not agent
    with host.resctrl.lock(exclusive=True, timeout=0.5):
        pass


def test_a_thread_of_a_dead_agent_that_waits_for_the_lock_closes_nothing_of_the_next_one(
    host: Host, monkeypatch: Patch
) -> None:
    is_scheduled = threading.Event()

    def flock(descriptor: int, operation: int) -> None:
        """The thread is scheduled late, and the kernel refuses a descriptor that was closed meanwhile."""
        is_scheduled.wait()
        if os.readlink(f"/proc/self/fd/{descriptor}") != str(host.troubled.root):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr("vmqos.resctrl.lock.fcntl.flock", flock)
    waiter = host.resctrl._lock._adopt_or_start(os.open(host.troubled.root, os.O_RDONLY), fcntl.LOCK_EX)
    host.restart()
    is_scheduled.set()
    waiter.join()
    host.agent._wakeup.set()
    assert f"/proc/self/fd/{waiter.descriptor}" not in _open_files(host.troubled.root)


def _open_files(path: Path) -> list[str]:
    """The descriptors of this process that are of a file."""
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [name for name in names if os.path.exists(name) and os.readlink(name) == str(path)]


def test_a_story_is_the_same_each_time_and_its_shortest_part_is_a_part_of_it(monkeypatch: Patch) -> None:
    faults.groups_are_left(monkeypatch)
    story = next(one for seed in STORIES if play(one := Story("minimal", seed)).violations)
    assert story.events() == Story("minimal", story.seed).events()
    found = shortest(story, seconds=600.0)
    assert found.only is not None and len(found.only) < stories.EVENTS_OF_A_STORY / 2
    assert set(found.events()) <= set(story.events())
    assert Kind.LEAK in {violation.kind for violation in play(found).violations}
    assert f"--seed {story.seed} --only {','.join(map(str, found.only))}" in found.command


@pytest.mark.parametrize("directory", ["", "mon_groups/vmqos.a", "vmqos.a"])
def test_a_task_of_a_vm_of_another_host_must_not_be_moved(host: Host, directory: str) -> None:
    vm = Vm(uuid="a", specs=OWN, pid=os.getpid(), cpus=frozenset({0}), is_elsewhere=True)
    judge = Writes(SimulatedHardware(host.troubled.machine), lambda: [vm], lambda: False)
    assert not list(judge.after("write", f"{directory}/tasks".lstrip("/"), str(os.getppid())))
    (found,) = judge.after("write", f"{directory}/tasks".lstrip("/"), f"{os.getppid()},{os.getpid()}\n")
    assert "1 tasks of a VM of another host" in found


def test_a_zombie_has_ended() -> None:
    process = subprocess.Popen(["true"])
    vm = Vm(uuid="a", specs=OWN, pid=process.pid, cpus=frozenset({0}))
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert vm.tasks() and not vm.is_alive
    process.wait()
