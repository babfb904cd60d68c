# SPDX-License-Identifier: Apache-2.0
"""Who waits for whom while the VMs are looked at; a libvirtd that really hangs is among the functional tests."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.observe.vm_watcher import VmWatcher
from vmqos.hypervisor import processes
from vmqos.hypervisor.model import Process, VirtualMachine

PATIENCE = 0.05
LONG = 10.0


class SlowInventory:
    """Stands in for the inventory: its answer comes when the test lets it."""

    def __init__(self) -> None:
        self.vms: dict[str, ObservedVm] = {}
        self.dying: frozenset[str] = frozenset()
        self.gone: frozenset[str] = frozenset()
        self.running: set[str] = set()
        self.answered = False
        self.troubles: dict[str, str] = {}
        self.looked_at: float | None = None
        self.due: float | None = None
        self.is_closed = False
        self.is_marked = False
        self.asked: list[bool] = []
        self.may_answer = threading.Event()
        self.then: Callable[[], None] = lambda: None

    def refresh(self, everything: bool) -> None:
        self.asked.append(everything)
        assert self.may_answer.wait(LONG)
        self.answered = True
        self.then()

    def close(self) -> None:
        self.is_closed = True


def observed(uuid: str, process: Process | None = None) -> ObservedVm:
    vm = VirtualMachine(uuid, uuid, 1, process or processes.of_pid(os.getpid()), None, False, None, "")
    return ObservedVm(vm, frozenset({0}))


@pytest.fixture
def inventory() -> SlowInventory:
    return SlowInventory()


@pytest.fixture
def told() -> threading.Event:
    """Set when the observer tells of a late answer."""
    return threading.Event()


@pytest.fixture
def observer(inventory: SlowInventory, told: threading.Event) -> Iterator[VmWatcher]:
    made = VmWatcher(inventory, lambda: inventory.running, told.set)  # type: ignore[arg-type]
    yield made
    inventory.may_answer.set()
    made.close()


def test_an_answer_in_time_is_returned_and_not_announced(
    observer: VmWatcher, inventory: SlowInventory, told: threading.Event
) -> None:
    inventory.may_answer.set()
    inventory.vms["a"] = observed("a")
    sight = observer.look(True, LONG)
    assert sight.answered and sight.vms.keys() == {"a"}
    assert observer.look(False, LONG).vms["a"] is sight.vms["a"]
    assert inventory.asked == [True, False]
    assert not told.is_set()


def test_a_look_at_everything_that_fails_is_still_to_be_done(observer: VmWatcher, inventory: SlowInventory) -> None:
    def fail() -> None:
        raise RuntimeError("a fault of ours")

    inventory.may_answer.set()
    inventory.then = fail
    for everything in (True, False):
        with pytest.raises(RuntimeError):
            observer.look(everything, LONG)
    inventory.then = lambda: None
    observer.look(False, LONG)
    observer.look(False, LONG)
    assert inventory.asked == [True, True, True, False]


def test_an_old_answer_calls_for_no_further_look(observer: VmWatcher, inventory: SlowInventory) -> None:
    inventory.may_answer.set()
    inventory.due = 1.0
    assert observer.look(False, LONG).due == 1.0
    inventory.may_answer.clear()
    assert observer.look(False, PATIENCE).due is None, "what libvirt has not answered can't be hurried"


def test_nobody_waits_longer_than_he_is_willing_to_nor_twice_for_one_answer(
    observer: VmWatcher, inventory: SlowInventory
) -> None:
    began = time.monotonic()
    assert not observer.look(True, PATIENCE).answered
    assert time.monotonic() - began >= PATIENCE
    began = time.monotonic()
    for _ in range(100):
        observer.look(False, LONG)
    assert time.monotonic() - began < LONG
    assert inventory.asked == [True], "one question at a time"


def test_a_late_answer_is_announced_and_used_without_asking_again(
    observer: VmWatcher, inventory: SlowInventory, told: threading.Event
) -> None:
    inventory.then = lambda: inventory.vms.update(a=observed("a"))
    observer.look(True, PATIENCE)
    inventory.may_answer.set()
    assert told.wait(LONG)
    assert observer.look(False, LONG).vms.keys() == {"a"}
    assert inventory.asked == [True]
    observer.look(False, LONG)
    assert inventory.asked == [True, False]


def test_a_wish_to_look_at_everything_is_not_lost_on_a_late_answer(
    observer: VmWatcher, inventory: SlowInventory, told: threading.Event
) -> None:
    observer.look(False, PATIENCE)
    observer.look(True, PATIENCE)
    inventory.may_answer.set()
    assert told.wait(LONG)
    due = observer.look(False, LONG).due
    assert due is not None and due <= time.monotonic(), "nothing else wakes the loop for it"
    assert observer.look(False, LONG).due is None
    assert inventory.asked == [False, True]


def test_a_vm_that_is_marked_after_a_late_answer_was_made_is_looked_at_at_once(
    observer: VmWatcher, inventory: SlowInventory, told: threading.Event
) -> None:
    observer.look(False, PATIENCE)
    inventory.may_answer.set()
    assert told.wait(LONG)
    # The event wakes the loop together with the late answer, so one look follows for both.
    inventory.is_marked = True
    inventory.then = lambda: setattr(inventory, "is_marked", False)
    due = observer.look(False, LONG).due
    assert due is not None and due <= time.monotonic(), "nothing else wakes the loop for it"
    assert observer.look(False, LONG).due is None
    assert inventory.asked == [False, False]


def test_a_late_answer_after_which_nothing_was_told_calls_for_no_further_look(
    observer: VmWatcher, inventory: SlowInventory, told: threading.Event
) -> None:
    observer.look(False, PATIENCE)
    inventory.may_answer.set()
    assert told.wait(LONG)
    assert observer.look(False, LONG).due is None, "a libvirt that is slow would be asked without a pause"


def test_a_vm_whose_process_ends_is_gone_without_an_answer_and_one_that_lives_is_not(
    observer: VmWatcher, inventory: SlowInventory
) -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        inventory.vms |= {"lives": observed("lives"), "dies": observed("dies", processes.of_pid(child.pid))}
        inventory.may_answer.set()
        observer.look(True, LONG)
        inventory.may_answer.clear()
        assert observer.look(False, PATIENCE).vms.keys() == {"lives", "dies"}
        child.kill()
    sight = observer.look(False, PATIENCE)
    assert sight.vms.keys() == {"lives"}


def test_what_goes_wrong_is_told_to_the_one_who_asks_and_the_thread_goes_on(
    observer: VmWatcher, inventory: SlowInventory
) -> None:
    def fail() -> None:
        raise RuntimeError("a fault of ours")

    inventory.may_answer.set()
    inventory.then = fail
    with pytest.raises(RuntimeError, match="a fault of ours"):
        observer.look(True, LONG)
    inventory.then = lambda: None
    assert observer.look(True, LONG).answered


def test_many_hangs_are_one_thread(observer: VmWatcher, inventory: SlowInventory, told: threading.Event) -> None:
    before = threading.active_count()
    for _ in range(20):
        inventory.may_answer.clear()
        told.clear()
        observer.look(False, 0)
        inventory.may_answer.set()
        assert told.wait(LONG)
        observer.look(False, LONG)
    assert threading.active_count() <= before + 1
    observer.close()
    assert inventory.is_closed
    deadline = time.monotonic() + LONG
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_vm_that_libvirt_lists_and_nobody_could_look_at_is_told(
    observer: VmWatcher, inventory: SlowInventory
) -> None:
    inventory.may_answer.set()
    inventory.running = {"a", "b"}
    inventory.vms["a"] = observed("a")
    assert observer.look(True, LONG).unseen == {"b"}
    inventory.vms["b"] = observed("b")
    assert observer.look(True, LONG).unseen == frozenset()


def test_a_vm_that_libvirt_listed_before_its_process_ended_is_gone_and_not_unseen(
    observer: VmWatcher, inventory: SlowInventory
) -> None:
    inventory.may_answer.set()
    inventory.running = {"a", "b"}
    inventory.gone = frozenset({"a"})
    assert observer.look(True, LONG).unseen == {"b"}
