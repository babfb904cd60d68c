# SPDX-License-Identifier: Apache-2.0
"""When a VM that ends is gone: at once, whatever libvirt says of it, or does not say yet."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.unit.agent.observe.late_libvirt import LONG, PATIENCE, Libvirt, have_a_list_come_late
from tests.unit.agent.observe.late_libvirt import late as late
from tests.unit.agent.observe.late_libvirt import libvirt as libvirt
from tests.unit.agent.observe.late_libvirt import patient as patient
from tests.unit.agent.observe.late_libvirt import qemu as qemu
from tests.unit.agent.observe.late_libvirt import running as running
from tests.unit.eventually import eventually
from vmqos.agent.courtesy import Courtesy
from vmqos.agent.observe import running_vms as module
from vmqos.agent.observe.running_vms import RunningVms, lives
from vmqos.hypervisor import processes


@pytest.fixture
def ends(running: RunningVms, libvirt: Libvirt) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a VM of this name, which the agent knows beside ``a``."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        libvirt.vms["ends"] = replace(libvirt.vm, uuid="ends", process=processes.of_pid(process.pid))
        libvirt.listed = {"a": 1, "ends": 1}
        assert running.look(True, LONG).vms.keys() == {"a", "ends"}
        yield process
        process.kill()


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process, and wait until it has ended; it is not reaped."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_a_vm_that_ends_while_libvirt_is_away_is_gone_until_libvirt_lists_it_anew(
    running: RunningVms, libvirt: Libvirt, qemu: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert running.look(True, LONG).vms.keys() == {"a"}
    libvirt.reached = False
    qemu.kill()
    qemu.wait()
    for _ in range(2):
        found = running.look(True, LONG)
        assert not found.vms and not found.unseen
    libvirt.reached = True
    found = running.look(True, LONG)
    assert not found.vms and not found.unseen, "libvirt takes its cgroups down before it lists it no more"
    monkeypatch.setattr(module, "ENDED_PATIENCE", 0.0)
    assert running.look(True, LONG).unseen == {"a"}, "libvirt says that it runs, and it can't be looked at"


def test_a_vm_whose_process_ends_is_gone_without_a_list_and_one_that_lives_is_not(
    running: RunningVms, libvirt: Libvirt, ends: subprocess.Popen[bytes]
) -> None:
    libvirt.answers.clear()
    assert running.look(False, PATIENCE).vms.keys() == {"a", "ends"}
    ends.kill()
    ends.wait()
    found = running.look(False, PATIENCE)
    assert found.vms.keys() == {"a"} and not found.unseen


def test_a_vm_that_libvirt_listed_before_its_process_ended_is_gone_and_not_unseen(
    running: RunningVms, ends: subprocess.Popen[bytes]
) -> None:
    ends.kill()
    ends.wait()
    running.mark("ends")
    found = running.look(False, LONG)
    assert found.vms.keys() == {"a"} and not found.unseen


def test_a_vm_whose_end_the_kernel_tells_is_gone_although_a_late_list_has_it(
    running: RunningVms, libvirt: Libvirt, late: threading.Event, ends: subprocess.Popen[bytes]
) -> None:
    have_a_list_come_late(running, libvirt, late)
    ends.kill()
    ends.wait()
    running.note_end({libvirt.vms["ends"].process})
    found = running.look(False, LONG)
    assert found.vms.keys() == {"a"} and not found.unseen and found.due is not None, "libvirt is to be asked"
    assert running.look(False, LONG).vms.keys() == {"a"}, "libvirt lists it for a second longer"
    libvirt.listed = {"a": 1, "ends": 2}
    libvirt.vms["ends"] = replace(libvirt.vm, uuid="ends", libvirt_id=2)
    assert running.look(False, LONG).vms.keys() == {"a", "ends"}, "it was started anew"


def test_no_other_vm_is_looked_at_for_an_end(
    running: RunningVms, libvirt: Libvirt, ends: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = list[str]()
    monkeypatch.setattr(module, "lives", lambda vm: looked_at.append(vm.uuid) or lives(vm))
    kill(ends)
    running.note_end({libvirt.vms["ends"].process})
    assert running.look(False, LONG).vms.keys() == {"a"} and looked_at == ["ends"]
    running.note_end(set())
    assert running.look(False, LONG).vms.keys() == {"a"} and looked_at == ["ends"]


def test_an_end_that_is_told_of_at_the_last_moment_of_a_round_is_not_lost(
    running: RunningVms, libvirt: Libvirt, ends: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    take = running._take_ended

    def end_first() -> set[str]:
        kill(ends)
        running.note_end({libvirt.vms["ends"].process})
        return take()

    monkeypatch.setattr(running, "_take_ended", end_first)
    assert running.look(False, LONG).vms.keys() == {"a"}


def test_no_other_vm_is_looked_at_for_an_end_when_libvirt_is_asked_all_the_same(
    running: RunningVms, libvirt: Libvirt, ends: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = list[str]()
    monkeypatch.setattr(module, "lives", lambda vm: looked_at.append(vm.uuid) or lives(vm))
    # Passes gave way to ends for as long as they may.
    monkeypatch.setattr(Courtesy, "gives_way", lambda self: False)
    kill(ends)
    running.note_end({libvirt.vms["ends"].process})
    assert running.look(False, LONG).vms.keys() == {"a"} and looked_at == ["ends"]


def test_an_end_ends_the_wait_for_a_libvirt_that_is_busy_with_it(
    running: RunningVms, libvirt: Libvirt, ends: subprocess.Popen[bytes]
) -> None:
    libvirt.answers.clear()

    def end() -> None:
        kill(ends)
        running.note_end({libvirt.vms["ends"].process})

    timer = threading.Timer(0.05, end)
    timer.start()
    found = running.look(False, LONG)
    timer.join()
    assert found.vms.keys() == {"a"} and not running.has_news


def test_an_end_ends_a_round_of_quick_looks_which_goes_on_in_the_next_one(
    running: RunningVms, libvirt: Libvirt, ends: subprocess.Popen[bytes]
) -> None:
    libvirt.vms |= {f"vm{number}": replace(libvirt.vm, uuid=f"vm{number}") for number in range(100)}
    libvirt.listed = {"a": 1, **dict.fromkeys(libvirt.vms, 1)}
    assert len(running.look(True, LONG).vms) == 102
    before = libvirt.described

    def end() -> None:
        time.sleep(0.02)
        if libvirt.described == before + 5:
            kill(ends)
            running.note_end({libvirt.vms["ends"].process})

    libvirt.on_describe = end
    found = running.look(True, LONG)
    assert "ends" not in found.vms and len(found.vms) == 101
    assert libvirt.described < before + 100 and found.due is not None, "the others are still to be looked at"
    # The look that was under way at the end may take a moment longer.
    libvirt.on_describe = lambda: None
    eventually(lambda: running.look(False, LONG).due is None)
    found = running.look(False, LONG)
    assert len(found.vms) == 101 and libvirt.described > before + 100
