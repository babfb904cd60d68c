# SPDX-License-Identifier: Apache-2.0
"""The loop while libvirt hangs, or is slow: no VM waits for a look at another one.

The real loop, the simulator's machine in this process, processes as VMs.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.loop_host import FOUR, SHIPPED, SOON, THREE, TWO, Host, agent_in, time_until
from tests.unit.eventually import eventually
from tools.lab.stalls import Stalls
from vmqos.agent.loop import PASSES_IN_A_ROW
from vmqos.agent.observe import running_vms
from vmqos.allocation import PromiseState
from vmqos.hypervisor.model import VirtualMachine


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with agent_in(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture
def hasty(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave behind what takes longer than milliseconds, as shipped."""
    for name, value in SHIPPED.items():
        monkeypatch.setattr(running_vms, name, value)


@pytest.mark.usefixtures("hasty")
def test_vms_that_start_or_change_are_served_while_libvirt_does_not_list_them(host: Host, stalls: Stalls) -> None:
    known = host.libvirt.boot(TWO)
    with host.running():
        eventually(lambda: host.ways(known) == 2)
        # It locks each VM for the list, and keeps a VM locked that it starts or ends.
        host.libvirt.listing = threading.Event()
        host.agent._on_change(None)
        for ways, specs in ((3, THREE), (4, FOUR), (2, TWO)):
            host.libvirt.resize(known, specs)
            host.agent._on_change(known)
            assert time_until(lambda ways=ways: host.ways(known) == ways, stalls) < SOON  # type: ignore[misc]
        new = host.libvirt.boot(THREE)
        host.agent._on_change(new)
        assert time_until(lambda: host.ways(new) == 3, stalls) < SOON
        host.libvirt.listing.set()
        eventually(lambda: not host.agent.health.unserved and host.ways(new) == 3)


def test_the_end_of_a_vm_is_told_of_while_passes_follow_each_other_at_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = host.libvirt.boot(TWO)
    run_pass, passes = host.agent._run_pass, 0

    def gets_further() -> bool:
        """As on a host where other programs start tasks all the time."""
        nonlocal passes
        passes += 1
        run_pass()
        if passes == 1:
            assert host.ways(vm) == 2
            # libvirt may be busy with the end for a second.
            host.libvirt.listing = threading.Event()
            os.kill(host.libvirt.vms[vm].process.pid, signal.SIGKILL)
            eventually(lambda: host.agent._running_vms.has_news)
        return passes < PASSES_IN_A_ROW

    monkeypatch.setattr(host.agent, "_run_pass", gets_further)
    with host.running():
        eventually(lambda: passes > 1 and host.ways(vm) == 0)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("others", [0, 5, 20])
def test_a_vm_whose_look_hangs_keeps_no_other_vm_waiting_for_a_second(host: Host, stalls: Stalls, others: int) -> None:
    known = host.libvirt.boot(TWO)
    with host.running():
        eventually(lambda: host.ways(known) == 2)
        hung = [known, *(host.libvirt.boot({}) for _ in range(others))]
        for uuid in hung:
            host.libvirt.hung[uuid] = threading.Event()
            host.agent._on_change(uuid)
        served = []
        for _ in range(3):
            good = host.libvirt.boot({"hw:cache_ways": "1"})
            host.agent._on_change(good)
            served.append(time_until(lambda good=good: host.state(good) is PromiseState.KEPT, stalls))  # type: ignore[misc]
        assert max(served) < SOON
        assert host.ways(known) == 2, "what it has is kept"
        eventually(lambda: host.agent.health.unserved.keys() == set(hung))
        eventually(lambda: set(host.agent.health.unserved.values()) == {running_vms.SLOW})
        assert len([thread for thread in threading.enumerate() if thread.name == "look"]) <= len(hung) + 2
        host.libvirt.resize(known, FOUR)
        for event in host.libvirt.hung.values():
            event.set()
        # Nothing but the end of the looks wakes the loop now.
        eventually(lambda: host.ways(known) == 4 and not host.agent.health.unserved)


def test_looks_that_take_long_come_after_the_others(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    # A look of milliseconds is quick also where this machine has no CPU for it for a while.
    monkeypatch.setattr(running_vms, "QUICK_LOOK", 9.0)
    slow, quick = host.libvirt.boot(TWO), host.libvirt.boot(TWO)
    describe, monotonic, passed = host.libvirt.describe, time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + sum(passed))

    def slowly(uuid: str) -> VirtualMachine | None:
        if uuid == slow:
            # As if the look had taken so long.
            passed.append(9.5)
        return describe(uuid)

    monkeypatch.setattr(host.libvirt, "describe", slowly)
    host.agent.run_passes()
    assert host.libvirt.described == [slow, quick], "the VM that was started first"
    host.agent._on_change(None)
    host.agent.run_passes()
    assert host.libvirt.described[2:] == [quick, slow]
    new = host.libvirt.boot(TWO)
    host.agent._on_change(None)
    host.agent.run_passes()
    assert host.libvirt.described[4:] == [new, quick, slow]


@pytest.mark.usefixtures("hasty")
def test_a_round_of_many_slow_looks_ends_in_time_and_the_rest_follows_at_once(
    host: Host, stalls: Stalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe, told = host.libvirt.describe, list[tuple[int, bool]]()

    def slowly(uuid: str) -> VirtualMachine | None:
        # What the last pass told, before the next one does.
        if host.agent.health.passes:
            told.append((len(host.agent.snapshot.vms), running_vms.WAITING in host.agent.health.unserved.values()))
        time.sleep(0.15)
        return describe(uuid)

    monkeypatch.setattr(host.libvirt, "describe", slowly)
    vms = [host.libvirt.boot({}) for _ in range(8)]
    with host.running():
        eventually(lambda: bool(told))
        assert told[0][0] < len(vms) and told[0][1]
        good = host.libvirt.boot(TWO)
        host.agent._on_change(good)
        assert time_until(lambda: host.ways(good) == 2, stalls) < SOON
        eventually(lambda: host.agent.snapshot.vms.keys() == {*vms, good} and not host.agent.health.unserved)


def test_the_only_pass_looks_at_all_vms_however_long_that_takes(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    describe = host.libvirt.describe

    def slowly(uuid: str) -> VirtualMachine | None:
        time.sleep(0.15)
        return describe(uuid)

    monkeypatch.setattr(host.libvirt, "describe", slowly)
    vms = [host.libvirt.boot({"hw:cache_ways": "1"}) for _ in range(6)]
    assert host.agent.run_once()
    assert [host.ways(vm) for vm in vms] == [1] * 6
