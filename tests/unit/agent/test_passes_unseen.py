# SPDX-License-Identifier: Apache-2.0
"""A VM that can't be looked at, or whose flavor is not known, keeps what it has."""

from __future__ import annotations

import pytest

from tests.unit.agent.host import CLASS, OWN, SHARED, Host, MakeHost
from vmqos.allocation import PromiseState
from vmqos.group_names import vm_group
from vmqos.reason import Code, Reason
from vmqos.resctrl import tasks

KEPT, PENDING = PromiseState.KEPT, PromiseState.PENDING


@pytest.mark.parametrize("trouble", ["unseen", "unknown flavor"])
def test_a_class_outlives_a_restart_where_no_monitoring_group_tells_of_its_vm(
    make_host: MakeHost, trouble: str
) -> None:
    host = make_host("minimal")
    for _ in range(4):
        host.boot({})
    vm = host.boot(SHARED)
    host.settle()
    assert host.told(vm).state is KEPT and host.unmonitored(vm)
    host.restart()
    if trouble == "unseen":
        host.unseen.add(vm)
    else:
        host.forget_flavor(vm)
    for _ in range(3):
        host.run()
    assert host.inside(vm, CLASS) == 1 and host.mask(CLASS) == "3"
    if trouble == "unseen":
        host.unseen.clear()
        host.run()
        assert host.told(vm).state is KEPT
    host.libvirt.shut_off(vm)
    host.unseen.clear()
    host.settle()
    assert CLASS not in host.groups(), "nobody needs it any more"


@pytest.mark.parametrize("trouble", ["unseen", "unknown flavor", "failed"])
@pytest.mark.parametrize("outside", ["mounted anew", "group removed"])
@pytest.mark.parametrize("specs", [OWN, {**SHARED, "hw:cache_ways": "4"}], ids=["own", "shared"])
def test_what_a_vm_had_is_given_to_no_newcomer_though_its_group_is_gone(
    host: Host, specs: dict[str, str], outside: str, trouble: str
) -> None:
    vm = host.boot(specs)
    host.settle()
    host.restart()
    if trouble == "unseen":
        host.unseen.add(vm)
    elif trouble == "unknown flavor":
        host.forget_flavor(vm)
    host.settle()
    (group,) = host.groups()
    if trouble == "failed":
        host.backoff.fail(vm, Reason(Code.OTHER, "the kernel refused"))
    if outside == "mounted anew":
        host.resctrl.mount_anew()
    else:
        host.resctrl.rmdir(group)
    host.settle()
    # Of 11 ways, the default group keeps two, and all four that the class may fill.
    newcomers = [host.boot({"hw:cache_ways": "7"}), host.boot({"hw:cache_ways": "1"})]
    host.settle()
    assert [host.told(newcomer).state for newcomer in newcomers] == [KEPT, PENDING]
    host.unseen.clear()
    host.libvirt.resize(vm, specs)
    host.clock += 60.0
    host.settle()
    assert host.told(vm).state is KEPT and host.inside(vm, group) == 1


@pytest.mark.parametrize(
    ("profile", "specs"),
    [("cascade-lake", {"hw:mem_bandwidth_percent": "100"}), ("milan", {"hw:mem_bandwidth_mbps": "300000"})],
)
def test_a_limit_that_limits_nothing_here_is_kept_by_the_pass_that_makes_the_group(
    make_host: MakeHost, profile: str, specs: dict[str, str]
) -> None:
    host = make_host(profile)
    host.settle()
    vm = host.boot(specs)
    host.run()
    assert host.told(vm).state is KEPT
    assert host.inside(vm, host.told(vm).group) == 1


def limit_of(host: Host, vm: str) -> str:
    """The line of a VM's own group that limits its bandwidth."""
    return next(line for line in host.resctrl.read(vm_group(vm), "schemata").splitlines() if "MB:" in line)


def test_a_limit_that_is_lost_while_its_vm_is_unseen_is_given_back_and_the_group_stays(make_host: MakeHost) -> None:
    host = make_host("milan")
    vm = host.boot({"hw:mem_bandwidth_mbps": "1000"})
    host.settle()
    before = limit_of(host, vm)
    host.unseen.add(vm)
    host.settle()
    # So the kernel does when a cache came online.
    host.resctrl.write(f"{vm_group(vm)}/schemata", before.replace("=   8", "=2048"))
    assert limit_of(host, vm) != before
    host.settle()
    assert host.inside(vm, vm_group(vm)) == 1
    assert limit_of(host, vm) == before


def test_what_an_unseen_vm_had_before_a_restart_is_not_taken_for_nothing(host: Host) -> None:
    earlier = host.boot({"hw:cache_ways": "30"})
    vm = host.boot({"hw:cache_ways": "3"})
    host.settle()
    assert host.told(vm).state is KEPT and host.told(earlier).state is PENDING
    host.restart()
    host.unseen.add(vm)
    # Another program has given the default group the ways of the VM.
    caches = next(line for line in host.resctrl.read("", "schemata").splitlines() if "L3:" in line).count("=")
    host.resctrl.write("schemata", "L3:" + ";".join(f"{cache}=7ff" for cache in range(caches)))
    host.settle()
    host.unseen.clear()
    # The ways suffice for one of the two.
    host.libvirt.resize(earlier, {"hw:cache_ways": "7"})
    host.settle()
    assert host.told(vm).state is KEPT, "what was in force is given back first"
    assert host.told(earlier).state is PENDING


def test_the_group_of_an_unseen_vm_outlives_a_restart_though_its_ways_are_the_default_groups_too(host: Host) -> None:
    vm = host.boot(OWN)
    host.settle()
    host.restart()
    host.unseen.add(vm)
    default = host.resctrl.read("", "schemata")
    caches = next(line for line in default.splitlines() if "L3:" in line).count("=")
    host.resctrl.write("schemata", "L3:" + ";".join(f"{cache}=7ff" for cache in range(caches)))
    host.settle()
    assert host.inside(vm, vm_group(vm)) == 1
    host.unseen.clear()
    host.settle()
    assert host.told(vm).state is KEPT


def assert_alone(host: Host, vm: str) -> None:
    """A promise of two ways is in force, and no other group has any of them."""
    mine = int(host.mask(vm_group(vm)), 16)
    assert host.told(vm).state is KEPT and mine.bit_count() == 2
    assert host.inside(vm, vm_group(vm)) == len(host.threads(vm))
    assert not any(mine & int(host.mask(name), 16) for name in {"", *host.groups()} - {vm_group(vm)})


@pytest.mark.parametrize("trouble", ["unseen", "unknown flavor"])
@pytest.mark.parametrize(("group", "mask"), [("", "7ff"), ("own", "600"), ("own", "180")])
def test_ways_that_another_program_had_others_share_before_the_agent_ran_are_given_to_no_newcomer(
    host: Host, group: str, mask: str, trouble: str
) -> None:
    vm = host.boot(OWN)
    host.settle()
    host.restart()
    if trouble == "unseen":
        host.unseen.add(vm)
    else:
        host.forget_flavor(vm)
    host.resctrl.write(f"{vm_group(vm)}/schemata" if group else "schemata", f"L3:0={mask};1={mask}")
    large, small = host.boot({"hw:cache_ways": "9"}), host.boot(OWN)
    host.settle()
    assert host.told(large).state is PENDING, "two ways are another VM's, and two are the default group's"
    assert_alone(host, small)
    mine = int(host.mask(vm_group(vm)), 16)
    others = {"", *host.groups()} - {vm_group(vm)}
    assert mine.bit_count() == 2 and not any(mine & int(host.mask(name), 16) for name in others)
    host.unseen.clear()
    host.libvirt.resize(vm, OWN)
    host.settle()
    assert_alone(host, vm)


def test_a_vm_that_had_nothing_keeps_nothing_once_it_is_unseen(host: Host) -> None:
    first, second = host.boot({"hw:cache_ways": "9"}), host.boot(OWN)
    host.settle()
    assert host.told(second).state is PENDING
    host.libvirt.shut_off(first)
    host.unseen.add(second)
    host.settle()
    assert vm_group(second) not in host.groups()


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "not counted"])
def test_a_vm_for_which_something_failed_stays_in_its_class_though_its_tasks_were_forgotten(
    host: Host, counted: bool
) -> None:
    vm = host.boot(SHARED)
    host.settle()
    if not counted:
        host.resctrl.rmdir(f"{CLASS}/mon_groups/vmqos.{vm}")
    host.backoff.fail(vm, Reason(Code.OTHER, "the kernel refused"))
    # So it is after a pass that could not read resctrl.
    host.reconciler.forget()
    host.run()
    assert host.inside(vm, CLASS) == 1


def test_a_class_without_a_task_of_an_unknown_process_is_retired_though_a_vm_is_unseen(host: Host) -> None:
    member, other = host.boot(SHARED), host.boot({})
    host.settle()
    host.restart()
    host.unseen.add(other)
    host.libvirt.resize(member, {})
    host.settle()
    assert CLASS not in host.groups()


def test_the_vcpus_of_a_vm_whose_flavor_is_not_known_stay_in_their_class(make_host: MakeHost) -> None:
    host = make_host("minimal")
    vm = host.boot(SHARED, threads=2)
    host.settle()
    # A thread's id is lower than its process's where the kernel began to count anew.
    first = host.libvirt.vms[vm].process.pid
    others = host.threads(vm) - {first}
    host.resctrl.rmdir(f"{CLASS}/mon_groups/vmqos.{vm}")
    tasks.move(host.resctrl, "", [first])
    host.restart()
    host.forget_flavor(vm)
    for _ in range(3):
        host.run()
    assert tasks.read_tasks(host.resctrl, CLASS) == others
