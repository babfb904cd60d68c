# SPDX-License-Identifier: Apache-2.0
"""Giving a VM a region: what becomes of the region where that fails."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from vmqos.hypervisor.exceptions import DefinitionChanged, HypervisorFailed, QemuRefused
from vmqos.pseudo_lock import exceptions, lifecycle, memory_device, vm
from vmqos.pseudo_lock.lifecycle import Wanted
from vmqos.pseudo_lock.memory_device import Vm
from vmqos.pseudo_lock.regions import Host, Lock
from vmqos.resctrl import mount
from vmqos.resctrl.exceptions import LockTimeout

HOST, WANTED = Host("/sys/fs/resctrl"), Wanted("a", "L2", 1, 4096)
XML = "<domain type='kvm'><vcpu>1</vcpu></domain>"


@pytest.fixture
def removals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tries to remove the region, of a VM whose QEMU refuses it."""
    tried = list[str]()
    lock = Lock("a", "vmqos.lock-a", True, "pseudo-locked", device="/dev/pseudo_lock/vmqos.lock-a")

    def refuse(*_: object) -> None:
        raise QemuRefused(command="device_add", error="no slot")

    monkeypatch.setattr(memory_device, "connected", lambda uri: contextlib.nullcontext(None))
    monkeypatch.setattr(memory_device, "look", lambda *_: Vm("uuid", "web", True, True, XML, XML))
    monkeypatch.setattr(memory_device, "let_open", lambda *_: None)
    monkeypatch.setattr(memory_device, "give", refuse)
    monkeypatch.setattr(mount, "find", lambda path: SimpleNamespace(simulated=False))
    monkeypatch.setattr(lifecycle, "check", lambda *_: frozenset({0}))
    monkeypatch.setattr(lifecycle, "create", lambda *_: lock)
    monkeypatch.setattr(lifecycle, "remove", lambda host, name: tried.append(name))
    return tried


def create() -> None:
    vm.create(HOST, WANTED, "test:///", "uuid", next_start=False)


def test_a_region_that_qemu_refuses_is_removed_once_qemu_has_let_it_go(
    removals: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(host: Host, name: str) -> None:
        removals.append(name)
        if len(removals) < 3:
            raise exceptions.LockInUse(device="/dev/pseudo_lock/vmqos.lock-a", users="process 7 (qemu)")

    monkeypatch.setattr(lifecycle, "remove", remove)
    with pytest.raises(QemuRefused, match="no slot"):
        create()
    assert removals == ["a", "a", "a"]


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (exceptions.LockInUse(device="/dev/pseudo_lock/vmqos.lock-a", users="process 7 (qemu)"), r"process 7 \(qemu\)"),
        (LockTimeout(path="/sys/fs/resctrl", timeout=10.0, holders="pqos has it"), "pqos has it"),
    ],
)
def test_a_region_that_can_not_be_taken_back_is_told_with_what_failed_first(
    removals: list[str], monkeypatch: pytest.MonkeyPatch, problem: Exception, words: str
) -> None:
    def remove(host: Host, name: str) -> None:
        raise problem

    monkeypatch.setattr(lifecycle, "remove", remove)
    monkeypatch.setattr(vm, "LET_GO", 0.1)
    with pytest.raises(exceptions.NotTakenBack, match=f"no slot.*{words}.*'vmqos lock remove a' does it later"):
        create()


def test_a_definition_that_changes_while_the_region_is_locked_is_read_again(
    removals: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = XML.replace("<vcpu>1<", "<vcpu>2<")
    seen = iter([Vm("uuid", "web", False, True, xml, "") for xml in (XML, more)])
    given = list[Vm]()

    def give(connection: object, asked: Vm, *_: object) -> None:
        given.append(asked)
        if asked.xml != more:
            raise DefinitionChanged(name="web")

    monkeypatch.setattr(memory_device, "look", lambda *_: next(seen))
    monkeypatch.setattr(memory_device, "give", give)
    assert vm.create(HOST, WANTED, "test:///", "uuid", next_start=False).vcpus == {0: "0", 1: "0"}
    assert [one.xml for one in given] == [XML, more]
    assert removals == []


def test_a_vm_whose_definition_can_not_be_cleaned_does_not_keep_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(connection: object, one: Vm, path: str) -> None:
        if one.name == "stuck":
            raise HypervisorFailed(uri="test:///", error="no space left")

    vms = [Vm(name, name, False, True, XML, "") for name in ("web", "stuck", "db")]
    monkeypatch.setattr(memory_device, "connected", lambda uri: contextlib.nullcontext(None))
    monkeypatch.setattr(memory_device, "having", lambda *_: vms)
    monkeypatch.setattr(memory_device, "take", take)
    taken = vm.take("test:///", Lock("a", "vmqos.lock-a", True, "pseudo-locked"))
    assert taken.names == ("web", "db")
    assert list(taken.problems) == ["stuck"] and "no space left" in taken.problems["stuck"]
