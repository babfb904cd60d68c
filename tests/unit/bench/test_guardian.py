# SPDX-License-Identifier: Apache-2.0
"""The process that puts everything right; with a real command and libvirtd in tests/functional/cli/test_bench.py."""

from __future__ import annotations

import io
import signal
import sys
from types import SimpleNamespace

import pytest

from vmqos.bench import exceptions, guardian, vms, ways
from vmqos.resctrl import exceptions as resctrl_exceptions

ARGUMENTS = ("/sys/fs/resctrl", "1.0", "test:///", "a-vm")


def told(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    """The owner has told this, and has ended."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was put right, once the owner of the guardian has ended, which has paused the VM."""
    found = list[str]()
    told(monkeypatch, b"paused\n")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(vms, "resume", lambda uri, uuid: found.append(f"{uuid} runs"))
    monkeypatch.setattr(ways, "give_back", lambda filesystem, timeout: found.append("ways"))
    return found


def test_ways_are_given_back_before_libvirt_is_asked_which_may_never_answer(done: list[str]) -> None:
    assert guardian.main(ARGUMENTS) == 0
    assert done == ["ways", "a-vm runs"]


@pytest.mark.parametrize("text", [b"", b"paused\nresumed\n", b"paused\nresumed\npaused\nresumed\n"])
def test_a_vm_that_others_paused_is_not_resumed(done: list[str], monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    told(monkeypatch, text)
    assert guardian.main(ARGUMENTS) == 0
    assert done == ["ways"]


def test_ways_are_given_back_though_the_vm_can_not_be_resumed(
    done: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(uri: str, uuid: str) -> None:
        raise exceptions.LoadFailed(what=f"VM {uuid}", problem="libvirtd is gone")

    monkeypatch.setattr(vms, "resume", fail)
    monkeypatch.setattr(guardian, "LIBVIRT_PATIENCE", 0.0)
    assert guardian.main(ARGUMENTS) == 1
    assert done == ["ways"]
    words = "vmqos bench could not let a VM run again; 'virsh resume a-vm' does: VM a-vm failed: libvirtd is gone\n"
    assert capsys.readouterr().err == words


def test_a_libvirt_that_is_started_anew_is_waited_for(
    done: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left, resume = [2], vms.resume

    def fail_twice(uri: str, uuid: str) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise exceptions.LoadFailed(what=f"VM {uuid}", problem="libvirtd is gone")
        resume(uri, uuid)

    monkeypatch.setattr(vms, "resume", fail_twice)
    monkeypatch.setattr(guardian, "PAUSE", 0.01)
    assert guardian.main(ARGUMENTS) == 0
    assert done == ["ways", "a-vm runs"] and not capsys.readouterr().err


def test_the_vm_is_resumed_though_ways_can_not_be_given_back(
    done: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(filesystem: object, timeout: float) -> None:
        raise resctrl_exceptions.LockTimeout(path="/sys/fs/resctrl", timeout=1.0, holders="another")

    monkeypatch.setattr(ways, "give_back", fail)
    assert guardian.main(ARGUMENTS) == 1
    assert done == ["a-vm runs"]
    assert "could not give its ways back; 'vmqos reset' does" in capsys.readouterr().err
