# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import itertools
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.unit.telemetry import fake_perf
from tests.unit.telemetry.fake_perf import FakePerf
from vmqos.agent.act.move_tasks import TaskGroup, TaskPlacement
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.sample import hardware_counts
from vmqos.agent.sample.hardware_counts import HardwareCounts, Look, Uncounted, VmCounts
from vmqos.agent.sample.history import executed_of
from vmqos.agent.vm_record import VmRecord
from vmqos.conf import loader
from vmqos.hypervisor import processes, vm_tasks
from vmqos.hypervisor.model import VirtualMachine

Boot = Callable[..., VmRecord]
Make = Callable[..., HardwareCounts]

THREADS = """
import sys, threading, time
for _ in range(int(sys.argv[1])): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print(flush=True)
time.sleep(1000)
"""


@pytest.fixture
def perf(monkeypatch: pytest.MonkeyPatch) -> FakePerf:
    monkeypatch.setattr(hardware_counts, "YOUNG", 0.0)
    # A look is waited for however long this machine has no CPU for it.
    monkeypatch.setattr(hardware_counts, "PATIENCE", 60.0)
    return fake_perf.put_in_place(monkeypatch)


@pytest.fixture
def boot() -> Iterator[Boot]:
    """Starts the process of a VM; returns the VM."""
    started: list[subprocess.Popen[str]] = []
    numbers = itertools.count()

    def start(threads: int = 0, uuid: str = "") -> VmRecord:
        process = subprocess.Popen([sys.executable, "-c", THREADS, str(threads)], text=True, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "\n"
        uuid = uuid or f"u{next(numbers)}"
        vm = VirtualMachine(uuid, "vm", 1, processes.of_pid(process.pid), None, False, None)
        return VmRecord(ObservedVm(vm, frozenset({0})))

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def make() -> Iterator[Make]:
    """Each question is answered by a new look."""
    made: list[HardwareCounts] = []

    def make(*vms: VmRecord, interval: float = 0.0, most_files: int = 1000) -> HardwareCounts:
        counts = HardwareCounts(lambda: counts.records, interval, most_files=most_files)  # type: ignore[attr-defined]
        counts.fresh_for = -1.0
        put(counts, *vms)
        made.append(counts)
        counts.start()
        return counts

    yield make
    for counts in made:
        counts.stop()


def put(counts: HardwareCounts, *vms: VmRecord) -> None:
    """Have these VMs run from now on, and no other ones."""
    counts.records = {record.uuid: record for record in vms}  # type: ignore[attr-defined]


def pid(record: VmRecord) -> int:
    return record.observed.vm.process.pid


def counted(look: Look, record: VmRecord) -> VmCounts:
    found = look.vms[record.uuid]
    assert isinstance(found, VmCounts), found
    return found


def trouble(look: Look, record: VmRecord) -> Uncounted:
    found = look.vms[record.uuid]
    assert isinstance(found, Uncounted), found
    return found


def test_the_threads_of_each_vm_are_added_up_since_the_first_look(perf: FakePerf, boot: Boot, make: Make) -> None:
    one, other = boot(threads=2), boot()
    counts = make(one, other)
    first = counted(counts.newest(), one)
    assert (first.counts, first.rates, first.share) == ((0, 0, 0, 0), None, None)
    assert len(perf.tasks) == 4
    own = [tid for tid in perf.tasks if tid in processes.tasks(pid(one))]
    perf.says |= dict.fromkeys(own, (100, 100, 40, 30, 20, 10))
    perf.says[pid(other)] = (100, 50, 7, 0, 0, 0)
    look = counts.newest()
    assert counted(look, one).counts == (120, 90, 60, 30)
    assert counted(look, one).share == 1.0
    assert (counted(look, other).counts, counted(look, other).share) == ((14, 0, 0, 0), 0.5)
    perf.says[own[0]] = (200, 200, 140, 130, 120, 110)
    look = counts.newest()
    assert counted(look, one).counts == (220, 190, 160, 130)
    assert counted(look, other).share is None, "its tasks did not run"
    assert first.since == counted(look, one).since <= time.time()


def test_rates_are_those_between_two_looks(perf: FakePerf, boot: Boot, make: Make) -> None:
    one = boot()
    counts = make(one)
    began = time.monotonic()
    counts.newest()
    after = time.monotonic()
    time.sleep(0.05)
    perf.says[pid(one)] = (10, 10, 1000, 500, 20, 10)
    before = time.monotonic()
    rates = counted(counts.newest(), one).rates
    assert rates is not None
    assert 1000 / (time.monotonic() - began) <= rates[0] <= 1000 / (before - after)
    assert rates[0] == pytest.approx(2 * rates[1])


def test_a_vm_that_is_gone_is_forgotten_with_its_files(perf: FakePerf, boot: Boot, make: Make) -> None:
    one, other = boot(), boot(threads=1)
    counts = make(one, other)
    counts.newest()
    assert perf.descriptors == 12
    put(counts, one)
    assert set(counts.newest().vms) == {one.uuid}
    assert perf.descriptors == 4
    counts.stop()
    assert perf.descriptors == 0


def test_a_vm_that_is_started_anew_is_counted_anew(perf: FakePerf, boot: Boot, make: Make) -> None:
    first, second = boot(uuid="u"), boot(uuid="u")
    counts = make(first)
    counts.newest()
    perf.says[pid(first)] = (1, 1, 5, 5, 5, 5)
    assert counted(counts.newest(), first).counts == (5, 5, 5, 5)
    put(counts, second)
    assert counted(counts.newest(), second).counts == (0, 0, 0, 0)
    assert perf.tasks == [pid(second)]


def test_a_vm_that_was_just_started_is_counted_a_little_later(
    perf: FakePerf, boot: Boot, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware_counts, "YOUNG", 1000.0)
    one = boot()
    counts = make(one)
    assert trouble(counts.newest(), one).word == "starting"
    monkeypatch.setattr(hardware_counts, "YOUNG", 0.0)
    assert counted(counts.newest(), one)


def test_a_host_without_hardware_events_is_said_once_and_not_asked_all_the_time(
    perf: FakePerf, boot: Boot, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    perf.refuses[0] = errno.ENOENT
    one = boot()
    with caplog.at_level(logging.INFO):
        counts = make(one)
        looks = [counts.newest() for _ in range(3)]
    assert looks[0] is looks[2]
    why = "this kernel gives no hardware events, as in most virtual machines"
    assert (looks[0].unavailable, looks[0].unavailable_code, looks[0].vms) == (why, "no-events", {})
    assert [record.message for record in caplog.records] == [f"hardware events are not counted: {why}"]


def test_one_vms_refusal_is_its_own_and_is_tried_again_later(
    perf: FakePerf, boot: Boot, make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = boot(), boot()
    perf.refuses[pid(one)] = errno.EACCES
    counts = make(one, other)
    for _ in range(3):
        look = counts.newest()
        assert trouble(look, one) == Uncounted("refused", "not permitted: run it as root, or with CAP_PERFMON")
        assert counted(look, other)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    perf.refuses.clear()
    assert trouble(counts.newest(), one)
    monkeypatch.setattr(hardware_counts.time, "monotonic", lambda real=time.monotonic: real() + 61)
    assert counted(counts.newest(), one)


def test_the_vm_that_came_first_has_the_files_and_the_others_are_told_why_they_have_none(
    perf: FakePerf, boot: Boot, make: Make
) -> None:
    first, second = boot(threads=2), boot()
    second = replace(second, observed=replace(second.observed, vm=replace(second.observed.vm, uuid="a")))
    counts = make(second, first, most_files=12)
    look = counts.newest()
    assert counted(look, first)
    assert trouble(look, second) == Uncounted(
        "no-files", "the files that may be open for counters, 12, are taken by other VMs"
    )
    assert perf.descriptors == 12


def test_a_vm_with_too_many_tasks_is_not_counted(
    perf: FakePerf, boot: Boot, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware_counts, "MOST_TASKS", 2)
    one, other = boot(threads=2), boot()
    look = make(one, other).newest()
    assert trouble(look, one).word == "too-many-tasks"
    assert counted(look, other)


def test_a_process_that_ended_is_said_and_not_logged(
    perf: FakePerf, boot: Boot, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    one = boot()
    gone = replace(one.observed.vm.process, start_time=1)
    look = make(replace(one, observed=replace(one.observed, vm=replace(one.observed.vm, process=gone)))).newest()
    assert trouble(look, one).word == "ended"
    assert caplog.records == []


def test_a_group_that_is_not_inherited_whole_is_opened_anew_at_the_next_look(
    perf: FakePerf, boot: Boot, make: Make
) -> None:
    one = boot()
    counts = make(one)
    counts.newest()
    perf.read_fails[pid(one)] = errno.ECHILD
    assert trouble(counts.newest(), one).word == "threads-keep-coming"
    perf.read_fails.clear()
    assert counted(counts.newest(), one).counts == (0, 0, 0, 0)


def test_the_trouble_of_one_vm_is_no_others_where_many_are_read_together(
    perf: FakePerf, boot: Boot, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware_counts, "_TOGETHER", 3)
    vms = [boot(threads=1) for _ in range(4)]
    counts = make(*vms)
    counts.newest()
    for number in range(1, 7):
        perf.says |= {pid(vm): (number, number, 10 * number, 0, 0, 0) for vm in vms}
        perf.read_fails = {pid(vms[1]): errno.EIO} if number == 3 else {}
        look = counts.newest()
        assert look.vms.keys() == {vm.uuid for vm in vms}
        assert [counted(look, vms[at]).counts[0] for at in (0, 2, 3)] == [10 * number] * 3
        if number < 3:
            assert counted(look, vms[1]).counts[0] == 10 * number
        else:
            assert trouble(look, vms[1]).word == "refused"
    monkeypatch.setattr(hardware_counts.time, "monotonic", lambda real=time.monotonic: real() + 61)
    counts.newest()
    perf.says |= {pid(vm): (8, 8, 80, 0, 0, 0) for vm in vms}
    look = counts.newest()
    assert [counted(look, vm).counts[0] for vm in vms] == [80, 20, 80, 80]


def test_of_a_vm_whose_tasks_sleep_the_same_is_told_until_they_run(perf: FakePerf, boot: Boot, make: Make) -> None:
    one = boot()
    counts = make(one)
    counts.newest()
    perf.says[pid(one)] = (10, 10, 5, 5, 5, 5)
    ran, slept, sleeps = (counted(counts.newest(), one) for _ in range(3))
    assert (slept.counts, slept.rates, slept.share) == (ran.counts, (0.0, 0.0, 0.0, 0.0), None)
    assert sleeps is slept
    perf.says[pid(one)] = (20, 20, 15, 5, 5, 5)
    assert counted(counts.newest(), one).counts == (15, 5, 5, 5)
    assert counted(counts.newest(), one).counts == (15, 5, 5, 5)


def test_a_fault_of_ours_is_that_vms_reason_and_is_logged(
    perf: FakePerf, boot: Boot, make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = boot(), boot()
    real = vm_tasks.lister

    def lister(vm: VirtualMachine) -> object:
        if vm.uuid == one.uuid:
            raise ZeroDivisionError("division by zero")
        return real(vm)

    monkeypatch.setattr(vm_tasks, "lister", lister)
    look = make(one, other).newest()
    assert trouble(look, one) == Uncounted("agent-fault", "counting it failed: ZeroDivisionError: division by zero")
    assert counted(look, other)
    (logged,) = caplog.records
    assert logged.exc_info is not None


def with_tasks(record: VmRecord, *tasks: int) -> VmRecord:
    return replace(record, tasks=TaskPlacement(TaskGroup("g"), frozenset(tasks), frozenset()))


def test_a_helper_that_comes_later_is_counted_too_and_a_new_thread_of_qemu_is_counted_already(
    perf: FakePerf, boot: Boot, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, helper = boot(threads=1), boot()
    threads = processes.tasks(pid(one))
    counts = make(with_tasks(one, *threads))
    counts.newest()
    assert perf.tasks == sorted(threads)
    put(counts, with_tasks(one, *threads, pid(one) + 100_000))
    counts.newest()
    assert perf.tasks == sorted(threads), "no task of the VM's but QEMU's own"
    in_cgroup = threads | {pid(helper)}
    monkeypatch.setattr(vm_tasks.cgroup, "processes_in", lambda folder: {pid(one), pid(helper)})
    in_folder = replace(one, observed=replace(one.observed, vm=replace(one.observed.vm, cgroup="/somewhere")))
    put(counts, with_tasks(in_folder, *in_cgroup))
    counts.newest()
    assert perf.tasks == sorted(in_cgroup)


def test_helpers_take_no_more_files_than_there_are(
    perf: FakePerf, boot: Boot, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, helper = boot(), boot()
    counts = make(one, most_files=7)
    assert counted(counts.newest(), one)
    monkeypatch.setattr(vm_tasks.cgroup, "processes_in", lambda folder: {pid(one), pid(helper)})
    in_folder = replace(one, observed=replace(one.observed, vm=replace(one.observed.vm, cgroup="/somewhere")))
    put(counts, with_tasks(in_folder, pid(one), pid(helper)))
    assert trouble(counts.newest(), one).word == "no-files"
    assert perf.descriptors == 0


def test_regular_looks_need_no_question(perf: FakePerf, boot: Boot, make: Make) -> None:
    one = boot()
    counts = make(one, interval=0.02)
    counts.fresh_for = 1000.0
    deadline = time.monotonic() + 20
    while (look := counts.newest()).monotonic is None or counted(look, one).counts != (1, 2, 3, 4):
        perf.says[pid(one)] = (1, 1, 1, 2, 3, 4) if perf.tasks else (0, 0, 0, 0, 0, 0)
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_history_gets_what_the_last_look_found_and_never_waits_for_one(
    perf: FakePerf, boot: Boot, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, idle = boot(), boot()
    counts = make(one, idle)
    # Looks are only made when they are asked for, and none of them is too old.
    counts.interval = 1000.0
    assert counts.executing() == {}
    counts.newest()
    assert counts.executing() == {}, "the first look has no rates"
    time.sleep(0.01)
    perf.says[pid(one)] = (20, 10, 1000, 1500, 20, 10)
    rates = counted(counts.newest(), one).rates
    assert rates is not None
    per_cycle, *others = executed_of(rates, counts.executing()[one.uuid].share)
    assert per_cycle == pytest.approx(1.5)
    assert others == [rates[1], rates[3], 0.5]
    assert counts.executing()[idle.uuid][2:] == ((0.0, 0.0, 0.0, 0.0), None)
    counts.interval = 0.001
    time.sleep(0.01)
    assert counts.executing() == {}, "the last look is too old"


@pytest.mark.parametrize("sleeps", [False, True])
def test_what_is_made_up_for_after_others_had_the_counters_is_no_burst(
    perf: FakePerf, boot: Boot, make: Make, sleeps: bool
) -> None:
    one = boot()
    counts = make(one)
    counts.newest()
    time.sleep(0.3)
    perf.says[pid(one)] = (10, 0, 0, 0, 0, 0)
    assert counted(counts.newest(), one).rates is None
    if sleeps:
        assert counted(counts.newest(), one).rates == (0.0, 0.0, 0.0, 0.0)
    perf.says[pid(one)] = (20, 10, 1000, 1000, 1000, 1000)
    found = counted(counts.newest(), one)
    assert found.counts == (2000, 2000, 2000, 2000)
    assert found.rates is not None and max(found.rates) <= 2000 / 0.3
    perf.says[pid(one)] = (30, 20, 1010, 1010, 1010, 1010)
    time.sleep(0.01)
    assert max(counted(counts.newest(), one).rates or ()) > 10 / 0.3, "the next ones are of their own time"


def test_a_look_that_hangs_holds_no_client_up_for_long(
    perf: FakePerf, boot: Boot, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = make(boot())
    last = counts.newest()
    monkeypatch.setattr(hardware_counts, "PATIENCE", 0.1)
    goes_on = threading.Event()
    monkeypatch.setattr(perf, "read", lambda descriptor, most: goes_on.wait(60) and b"")
    began = time.monotonic()
    assert counts.newest() is last
    assert time.monotonic() - began < 30
    goes_on.set()


@pytest.mark.parametrize(("text", "wanted"), [("", True), ("hardware_events = false", False)])
def test_the_operator_can_switch_them_off(
    perf: FakePerf, boot: Boot, text: str, wanted: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("conf") / "vmqos.conf"
    path.write_text(f"[telemetry]\ninterval = 0\n{text}\n")
    one = boot()
    counts = HardwareCounts.of(loader.load(["--config-file", str(path)]), lambda: {one.uuid: one}, lambda longest: None)
    counts.start()
    try:
        look = counts.newest()
        assert bool(look.vms) == wanted
        assert look.unavailable == ("" if wanted else "they are switched off: [telemetry] hardware_events is false")
        assert look.unavailable_code == ("" if wanted else "switched-off")
        assert bool(perf.descriptors) == wanted
    finally:
        counts.stop()


def test_an_agent_without_the_capability_does_not_try(
    perf: FakePerf, boot: Boot, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot()
    monkeypatch.setattr(hardware_counts.hardware_events, "may_count", lambda: False)
    perf.refuses[0] = errno.ENOENT
    look = make().newest()
    assert "the agent lacks CAP_PERFMON" in look.unavailable
    assert look.unavailable_code == "no-capability"
