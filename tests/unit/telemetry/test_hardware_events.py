# SPDX-License-Identifier: Apache-2.0
"""What the functional tests have no kernel for: those read a real one's events."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.telemetry import fake_perf
from tests.unit.telemetry.fake_perf import FakePerf
from vmqos.telemetry import hardware_events
from vmqos.telemetry.exceptions import HardwareEventsError, HardwareEventsRefused, NoFilesLeft, TasksKeepComing
from vmqos.telemetry.hardware_events import (
    CountedTasks,
    Counts,
    HardwareEvents,
    WhyNot,
    are_of_the_l3,
    may_count,
    why_not,
)
from vmqos.telemetry.perf_event import Growth

ME = os.getpid()


@pytest.fixture
def perf(monkeypatch: pytest.MonkeyPatch) -> FakePerf:
    return fake_perf.put_in_place(monkeypatch)


@pytest.mark.parametrize(
    ("number", "code", "why"),
    [
        (errno.ENOENT, "no-events", "this kernel gives no hardware events, as in most virtual machines"),
        (errno.ENOSYS, "no-events", "this kernel was built without perf events"),
        (errno.EACCES, "not-permitted", "not permitted: run it as root, or with CAP_PERFMON"),
        (errno.EPERM, "not-permitted", "not permitted: run it as root, or with CAP_PERFMON"),
        (errno.EBUSY, "refused", "another program has taken the counters"),
        (errno.ENOMEM, "refused", "perf_event_open fails: Cannot allocate memory"),
    ],
)
def test_why_nothing_can_be_counted_is_told(perf: FakePerf, number: int, code: str, why: str) -> None:
    assert why_not() == ("", "")
    perf.refuses[0] = number
    assert why_not() == WhyNot(code, why)
    assert HardwareEvents().unavailable == why
    assert perf.descriptors == 0


@pytest.mark.parametrize(
    ("says", "may"),
    [
        ("CapPrm:\t0000000000080001\nCapEff:\t0000000000080001\nCapBnd:\t000001ffffffffff\n", False),
        ("CapEff:\t0000004000080001\n", True),
        ("CapEff:\t000001ffffffffff\n", True),
        ("CapEff:\t0000000000200000\n", True),
        ("Name:\todd\n", True),
        (f"Groups:\t{'1 ' * 4096}\nCapEff:\t0000000000000000\n", True),
    ],
)
def test_who_lacks_the_capability_is_not_to_try(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, may: bool
) -> None:
    path = tmp_path / "status"
    path.write_text(says)
    monkeypatch.setattr("vmqos.telemetry.hardware_events.STATUS", str(path))
    assert may_count() is may
    path.unlink()
    assert may_count() is True, "it is not known"


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("-1\n", "not permitted: run it as root, or with CAP_PERFMON"),
        ("2\n", "not permitted: run it as root, or with CAP_PERFMON"),
        ("odd", "not permitted: run it as root, or with CAP_PERFMON"),
        ("3\n", "not permitted: with sysctl kernel.perf_event_paranoid=3, CAP_PERFMON will not do; set it to 2"),
    ],
)
def test_a_kernel_to_which_the_capability_will_not_do_is_named_with_what_mends_it(
    perf: FakePerf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, why: str
) -> None:
    path = tmp_path / "perf_event_paranoid"
    path.write_text(says)
    monkeypatch.setattr("vmqos.telemetry.hardware_events.PARANOID", str(path))
    perf.refuses[0] = errno.EACCES
    assert why_not() == WhyNot("not-permitted", why)


def test_the_tasks_of_a_vm_are_added_up(perf: FakePerf) -> None:
    counted = CountedTasks(lambda: [1, 2])
    perf.says |= {1: (10, 10, 5, 4, 3, 2), 2: (30, 10, 2, 2, 2, 2)}
    assert counted.grown() == Growth(40, 20, (11, 10, 9, 8))
    assert (len(counted), perf.descriptors) == (2, 8)
    counted.add([2, 3])
    perf.says |= {3: (1, 1, 1, 1, 1, 1)}
    assert counted.grown() == Growth(1, 1, (1, 1, 1, 1))
    counted.close()
    assert perf.descriptors == 0


def test_a_thread_that_is_started_meanwhile_is_counted_once(perf: FakePerf) -> None:
    listed = iter([[1], [1, 2], [1, 2], [2]])
    counted = CountedTasks(lambda: next(listed))
    assert perf.tasks == [1, 2]
    assert (len(counted), perf.descriptors) == (2, 8)


def test_a_task_that_ends_meanwhile_is_left_out(perf: FakePerf) -> None:
    perf.refuses[2] = errno.ESRCH
    CountedTasks(lambda: [1, 2])
    assert perf.tasks == [1]


@pytest.mark.parametrize(
    ("number", "kind", "word"),
    [
        (errno.EMFILE, NoFilesLeft, "no-files"),
        (errno.EACCES, HardwareEventsRefused, "refused"),
        (errno.ECHILD, TasksKeepComing, "threads-keep-coming"),
    ],
)
def test_what_can_not_be_counted_is_an_error_and_leaves_nothing_open(
    perf: FakePerf, number: int, kind: type[HardwareEventsError], word: str
) -> None:
    perf.refuses[2] = number
    with pytest.raises(kind) as found:
        CountedTasks(lambda: [1, 2])
    assert found.value.word == word
    assert perf.descriptors == 0


def test_what_the_lister_raises_leaves_nothing_open(perf: FakePerf) -> None:
    listed = iter([[1, 2]])
    with pytest.raises(StopIteration):
        CountedTasks(lambda: next(listed))
    assert perf.descriptors == 0


def test_a_process_is_counted_anew_when_a_thread_did_not_inherit_all_of_a_group(perf: FakePerf) -> None:
    events = HardwareEvents()
    unknown = Counts(0, 0, 0, 0, False)
    assert events.read([ME]) == {ME: unknown}
    perf.says[perf.tasks[0]] = (10, 10, 5, 4, 3, 2)
    assert events.read([ME]) == {ME: Counts(5, 4, 3, 2, True)}
    perf.read_fails[perf.tasks[0]] = errno.ECHILD
    assert events.read([ME]) == {ME: unknown}
    assert perf.descriptors == 0
    perf.read_fails.clear()
    assert events.read([ME]) == {ME: unknown}
    assert events.read([ME]) == {ME: Counts(0, 0, 0, 0, True)}


def test_counts_are_not_known_while_others_have_the_counters(perf: FakePerf) -> None:
    events = HardwareEvents()
    events.read([ME])
    perf.says |= dict.fromkeys(perf.tasks, (10, 0, 0, 0, 0, 0))
    assert not events.read([ME])[ME].known


def test_what_is_made_up_for_is_of_all_the_time_since_it_was_last_known(
    perf: FakePerf, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([100.0, 102.0, 104.0, 106.0])
    monkeypatch.setattr(hardware_events, "time", SimpleNamespace(monotonic=lambda: next(now)))
    events = HardwareEvents()
    events.read([ME])
    for said in ((20, 0, 0, 0, 0, 0), (30, 0, 0, 0, 0, 0)):
        perf.says |= dict.fromkeys(perf.tasks[:1], said)
        assert not events.read([ME])[ME].known
    perf.says |= dict.fromkeys(perf.tasks[:1], (40, 10, 5, 4, 3, 2))
    found = events.read([ME])[ME]
    assert (found, found.seconds) == (Counts(20, 16, 12, 8, True), 6.0)


def test_what_is_made_up_for_after_a_sleep_is_of_all_the_time_since_it_was_last_known(
    perf: FakePerf, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([100.0, 1000.0, 1001.0, 1002.0, 1003.0])
    monkeypatch.setattr(hardware_events, "time", SimpleNamespace(monotonic=lambda: next(now)))
    events = HardwareEvents()
    events.read([ME])
    perf.says |= dict.fromkeys(perf.tasks[:1], (1000, 0, 0, 0, 0, 0))
    assert not events.read([ME])[ME].known
    assert events.read([ME])[ME] == Counts(0, 0, 0, 0, True), "it slept"
    perf.says |= dict.fromkeys(perf.tasks[:1], (1001, 1, 5, 4, 3, 2))
    found = events.read([ME])[ME]
    assert (found, found.seconds) == (Counts(5005, 4004, 3003, 2002, True), 902.0)
    assert events.read([ME])[ME].seconds == 1.0


def test_a_process_that_has_the_pid_of_an_earlier_one_is_counted_from_its_beginning(
    perf: FakePerf, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = iter([b"17", b"17", b"99", b"99"])
    monkeypatch.setattr(hardware_events, "_started", lambda pid: next(started))
    events = HardwareEvents()
    events.read([ME])
    assert events.read([ME])[ME].known
    of_earlier_one = perf.descriptors
    assert not events.read([ME])[ME].known
    assert perf.descriptors == of_earlier_one, "those of the earlier one are closed"
    assert events.read([ME])[ME].known


@pytest.mark.parametrize(
    ("cpuinfo", "of_the_l3"),
    [
        ("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\n", True),
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: EPYC (not GenuineIntel)\n", False),
        ("processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n", False),
        (None, False),
    ],
    ids=["Intel", "AMD", "Arm", "nothing"],
)
def test_the_events_of_the_caches_are_the_l3s_on_intel_alone(
    cpuinfo: str | None, of_the_l3: bool, tmp_path: Path
) -> None:
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert are_of_the_l3(str(tmp_path)) is of_the_l3
