# SPDX-License-Identifier: Apache-2.0
"""What is known of VMs while libvirt is away or looks fail, and who waits for whom meanwhile.

Looks that hang are among the tests of the loop, and a libvirtd that really hangs among the functional ones.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from tests.unit.agent.observe.late_libvirt import LONG, PATIENCE, Libvirt, have_a_list_come_late
from tests.unit.agent.observe.late_libvirt import late as late
from tests.unit.agent.observe.late_libvirt import libvirt as libvirt
from tests.unit.agent.observe.late_libvirt import patient as patient
from tests.unit.agent.observe.late_libvirt import qemu as qemu
from tests.unit.agent.observe.late_libvirt import running as running
from tests.unit.clock import Clock
from tests.unit.eventually import eventually
from vmqos.agent.courtesy import Courtesy
from vmqos.agent.observe import looks
from vmqos.agent.observe import running_vms as module
from vmqos.agent.observe.looks import Looks
from vmqos.agent.observe.running_vms import RunningVms
from vmqos.hypervisor import exceptions
from vmqos.hypervisor.model import Process, VirtualMachine


def test_a_vm_is_looked_at_when_it_is_new_or_marked_and_otherwise_left_alone(
    running: RunningVms, libvirt: Libvirt
) -> None:
    for _ in range(3):
        found = running.look(False, LONG)
    assert libvirt.described == 1 and found.due is None and found.looked_at is not None
    running.mark("a")
    for _ in range(3):
        running.look(False, LONG)
    assert libvirt.described == 2


@pytest.mark.parametrize("everything", [False, True])
def test_a_look_that_libvirt_refused_is_still_owed(running: RunningVms, libvirt: Libvirt, everything: bool) -> None:
    first = running.look(False, LONG).vms["a"]
    if not everything:
        running.mark("a")
    libvirt.reached = False
    running.look(everything, LONG)
    libvirt.reached = True
    assert running.look(False, LONG).vms["a"] is not first and libvirt.described == 2
    running.look(False, LONG)
    assert libvirt.described == 2


def test_a_mark_that_comes_during_the_look_is_still_owed(running: RunningVms, libvirt: Libvirt) -> None:
    running.mark("a")
    libvirt.on_describe = lambda: running.mark("a") if libvirt.described == 1 else None
    found = running.look(False, LONG)
    assert found.troubles == {"a": module.WAITING} and found.due is not None
    assert found.due <= time.monotonic()
    found = running.look(False, LONG)
    assert libvirt.described == 2 and not found.troubles
    running.look(False, LONG)
    assert libvirt.described == 2


def test_a_mark_that_comes_during_a_look_that_hangs_outlasts_a_round_without_time_for_it(
    running: RunningVms, libvirt: Libvirt, late: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    libvirt.listed, libvirt.vms["b"] = {"b": 0, "a": 1}, replace(libvirt.vm, uuid="b", libvirt_id=0)
    running.look(False, LONG)
    go_on = threading.Event()

    def hang() -> None:
        assert go_on.wait(LONG)

    running.mark("a")
    with monkeypatch.context() as hasty:
        hasty.setattr(module, "LOOK_DEADLINE", PATIENCE)
        libvirt.on_describe = hang
        running.look(False, LONG)
        running.mark("a")
    go_on.set()
    assert late.wait(LONG)
    described = libvirt.described
    with monkeypatch.context() as hasty:
        hasty.setattr(module, "ROUND_BUDGET", 0.0)
        running.mark("b")
        libvirt.on_describe = lambda: time.sleep(PATIENCE)
        found = running.look(False, LONG)
    assert libvirt.described == described + 1, "there was time for b alone"
    assert found.troubles == {"a": module.WAITING}
    running.look(False, LONG)
    assert libvirt.described == described + 2


def test_a_look_that_fails_is_tried_again_after_a_pause_or_at_an_event(
    running: RunningVms, libvirt: Libvirt, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise exceptions.ProcessUnreadable(pid=1, error="EACCES")

    caplog.set_level("INFO")
    before = running.look(False, LONG)
    libvirt.on_describe = fail
    running.mark("a")
    for _ in range(5):
        found = running.look(False, LONG)
    assert libvirt.described == 2 and len(caplog.messages) == 1
    assert found.vms["a"] is before.vms["a"] and "can't be read" in found.troubles["a"]
    assert found.due is not None and 0 < found.due - time.monotonic() <= module.RETRY_DELAYS[0]
    assert found.looked_at == before.looked_at, "not all VMs could be looked at"
    running.mark("a")
    running.look(False, LONG)
    assert libvirt.described == 3
    running.look(True, LONG)
    assert libvirt.described == 4
    assert len(caplog.messages) == 1, "it is logged once"
    libvirt.on_describe = lambda: None
    running.mark("a")
    found = running.look(False, LONG)
    assert found.vms["a"] is not before.vms["a"] and not found.troubles and found.due is None


def test_an_event_ends_the_wait_of_a_vm_for_which_the_next_round_has_no_time(
    running: RunningVms, libvirt: Libvirt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise exceptions.ProcessUnreadable(pid=1, error="EACCES")

    libvirt.listed, libvirt.vms["b"] = {"b": 0, "a": 1}, replace(libvirt.vm, uuid="b", libvirt_id=0)
    running.look(False, LONG)
    libvirt.on_describe = fail
    running.mark("a")
    assert "can't be read" in running.look(False, LONG).troubles["a"]
    described = libvirt.described
    with monkeypatch.context() as hasty:
        hasty.setattr(module, "ROUND_BUDGET", 0.0)
        libvirt.on_describe = lambda: time.sleep(PATIENCE)
        for uuid in ("b", "a"):
            running.mark(uuid)
        found = running.look(False, LONG)
    assert libvirt.described == described + 1, "there was time for b alone"
    assert found.due is not None and found.due <= time.monotonic(), "the next round is due at once"
    found = running.look(False, LONG)
    assert libvirt.described == described + 2 and not found.troubles


def test_a_vm_for_which_no_thread_is_left_waits_although_there_was_an_event(
    running: RunningVms, libvirt: Libvirt, monkeypatch: pytest.MonkeyPatch
) -> None:
    libvirt.listed = {}
    running.look(False, LONG)
    monkeypatch.setattr(looks, "MOST_UNDER_WAY", 0)
    libvirt.listed = {"a": 1}
    running.mark("a")
    found = running.look(False, LONG)
    assert "no thread is left" in found.troubles["a"]
    assert found.due is not None and found.due > time.monotonic(), "the loop would not come to rest"


def test_a_vm_that_was_restarted_is_looked_at_anew(running: RunningVms, libvirt: Libvirt) -> None:
    running.look(False, LONG)
    libvirt.listed = {"a": 2}
    assert running.look(False, LONG).due is not None, "libvirt described an earlier run than it lists"
    libvirt.vm = replace(libvirt.vm, libvirt_id=2)
    found = running.look(False, LONG)
    assert found.vms["a"].vm.libvirt_id == 2 and found.due is None


def test_a_vm_whose_process_is_not_there_yet_is_told_and_looked_at_again(running: RunningVms, libvirt: Libvirt) -> None:
    vm, libvirt.vm = libvirt.vm, replace(libvirt.vm, process=Process(99999999, 1))
    found = running.look(False, LONG)
    assert found.troubles == {"a": module.STARTING.text} and not found.vms
    libvirt.vm = vm
    running.mark("a")
    found = running.look(False, LONG)
    assert found.vms.keys() == {"a"} and not found.troubles


def test_a_marked_vm_is_looked_at_while_libvirt_does_not_list(
    running: RunningVms, libvirt: Libvirt, late: threading.Event
) -> None:
    running.look(True, LONG)
    libvirt.answers.clear()
    running.mark("a")
    running.look(False, LONG)
    assert libvirt.described == 2 and not libvirt.answers.is_set()
    # A VM that libvirt has not listed yet is found, too.
    libvirt.vm = replace(libvirt.vm, uuid="b")
    running.mark("b")
    assert running.look(False, LONG).vms.keys() == {"a", "b"}
    libvirt.answers.set()
    assert late.wait(LONG), "the loop is woken for the list"
    assert running.look(False, LONG).dying == {"b"}, "the list is from before that"
    libvirt.listed = {"a": 1, "b": 1}
    found = running.look(False, LONG)
    assert found.vms.keys() == {"a", "b"} and not found.dying


def test_marked_vms_for_which_a_round_has_no_time_have_theirs_at_once_while_libvirt_does_not_list(
    running: RunningVms, libvirt: Libvirt, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert running.look(True, LONG).vms.keys() == {"a"}
    libvirt.answers.clear()
    running.look(False, PATIENCE)
    monkeypatch.setattr(module, "ROUND_BUDGET", 0.0)
    libvirt.on_describe = lambda: eventually(lambda: not running._looks._queue)
    for uuid in ("b", "c"):
        libvirt.vms[uuid] = replace(libvirt.vm, uuid=uuid)
        running.mark(uuid)
    found = running.look(False, PATIENCE)
    assert found.vms.keys() == {"a", "b"} and found.due is not None
    found = running.look(False, PATIENCE)
    assert found.vms.keys() == {"a", "b", "c"} and found.due is None, "only libvirt's list is waited for"


def test_no_pass_after_the_other_waits_for_a_look_that_hangs_while_libvirt_does_not_list(
    running: RunningVms, libvirt: Libvirt, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert running.look(True, LONG).vms.keys() == {"a"}
    libvirt.answers.clear()
    monkeypatch.setattr(module, "LOOK_DEADLINE", 0.0)
    libvirt.on_describe = lambda: libvirt.answers.wait(LONG)  # type: ignore[assignment]
    for _ in range(2):
        running.mark("a")
        assert running.look(False, PATIENCE).due is None, "its end wakes the loop"


def test_a_vm_that_is_marked_while_the_list_is_waited_for_is_looked_at_at_once(
    running: RunningVms, libvirt: Libvirt
) -> None:
    running.look(True, LONG)
    libvirt.answers.clear()
    timer = threading.Timer(2 * module.LIST_PATIENCE, running.mark, ["a"])
    timer.start()
    began = time.monotonic()
    running.look(False, LONG)
    assert libvirt.described == 2 and time.monotonic() - began < LONG / 2


def test_a_new_vm_that_was_marked_after_libvirt_was_asked_is_looked_for_again(
    running: RunningVms, libvirt: Libvirt
) -> None:
    libvirt.on_list = lambda: running.mark("b")
    found = running.look(True, LONG)
    assert found.due is not None and found.due <= time.monotonic()
    libvirt.on_list = lambda: None
    assert running.look(False, LONG).due is None, "libvirt has no such VM"


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_a_look_that_was_left_behind_is_taken_over_although_libvirts_list_is_still_late(
    running: RunningVms,
    libvirt: Libvirt,
    late: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    is_waited_for: bool,
) -> None:
    monkeypatch.setattr(module, "LOOK_DEADLINE", 0.02)
    before, slow = running.look(True, LONG).vms["a"], threading.Event()
    libvirt.on_describe = lambda: slow.wait(LONG) and None
    if not is_waited_for:
        libvirt.answers.clear()
    try:
        running.mark("a")
        assert running.look(False, LONG).vms["a"] is before, "the look has not ended yet"
        libvirt.answers.clear()
        threading.Timer(0.2, slow.set).start()
        began = time.monotonic()
        if not is_waited_for:
            assert late.wait(LONG), "the loop is woken for the look"
        assert running.look(False, LONG).vms["a"] is not before
        assert time.monotonic() - began < LONG / 2
    finally:
        slow.set()


def test_a_list_in_time_is_not_announced(running: RunningVms, libvirt: Libvirt, late: threading.Event) -> None:
    found = running.look(True, LONG)
    assert found.answered and found.vms.keys() == {"a"}
    assert running.look(False, LONG).vms["a"] is found.vms["a"]
    assert libvirt.asked == 2 and not late.is_set()


def test_what_goes_wrong_is_told_to_the_loop_and_the_look_at_everything_is_still_to_be_done(
    running: RunningVms, libvirt: Libvirt
) -> None:
    def fail() -> None:
        raise RuntimeError("a fault of ours")

    running.look(False, LONG)
    libvirt.on_list = fail
    for everything in (True, False):
        with pytest.raises(RuntimeError, match="a fault of ours"):
            running.look(everything, LONG)
    libvirt.on_list = lambda: None
    assert running.look(False, LONG).answered
    assert libvirt.described == 2
    running.look(False, LONG)
    assert libvirt.described == 2


def test_an_old_list_calls_for_no_further_look(running: RunningVms, libvirt: Libvirt) -> None:
    def fail() -> None:
        raise exceptions.ProcessUnreadable(pid=1, error="EACCES")

    libvirt.on_describe = fail
    assert running.look(False, LONG).due is not None
    libvirt.answers.clear()
    assert running.look(False, PATIENCE).due is None, "what libvirt has not answered can't be hurried"


def test_no_pass_waits_longer_than_its_patience_nor_twice_for_one_list(running: RunningVms, libvirt: Libvirt) -> None:
    libvirt.answers.clear()
    began = time.monotonic()
    assert not running.look(True, PATIENCE).answered
    assert time.monotonic() - began >= PATIENCE
    began = time.monotonic()
    for _ in range(100):
        running.look(False, LONG)
    assert time.monotonic() - began < LONG
    assert libvirt.asked == 1, "one question at a time"


def test_a_late_list_is_announced_and_used_without_asking_again(
    running: RunningVms, libvirt: Libvirt, late: threading.Event
) -> None:
    have_a_list_come_late(running, libvirt, late, everything=True)
    assert running.look(False, LONG).vms.keys() == {"a"}
    assert libvirt.asked == 1
    running.look(False, LONG)
    assert libvirt.asked == 2


def test_of_a_late_list_and_one_that_was_asked_for_when_it_came_the_newer_counts(
    running: RunningVms, libvirt: Libvirt, late: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_a_list_come_late(running, libvirt, late, everything=True)
    monkeypatch.setattr(Looks, "has_results", False)
    libvirt.listed = {}
    found = running.look(False, LONG)
    assert libvirt.asked == 2 and found.answered and not found.vms


def test_a_look_at_everything_is_not_lost_on_a_list_that_is_older(
    running: RunningVms, libvirt: Libvirt, late: threading.Event
) -> None:
    running.look(True, LONG)
    libvirt.answers.clear()
    running.look(False, PATIENCE)
    running.look(True, PATIENCE)
    libvirt.answers.set()
    assert late.wait(LONG)
    due = running.look(False, LONG).due
    assert due is not None and due <= time.monotonic(), "nothing else wakes the loop for it"
    assert libvirt.described == 1
    assert running.look(False, LONG).due is None
    assert libvirt.described == 2 and libvirt.asked == 3


def test_a_vm_that_is_marked_after_a_late_list_was_made_is_looked_at_at_once(
    running: RunningVms, libvirt: Libvirt, late: threading.Event
) -> None:
    running.look(True, LONG)
    have_a_list_come_late(running, libvirt, late)
    # The event wakes the loop together with the late list, so one look follows for both.
    running.mark("a")
    assert running.look(False, LONG).due is None
    assert libvirt.described == 2 and libvirt.asked == 2


def test_a_new_vm_that_is_marked_after_a_late_list_was_made_is_looked_for_again_at_once(
    running: RunningVms, libvirt: Libvirt, late: threading.Event
) -> None:
    running.look(True, LONG)
    have_a_list_come_late(running, libvirt, late)
    libvirt.listed = {"a": 1, "b": 1}
    libvirt.vms["b"] = replace(libvirt.vm, uuid="b")
    running.mark("b")
    due = running.look(False, LONG).due
    assert due is not None and due <= time.monotonic(), "nothing else wakes the loop for it"
    found = running.look(False, LONG)
    assert found.due is None and found.vms.keys() == {"a", "b"}


def test_a_late_list_after_which_nothing_was_told_calls_for_no_further_look(
    running: RunningVms, libvirt: Libvirt, late: threading.Event
) -> None:
    have_a_list_come_late(running, libvirt, late)
    assert running.look(False, LONG).due is None, "a libvirt that is slow would be asked without a pause"


def test_many_hangs_are_one_thread(running: RunningVms, libvirt: Libvirt, late: threading.Event) -> None:
    before = threading.active_count()
    running.look(True, LONG)
    for _ in range(20):
        libvirt.answers.clear()
        late.clear()
        running.look(False, 0)
        assert threading.active_count() <= before + 2, "the one that lists, and the one that looks"
        libvirt.answers.set()
        assert late.wait(LONG)
        running.look(False, LONG)
    running.close()
    deadline = time.monotonic() + LONG
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_vm_that_libvirt_lists_and_that_could_not_be_looked_at_is_told(running: RunningVms, libvirt: Libvirt) -> None:
    vm, libvirt.listed = libvirt.vm, {"a": 1, "b": 1}
    libvirt.vms["b"] = replace(vm, uuid="b", process=Process(99999999, 1))
    found = running.look(True, LONG)
    assert found.vms.keys() == {"a"} and found.unseen == {"b"}
    libvirt.vms["b"] = replace(vm, uuid="b")
    running.mark("b")
    assert running.look(True, LONG).unseen == frozenset()


def test_a_mark_that_libvirt_is_not_there_for_is_news_for_no_second_pass(running: RunningVms, libvirt: Libvirt) -> None:
    running.look(True, LONG)
    libvirt.reached = False
    running.mark("comes")
    assert running.has_news
    for _ in range(2):
        running.look(False, LONG)
        assert not running.has_news


def have_many(running: RunningVms, libvirt: Libvirt) -> list[str]:
    """A hundred VMs besides, whose looks take their time; the UUIDs that are looked at from now on."""
    libvirt.vms |= {f"vm{number}": replace(libvirt.vm, uuid=f"vm{number}") for number in range(100)}
    libvirt.listed = {"a": 1, **dict.fromkeys(libvirt.vms, 1)}
    running.look(True, LONG)
    described, describe = list[str](), libvirt.describe

    def slowly(uuid: str) -> VirtualMachine | None:
        time.sleep(0.02)
        described.append(uuid)
        return describe(uuid)

    libvirt.describe = slowly  # type: ignore[method-assign]
    return described


def test_a_marked_vm_is_looked_at_amid_a_look_at_all_vms_which_goes_on_in_the_next_round(
    running: RunningVms, libvirt: Libvirt
) -> None:
    described = have_many(running, libvirt)
    libvirt.on_describe = lambda: running.mark(described[0]) if len(described) == 5 else None
    before = running.look(False, LONG).vms
    found = running.look(True, LONG)
    assert described.count(described[0]) == 2 and described[-1] == described[0] and len(described) < 100
    assert found.vms[described[0]] is not before[described[0]] and not running.has_news
    assert len(found.vms) == 101 and found.due is not None and found.due <= time.monotonic()
    left = found.vms.keys() - set(described)
    assert running.look(False, LONG).due is None and left <= set(described)


def test_a_vm_that_was_marked_before_a_look_at_all_vms_does_not_wait_for_it(
    running: RunningVms, libvirt: Libvirt
) -> None:
    described = have_many(running, libvirt)
    running.mark("vm7")
    found = running.look(True, LONG)
    assert described == ["vm7"] and found.due is not None and found.due <= time.monotonic()
    assert running.look(False, LONG).due is None and len(set(described)) == 101


@pytest.mark.parametrize("news", ["ends", "marks"])
def test_news_without_end_leave_a_look_at_all_vms_a_whole_round_in_each_while(
    running: RunningVms, libvirt: Libvirt, news: str
) -> None:
    clock = Clock()
    described = have_many(running, libvirt)
    running._courtesy = courtesy = Courtesy(longest=1.0, clock=clock)

    def tell() -> None:
        running.note_end(set()) if news == "ends" else running.mark("a")

    libvirt.on_describe = tell
    running.look(True, LONG)
    for _ in range(3):
        courtesy.end_pass()
        tell()
        running.look(False, LONG)
    assert len(set(described)) < 50
    clock.now = 2.0
    courtesy.end_pass()
    tell()
    running.look(False, LONG)
    assert len(set(described)) == 101
