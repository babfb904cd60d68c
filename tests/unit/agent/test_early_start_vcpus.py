# SPDX-License-Identifier: Apache-2.0
"""The promise of a VM that libvirt is starting, and whose flavor names the vCPUs that the ways are for."""

from __future__ import annotations

import pytest

from tests.unit.agent.host import OWN, SHARED, Host
from tests.unit.agent.starting import MakeStart
from tests.unit.eventually import eventually
from vmqos.agent.act.task_placer import YET_TO_BE_MOVED
from vmqos.allocation import PromiseState
from vmqos.hypervisor import processes
from vmqos.resctrl import tasks


def test_a_vm_without_the_vcpus_that_its_flavor_names_gets_no_group_until_it_has_one(
    host: Host, make_start: MakeStart
) -> None:
    before = host.groups()
    start = make_start({**OWN, "hw:cache_vcpus": "2-3"})
    before |= host.groups()
    start.announce()
    start.fork()
    assert host.groups() == before and start.process.pid in tasks.read_tasks(host.resctrl, "")


def test_a_pass_that_comes_before_the_vcpus_have_names_takes_nothing_away(make_start: MakeStart, host: Host) -> None:
    start = make_start({**OWN, "hw:cache_vcpus": "0"})
    start.announce()
    start.fork()
    ways = host.mask(start.group)
    start.run()
    host.run()
    host.run(everything=True)
    assert host.mask(start.group) == ways
    assert tasks.read_tasks(host.resctrl, start.group) == {start.process.pid}
    threads = start.make_threads("CPU 0/KVM", "CPU 1/KVM", "worker")
    # They give themselves their names a moment after they are made.
    names = {"CPU 0/KVM", "CPU 1/KVM", "worker"}
    eventually(lambda: names <= {processes.identify(tid).comm for tid in threads})
    (vcpu,) = (tid for tid in threads if processes.identify(tid).comm == "CPU 0/KVM")
    host.settle()
    assert host.mask(start.group) == ways
    assert tasks.read_tasks(host.resctrl, start.group) == {vcpu}
    assert host.told(start.uuid).state is PromiseState.KEPT


@pytest.mark.parametrize("specs", [OWN, SHARED])
def test_a_vm_whose_vcpus_have_no_names_yet_is_told_why_it_is_not_counted(
    make_start: MakeStart, host: Host, specs: dict[str, str]
) -> None:
    start = make_start({**specs, "hw:cache_vcpus": "0"})
    start.announce()
    start.fork()
    start.run()
    host.run()
    assert "no thread of QEMU bears the name" in host.told(start.uuid).reason.text
    assert host.unmonitored(start.uuid) == YET_TO_BE_MOVED


def test_a_vm_whose_vcpus_never_get_names_gives_its_ways_back(
    make_start: MakeStart, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.agent.observe.starts.PROGRAM_PATIENCE", 3600.0)
    start = make_start({**OWN, "hw:cache_vcpus": "0"})
    start.announce()
    start.fork()
    start.run()
    host.run()
    assert start.group in host.groups()
    monkeypatch.setattr("vmqos.agent.observe.starts.PROGRAM_PATIENCE", 0.0)
    host.settle()
    assert start.group not in host.groups()
    assert start.process.pid in tasks.read_tasks(host.resctrl, "")
    assert "no thread of QEMU bears the name" in host.told(start.uuid).reason.text
