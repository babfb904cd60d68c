# SPDX-License-Identifier: Apache-2.0
"""A VM that is noisy by itself: it is paused and resumed, and nothing else is done to it."""

from __future__ import annotations

from typing import Any

import pytest

from vmqos.bench import exceptions, vms
from vmqos.bench.parties import VmNeighbor
from vmqos.hypervisor.model import Process, VirtualMachine

VM = VirtualMachine("a-uuid", "batch", 1, Process(7, 100), None, False, None)
NOBODY: Any = None
"""The filesystem, which a VM's noise does not need."""


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What libvirt and the guardian were told, in this order."""
    found = list[str]()
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
