# SPDX-License-Identifier: Apache-2.0
"""A VM that is noisy by itself: it is paused and resumed, and nothing else is done to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vmqos.bench import exceptions, left_paused, vms
from vmqos.bench.left_paused import LeftPaused
from vmqos.bench.parties import VmNeighbor
from vmqos.hypervisor.model import Process, VirtualMachine

VM = VirtualMachine("a-uuid", "batch", 1, Process(7, 100), None, False, None)
NOBODY: Any = None
"""The filesystem, which a VM's noise does not need."""


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What libvirt and the guardian were told, in this order."""
    found = list[str]()
    monkeypatch.setattr(left_paused, "DIRECTORY", str(tmp_path))
    monkeypatch.setattr(vms, "is_paused", lambda uri, uuid: found[-1] == "pause")
    monkeypatch.setattr(vms, "is_running", lambda uri, uuid: not found or found[-1] != "the operator pauses it")
    monkeypatch.setattr(vms, "pause", lambda uri, uuid: found.append("pause"))
    monkeypatch.setattr(vms, "resume", lambda uri, uuid: found.append("resume"))
    return found


def neighbor(done: list[str]) -> VmNeighbor:
    return VmNeighbor("test:///", VM, lambda is_paused: done.append(f"guardian: {is_paused}"))


def test_the_guardian_knows_at_each_moment_whether_the_vm_is_to_be_resumed(done: list[str]) -> None:
    noisy = neighbor(done)
    noisy.hush()
    noisy.disturb(NOBODY)
    noisy.hush()
    noisy.end()
    paused, resumed = ["guardian: True", "pause"], ["resume", "guardian: False"]
    assert done == [*paused, *resumed, *paused, *resumed]


def test_a_vm_that_others_paused_meanwhile_stays_so(done: list[str]) -> None:
    noisy = neighbor(done)
    noisy.hush()
    noisy.disturb(NOBODY)
    done.append("the operator pauses it")
    with pytest.raises(exceptions.VmNotRunning, match="batch"):
        noisy.check()
    noisy.end()
    assert done[-1] == "the operator pauses it"


def test_a_guardian_that_has_ended_is_told_before_anything_is_paused(done: list[str]) -> None:
    def fail(is_paused: bool) -> None:
        raise exceptions.LoadFailed(what="the guardian", problem="it has ended")

    with pytest.raises(exceptions.LoadFailed, match="the guardian failed: it has ended"):
        VmNeighbor("test:///", VM, fail).hush()
    assert done == []


def test_a_vm_that_is_left_paused_is_found_with_the_command_that_lets_it_run(done: list[str]) -> None:
    noisy = neighbor(done)
    noisy.hush()
    # This process and its guardian are killed here.
    (found,) = left_paused.find()
    assert found == LeftPaused("test:///", "a-uuid", "batch")
    assert found.command == "virsh --connect test:/// resume a-uuid"
    assert "VM batch was paused for an experiment of 'vmqos bench'" in str(found)
    assert left_paused.find() == [found], "it is told until it runs"
    done.append("the operator resumes it")
    assert left_paused.find() == []
    done.append("pause")
    assert left_paused.find() == [], "others have paused it"


def test_a_vm_that_was_let_run_again_is_not_taken_for_one_that_was_left(done: list[str]) -> None:
    noisy = neighbor(done)
    noisy.hush()
    noisy.end()
    done.append("pause")
    assert left_paused.find() == []


def test_a_vm_of_which_libvirt_does_not_say_whether_it_is_paused_is_told(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(uri: str, uuid: str) -> bool:
        raise exceptions.LoadFailed(what=f"VM {uuid}", problem="libvirt is away")

    monkeypatch.setattr(vms, "is_paused", fail)
    neighbor(done).hush()
    assert [vm.uuid for vm in left_paused.find()] == ["a-uuid"]


def test_a_file_that_is_no_note_is_passed_over(done: list[str], tmp_path: Path) -> None:
    for name, text in {"a": "", "b": "[]", "c": "{}", "d": "[" * 100_000}.items():
        (tmp_path / f"bench-paused-{name}").write_text(text)
    assert left_paused.find() == []
