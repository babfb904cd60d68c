# SPDX-License-Identifier: Apache-2.0
"""Trials in the loop: everything is as before when a trial is over, however it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.agent.loop_host import LONG, THREE, TWO, Host, Trouble, agent_in
from tests.unit.eventually import eventually
from vmqos import allocation
from vmqos.agent import trial
from vmqos.agent.observe import flavor_request
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.serve import trials, vms
from vmqos.agent.trial import TrialRefused
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import PromiseState
from vmqos.extra_specs import CacheRequest
from vmqos.reason import Code
from vmqos.resctrl import exceptions, tasks
from vmqos.telemetry.sweep.ways import granted, parse

CAP = {"hw:cache_ways": "2", "hw:cache_policy": "shared"}
SHARE = {"hw:cache_policy": "shared"}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with agent_in(tmp_path, monkeypatch) as found:
        yield found


def try_a_limit(host: Host, vm: str, percent: int = 20) -> None:
    trials.begin(host.agent, "key", vm, CacheRequest(bandwidth_percent=percent))


def layout_of(host: Host) -> dict[str, tuple[str, list[str], set[int]]]:
    """All control groups, with what they have, their monitoring groups and their tasks but for this process's."""
    names = ["", *(name for name in host.resctrl.directories() if name.startswith("vmqos."))]
    ours = {vm.process.pid for vm in host.libvirt.vms.values()}
    return {
        name: (
            host.resctrl.read(name, "schemata"),
            host.resctrl.directories(name, "mon_groups"),
            ours & tasks.read_tasks(host.resctrl, name),
        )
        for name in names
    }


def values_on(host: Host, vm: str, resource: str) -> list[str]:
    """What the control group that has the VM has of each cache: masks of ``L3``, or limits of ``MB``."""
    pid = host.libvirt.vms[vm].process.pid
    text = next(text for text, _, there in layout_of(host).values() if pid in there)
    line = next(line for line in text.splitlines() if f"{resource}:" in line)
    return [part.split("=")[1].strip() for part in line.split(":")[1].split(";")]


def limits_on(host: Host, vm: str) -> set[str]:
    """The limits of memory bandwidth, in per cent, of the control group that has the VM."""
    return set(values_on(host, vm, "MB"))


def seen(look: Callable[[], object]) -> object:
    """What a look finds while the agent works; ``None`` where a group went away, or a task moved, in between."""
    try:
        return look()
    except (exceptions.Vanished, StopIteration):
        return None


def settled_with(host: Host, specs: dict[str, str]) -> str:
    vm = host.libvirt.boot(specs)
    host.libvirt.boot(TWO)
    host.settle()
    return vm


@pytest.mark.parametrize("specs", [{}, TWO, CAP], ids=["nothing promised", "ways of its own", "in a class"])
def test_a_trial_limits_a_vm_takes_no_way_and_leaves_everything_as_it_was(host: Host, specs: dict[str, str]) -> None:
    vm = settled_with(host, specs)
    before, state, told = layout_of(host), host.state(vm), host.agent.snapshot.vms[vm]
    ways = values_on(host, vm, "L3")
    # On a busy machine, there may be more than one event before the trial.
    newest = host.agent.events.after(0)["last"]
    try_a_limit(host, vm)
    host.settle()
    record = host.agent.snapshot.vms[vm]
    assert host.agent.trials.state() is not None and host.agent.trials.state()[1], "it is in force"  # type: ignore[index]
    assert limits_on(host, vm) == {"20"} and values_on(host, vm, "L3") == ways
    assert host.state(vm) is state and record.allocation.reason.code is Code.TRIAL
    assert record.allocation.masks == told.allocation.masks
    host.agent.trials.end("key")
    host.settle()
    assert layout_of(host) == before
    after = host.agent.snapshot.vms[vm]
    assert (after.allocation, after.outside) == (told.allocation, told.outside)
    assert after.tasks is not None and told.tasks is not None
    assert (after.tasks.target, after.tasks.in_place) == (told.tasks.target, told.tasks.in_place)
    events = [one for one in host.agent.events.after(newest)["events"] if one["uuid"] == vm]
    assert [(one["kind"], one["state"], one["reason_code"]) for one in events] == [
        ("promise", state.value, "trial"),  # type: ignore[union-attr]
        ("promise", state.value, ""),  # type: ignore[union-attr]
    ]
    assert events[-1]["reason"] == "the trial is over: it has what its flavor asks for again"


@pytest.mark.parametrize("specs", [{}, TWO, CAP], ids=["nothing promised", "ways of its own", "in a class"])
def test_a_trial_of_which_nobody_hears_any_more_lapses_by_itself(
    host: Host, specs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "LEASE", 1.0)
    vm = settled_with(host, specs)
    before = layout_of(host)
    # No audit, and no event: the trial's own end makes the pass.
    with host.running():
        eventually(lambda: not host.agent.reconciler.is_unfinished and host.agent.health.passes > 3)
        try_a_limit(host, vm)

        def is_in_force() -> bool:
            try:
                host.agent.trials.renew("key")
            except TrialRefused:
                # For a second this test had no CPU to ask in.
                with contextlib.suppress(TrialRefused):
                    try_a_limit(host, vm)
            return seen(lambda: limits_on(host, vm)) == {"20"}

        eventually(is_in_force)
        eventually(lambda: seen(lambda: layout_of(host)) == before)
    assert host.agent.trials.running is None


def test_a_trial_is_given_up_by_an_agent_that_ends(host: Host) -> None:
    vm = settled_with(host, {})
    before = layout_of(host)
    with host.running():
        eventually(lambda: host.agent.health.passes > 3)
        try_a_limit(host, vm)
        eventually(lambda: seen(lambda: limits_on(host, vm)) == {"20"})
    assert layout_of(host) == before


def test_an_agent_that_ends_while_another_program_has_the_lock_gives_a_trial_up_once_it_has_it(host: Host) -> None:
    vm = settled_with(host, {})
    before = layout_of(host)
    with host.running():
        eventually(lambda: host.agent.health.passes > 3)
        try_a_limit(host, vm)
        eventually(lambda: seen(lambda: limits_on(host, vm)) == {"20"})
        with host.locked():
            host.agent.stop()
            eventually(lambda: host.agent.trials._is_closed and host.agent.health.resctrl_error)
    assert layout_of(host) == before


def test_an_agent_that_ends_right_after_a_trial_was_given_back_puts_everything_back(host: Host) -> None:
    vm = settled_with(host, {})
    before = layout_of(host)
    try_a_limit(host, vm)
    host.settle()
    assert limits_on(host, vm) == {"20"}
    host.agent.trials.end("key")
    host.agent.stop()
    host.agent.run()
    assert layout_of(host) == before


@pytest.mark.parametrize("specs", [{}, TWO, CAP], ids=["nothing promised", "ways of its own", "in a class"])
def test_an_agent_that_is_started_anew_knows_no_trial_and_puts_everything_back(
    host: Host, specs: dict[str, str]
) -> None:
    vm = settled_with(host, specs)
    before = layout_of(host)
    try_a_limit(host, vm)
    host.settle()
    assert limits_on(host, vm) == {"20"}
    with host.started_anew():
        host.settle()
        assert layout_of(host) == before
        with pytest.raises(TrialRefused, match="there is no such trial"):
            host.agent.trials.renew("key")


def test_what_was_told_of_a_trial_while_passes_failed_is_done_by_the_next(host: Host, trouble: Trouble) -> None:
    vm = settled_with(host, {})
    before = layout_of(host)
    with trouble(host):
        try_a_limit(host, vm)
        host.agent.run_passes()
    assert layout_of(host) == before
    host.agent.run_passes()
    assert limits_on(host, vm) == {"20"}
    with trouble(host):
        host.agent.trials.end("key")
        host.agent.run_passes()
    assert limits_on(host, vm) == {"20"}
    host.agent.run_passes()
    assert layout_of(host) == before


def fill(host: Host, leave: int) -> int:
    """Start VMs with ways until so many CLOSIDs are left; how many VMs these are."""
    count = 0
    resctrl = host.agent.snapshot.resctrl
    assert resctrl is not None
    while resctrl.capabilities.num_closids - len(resctrl.layout.groups) > leave:
        host.libvirt.boot({"hw:cache_ways": "1"} if count < 5 else {"hw:cache_ways": str(count), **SHARE})
        count += 1
        host.settle()
        resctrl = host.agent.snapshot.resctrl
        assert resctrl is not None
    return count


def test_a_trial_without_a_free_closid_is_refused_and_changes_nothing(host: Host) -> None:
    vm = settled_with(host, {})
    fill(host, leave=0)
    before = layout_of(host)
    with pytest.raises(TrialRefused, match=r"no class of service \(CLOSID\) is left"):
        try_a_limit(host, vm)
    host.settle()
    assert layout_of(host) == before and host.agent.trials.running is None


def test_a_trial_gives_the_last_closid_to_a_vm_that_is_promised_ways(host: Host) -> None:
    vm = settled_with(host, {})
    fill(host, leave=1)
    try_a_limit(host, vm)
    host.settle()
    assert limits_on(host, vm) == {"20"}
    newcomer = host.serve({"hw:cache_ways": "1"})
    assert host.state(newcomer) is PromiseState.KEPT and limits_on(host, vm) == {"100"}
    with pytest.raises(TrialRefused, match=f"VM {newcomer} needs a class of service"):
        host.agent.trials.renew("key")


def test_the_class_of_a_vm_that_is_limited_alone_of_it_is_kept_for_it(host: Host) -> None:
    vm = settled_with(host, CAP)
    fill(host, leave=1)
    before, last = layout_of(host).keys(), host.agent.events.after(0)["last"]
    try_a_limit(host, vm)
    host.settle()
    assert limits_on(host, vm) == {"20"} and layout_of(host).keys() == {*before, "vmqos.shared-ways2-mb20"}
    newcomer = host.serve({"hw:cache_ways": "1"})
    assert host.state(newcomer) is PromiseState.KEPT
    with pytest.raises(TrialRefused, match=f"VM {newcomer} needs a class of service"):
        host.agent.trials.renew("key")
    assert limits_on(host, vm) == {"100"} and layout_of(host).keys() == {*before, f"vmqos.{newcomer}"}
    told = [one["state"] for one in host.agent.events.after(last)["events"] if one["uuid"] == vm]
    assert told == ["kept", "kept"], "its promise was kept all the time"


# A trial of ways.


@pytest.fixture
def long_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy takes its time between two questions for a trial."""
    monkeypatch.setattr(trial, "LEASE", 600.0)


def try_ways(host: Host, vm: str, ways: int, *, may_fill_fewer: bool = False) -> None:
    trials.begin(host.agent, "key", vm, CacheRequest(ways=ways), may_fill_fewer=may_fill_fewer)


def fit(host: Host, beside: int = 2) -> tuple[str, str, int]:
    """A VM of two ways, another one of ``beside`` ways, and how many ways are free."""
    vm, other = host.libvirt.boot(TWO), host.libvirt.boot({"hw:cache_ways": str(beside)})
    host.settle()
    return vm, other, free_on(host)


def free_on(host: Host) -> int:
    resctrl = host.agent.snapshot.resctrl
    assert resctrl is not None
    room = allocation.free_ways(resctrl.capabilities, resctrl.layout, host.agent.snapshot.policy)
    return min(cache.free_ways for cache in room.values())


def counts_of(host: Host, vm: str) -> set[int]:
    """How many ways the VM's own group has, on any cache."""
    return {int(mask, 16).bit_count() for mask in values_on(host, vm, "L3")}


@pytest.mark.parametrize("specs", [TWO, {}], ids=["promised ways", "promised nothing"])
@pytest.mark.usefixtures("long_lease")
def test_the_agent_and_the_counters_tell_the_same_ways_while_some_are_tried(host: Host, specs: dict[str, str]) -> None:
    vm = settled_with(host, specs)
    try_ways(host, vm, 4, may_fill_fewer=True)
    host.settle()
    told = vms.vm(host.agent.snapshot, host.agent.snapshot.vms[vm])
    held = {
        name: parse(host.resctrl.read(name, "schemata"), host.resctrl.read(name, "size"))
        for name in ("", f"vmqos.{vm}")
    }
    # So Ceilometer's pollsters read it, which ask no agent.
    found = granted("exclusive", held[f"vmqos.{vm}"], held[""])
    assert set(found.ways.values()) == {4}
    assert {cache: int(mask, 16).bit_count() for cache, mask in told["masks"].items()} == {
        str(cache): count for cache, count in found.ways.items()
    }


@pytest.mark.usefixtures("long_lease")
def test_ways_are_tried_one_after_the_other_and_are_free_again_when_the_trial_is_over(host: Host) -> None:
    vm, other, free = fit(host)
    told, of_other, before = host.agent.snapshot.vms[vm], host.agent.snapshot.vms[other].allocation, layout_of(host)
    last = host.agent.events.after(0)["last"]
    for ways in range(2, 3 + free):
        try_ways(host, vm, ways)
        host.settle()
        found = host.agent.trials.state()
        assert found is not None and found[1], "it is in force"
        assert counts_of(host, vm) == {ways} and counts_of(host, other) == {2}
        given = host.agent.snapshot.vms[vm].allocation
        assert (given.state, given.reason.code) == (PromiseState.KEPT, Code.TRIAL)
    assert free_on(host) == 0
    with pytest.raises(TrialRefused, match=f"nothing is tried on VM {vm}: has {2 + free} of {3 + free} ways"):
        try_ways(host, vm, 3 + free)
    host.agent.trials.end("key")
    host.settle()
    # Masks that were moved are where they were, so that the pool is in one piece again.
    assert layout_of(host) == before and free_on(host) == free
    after = host.agent.snapshot.vms[vm].allocation
    assert (after.state, after.reason, after.since) == (
        PromiseState.KEPT,
        told.allocation.reason,
        told.allocation.since,
    )
    assert host.agent.snapshot.vms[other].allocation.since == of_other.since
    events = [one for one in host.agent.events.after(last)["events"] if one["uuid"] == vm]
    # One when it begins, whatever its steps, and one when it is over.
    assert [(one["state"], one["reason_code"]) for one in events] == [("kept", "trial"), ("kept", "")]


def test_ways_of_which_nobody_hears_any_more_are_free_again_by_themselves(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "LEASE", 0.5)
    vm, _, _ = fit(host)
    before = layout_of(host)
    with host.running():
        eventually(lambda: not host.agent.reconciler.is_unfinished and host.agent.health.passes > 3)
        try_ways(host, vm, 3)
        eventually(lambda: host.agent.trials.running is None)
        eventually(lambda: seen(lambda: layout_of(host)) == before)
    assert "nobody asked for it" in host.agent.trials._over[1]


@pytest.mark.usefixtures("long_lease")
def test_ways_are_given_back_by_an_agent_that_ends(host: Host) -> None:
    vm, _, _ = fit(host)
    before = layout_of(host)
    with host.running():
        eventually(lambda: host.agent.health.passes > 3)
        try_ways(host, vm, 4)
        eventually(lambda: seen(lambda: counts_of(host, vm)) == {4})
    assert layout_of(host) == before


@pytest.mark.usefixtures("long_lease")
def test_an_agent_that_is_started_anew_takes_back_the_ways_that_were_tried(host: Host) -> None:
    vm, other, free = fit(host)
    try_ways(host, vm, 2 + free)
    host.settle()
    assert counts_of(host, vm) == {2 + free}
    with host.started_anew():
        host.settle()
        assert counts_of(host, vm) == counts_of(host, other) == {2} and free_on(host) == free


@pytest.mark.usefixtures("long_lease")
def test_a_vm_that_is_promised_ways_has_them_at_once_though_they_are_tried_on_another(host: Host) -> None:
    vm, other, free = fit(host)
    try_ways(host, vm, 2 + free)
    host.settle()
    newcomer = host.serve({"hw:cache_ways": str(free)})
    assert host.state(newcomer) is PromiseState.KEPT and counts_of(host, newcomer) == {free}
    assert counts_of(host, vm) == counts_of(host, other) == {2}
    assert host.state(vm) is PromiseState.KEPT
    events = [one for one in host.agent.events.after(0)["events"] if one["uuid"] == newcomer]
    assert [one["state"] for one in events if one["kind"] == "promise"] == ["kept"], "it never waited"
    with pytest.raises(TrialRefused, match=f"VM {newcomer} would have less for it"):
        host.agent.trials.renew("key")


@pytest.mark.usefixtures("long_lease")
def test_a_vm_that_is_being_started_gets_ways_that_are_tried_on_another(host: Host) -> None:
    vm, _, free = fit(host)
    try_ways(host, vm, 2 + free)
    host.settle()
    newcomer = host.libvirt.boot({"hw:cache_ways": str(free)})
    description = host.libvirt.vms.pop(newcomer)
    record = VmRecord(ObservedVm(description, frozenset({0})), flavor_request.read(description))
    with host.agent.filesystem.lock(exclusive=True, timeout=LONG):
        targets = host.agent.reconciler.starting.start({newcomer: record})
    assert targets[newcomer].control == f"vmqos.{newcomer}"
    assert host.ways(newcomer) == free and counts_of(host, vm) == {2}
    host.libvirt.vms[newcomer] = description
    host.agent._on_change(newcomer)
    host.settle()
    assert host.state(newcomer) is host.state(vm) is PromiseState.KEPT and counts_of(host, vm) == {2}
    assert host.agent.trials.running is None


@pytest.mark.usefixtures("long_lease")
def test_ways_that_another_trial_would_take_are_refused(host: Host) -> None:
    vm, other, _ = fit(host)
    try_ways(host, vm, 3)
    host.settle()
    with pytest.raises(TrialRefused, match=f"a trial on VM {vm} runs already"):
        trials.begin(host.agent, "another", other, CacheRequest(ways=3))
    assert counts_of(host, vm) == {3} and counts_of(host, other) == {2}


@pytest.mark.usefixtures("long_lease")
def test_a_vm_that_is_resized_while_ways_are_tried_on_it_has_what_its_flavor_promises(host: Host) -> None:
    vm, _, _ = fit(host)
    try_ways(host, vm, 4)
    host.settle()
    host.libvirt.resize(vm, THREE)
    host.agent._on_change(vm)
    host.settle()
    assert counts_of(host, vm) == {4}
    host.agent.trials.end("key")
    host.settle()
    assert counts_of(host, vm) == {3}


@pytest.mark.usefixtures("long_lease")
def test_ways_whose_trial_ended_while_passes_failed_are_free_again_with_the_next(host: Host, trouble: Trouble) -> None:
    vm, other, free = fit(host)
    try_ways(host, vm, 5)
    host.settle()
    with trouble(host):
        host.agent.trials.end("key")
        host.agent.run_passes()
    assert counts_of(host, vm) == {5}
    host.settle()
    assert counts_of(host, vm) == counts_of(host, other) == {2} and free_on(host) == free


NO_OWN = pytest.mark.parametrize(
    ("specs", "least"), [({}, 1), (CAP, 2), ({"hw:mem_bandwidth_percent": "50"}, 1)], ids=["none", "class", "limit"]
)
"""VMs without ways of their own, and the fewest with which a trial begins."""


def beside_one_alike(host: Host, specs: dict[str, str]) -> tuple[str, str, str]:
    """A VM without ways of its own, one with the same flavor, and one with two ways."""
    vm, alike, other = host.libvirt.boot(specs), host.libvirt.boot(specs), host.libvirt.boot(TWO)
    host.settle()
    return vm, alike, other


@NO_OWN
@pytest.mark.usefixtures("long_lease")
def test_a_vm_without_ways_of_its_own_has_some_for_a_while_and_is_where_it_was_when_the_trial_is_over(
    host: Host, specs: dict[str, str], least: int
) -> None:
    vm, alike, other = beside_one_alike(host, specs)
    before, told, free = layout_of(host), host.agent.snapshot.vms[vm], free_on(host)
    of_alike, bandwidth = host.agent.snapshot.vms[alike].allocation, limits_on(host, vm)
    newest, name = host.agent.events.after(0)["last"], f"vmqos.{vm}"
    (place,) = (control for control, (_, inside, _) in before.items() if name in inside)
    for ways in range(least, free + 1):
        try_ways(host, vm, ways, may_fill_fewer=True)
        host.settle()
        found = host.agent.trials.state()
        assert found is not None and found[1], "it is in force"
        assert counts_of(host, vm) == {ways} and counts_of(host, other) == {2}
        assert host.state(vm) is told.allocation.state and limits_on(host, vm) == bandwidth
        assert name in layout_of(host)[place][1] and trials.left_bytes(host.agent, vm) is not None, "that is counted"
        own = set(values_on(host, vm, "L3"))
        for one in (alike, other):
            assert all(not int(mask, 16) & int(mine, 16) for mask in values_on(host, one, "L3") for mine in own)
            assert host.state(one) is (of_alike.state if one == alike else PromiseState.KEPT)
        if specs is CAP:
            assert counts_of(host, alike) == {2}
    with pytest.raises(TrialRefused, match="ways"):
        try_ways(host, vm, free + 1, may_fill_fewer=True)
    host.agent.trials.end("key")
    host.settle()
    assert layout_of(host) == before and free_on(host) == free and trials.left_bytes(host.agent, vm) is None
    after = host.agent.snapshot.vms[vm]
    assert (after.allocation, after.outside) == (told.allocation, told.outside)
    events = [one for one in host.agent.events.after(newest)["events"] if one["uuid"] == vm]
    state = told.allocation.state.value
    assert [(one["state"], one["reason_code"]) for one in events] == [(state, "trial"), (state, "")]


@pytest.mark.usefixtures("long_lease")
def test_a_vm_in_a_class_never_has_fewer_ways_than_its_class(host: Host) -> None:
    vm, alike, _ = beside_one_alike(host, CAP)
    try_ways(host, vm, 1, may_fill_fewer=True)
    host.settle()
    assert counts_of(host, vm) == {2} == counts_of(host, alike)


@pytest.mark.usefixtures("long_lease")
def test_the_class_of_a_vm_that_is_alone_in_it_is_kept_for_it(host: Host) -> None:
    vm, other = host.libvirt.boot(CAP), host.libvirt.boot(TWO)
    host.settle()
    before, classes = layout_of(host), {"vmqos.shared-ways2"}
    try_ways(host, vm, 3)
    host.settle()
    assert counts_of(host, vm) == {3} and classes <= layout_of(host).keys()
    # It takes all that is free beside what the class may fill.
    newcomer = host.serve({"hw:cache_ways": str(free_on(host))})
    assert host.state(newcomer) is PromiseState.KEPT and counts_of(host, vm) == {3}
    host.agent.trials.end("key")
    host.settle()
    assert host.state(vm) is host.state(newcomer) is host.state(other) is PromiseState.KEPT
    assert counts_of(host, vm) == {2} and layout_of(host).keys() == {*before, f"vmqos.{newcomer}"}


@NO_OWN
@pytest.mark.usefixtures("long_lease")
def test_an_agent_that_is_started_anew_puts_a_vm_without_ways_of_its_own_where_it_was(
    host: Host, specs: dict[str, str], least: int
) -> None:
    vm, _, _ = beside_one_alike(host, specs)
    before = layout_of(host)
    try_ways(host, vm, least + 1, may_fill_fewer=True)
    host.settle()
    assert counts_of(host, vm) == {least + 1}
    with host.started_anew():
        host.settle()
        assert layout_of(host).keys() == before.keys()
        assert {name: there for name, (_, _, there) in layout_of(host).items()} == {
            name: there for name, (_, _, there) in before.items()
        }


@NO_OWN
def test_a_vm_without_ways_of_its_own_is_where_it_was_when_nobody_asks_for_its_trial(
    host: Host, specs: dict[str, str], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "LEASE", 0.5)
    vm, _, _ = beside_one_alike(host, specs)
    before = layout_of(host)
    with host.running():
        eventually(lambda: not host.agent.reconciler.is_unfinished and host.agent.health.passes > 3)
        try_ways(host, vm, least + 1, may_fill_fewer=True)
        eventually(lambda: host.agent.trials.running is None)
        eventually(lambda: seen(lambda: layout_of(host)) == before)


@NO_OWN
@pytest.mark.parametrize("confine", [False, True], ids=["tries more", "confined"])
@pytest.mark.usefixtures("long_lease")
def test_a_newcomer_has_at_once_what_it_is_promised_though_a_trial_gives_ways_to_a_vm_without_its_own(
    host: Host, specs: dict[str, str], least: int, confine: bool
) -> None:
    vm, _, _ = beside_one_alike(host, specs)
    where, free = host.agent.snapshot.vms[vm].allocation.group, free_on(host)
    tried = least if confine else free
    trials.begin(host.agent, "key", vm, CacheRequest(ways=tried), may_fill_fewer=not confine, confine=confine)
    host.settle()
    assert counts_of(host, vm) == {tried}
    newcomer = host.serve({"hw:cache_ways": str(free)})
    assert host.state(newcomer) is PromiseState.KEPT and counts_of(host, newcomer) == {free}
    assert host.agent.snapshot.vms[vm].allocation.group == where
    with pytest.raises(TrialRefused, match=f"VM {newcomer} would have less for it"):
        host.agent.trials.renew("key")


@pytest.mark.usefixtures("long_lease")
def test_a_vm_that_is_promised_nothing_is_not_tried_unless_its_client_says_that_it_may_fill_fewer(host: Host) -> None:
    vm, _, _ = beside_one_alike(host, {})
    before = layout_of(host)
    with pytest.raises(TrialRefused, match=r"it may have fewer to fill, and be slower; .* \(may_fill_fewer=true\)"):
        try_ways(host, vm, 3)
    host.settle()
    assert layout_of(host) == before and host.agent.trials.running is None


@NO_OWN
@pytest.mark.usefixtures("long_lease")
def test_the_last_closid_goes_to_a_vm_that_is_promised_ways_though_one_without_tries_them(
    host: Host, specs: dict[str, str], least: int
) -> None:
    vm = settled_with(host, specs)
    where = host.agent.snapshot.vms[vm].allocation.group
    fill(host, leave=1)
    try_ways(host, vm, least, may_fill_fewer=True)
    host.settle()
    assert counts_of(host, vm) == {least} and host.agent.snapshot.vms[vm].allocation.group == f"vmqos.{vm}"
    newcomer = host.serve({"hw:cache_ways": "1"})
    assert host.state(newcomer) is PromiseState.KEPT
    assert host.agent.snapshot.vms[vm].allocation.group == where
    with pytest.raises(TrialRefused, match=f"VM {newcomer} would have less for it"):
        host.agent.trials.renew("key")


@NO_OWN
@pytest.mark.usefixtures("long_lease")
def test_ways_for_a_vm_without_its_own_are_refused_where_no_closid_is_free(
    host: Host, specs: dict[str, str], least: int
) -> None:
    vm = settled_with(host, specs)
    for percent in range(10, 100, 10):
        resctrl = host.agent.snapshot.resctrl
        assert resctrl is not None
        if len(resctrl.layout.groups) < resctrl.capabilities.num_closids:
            host.libvirt.boot({"hw:mem_bandwidth_percent": str(percent)})
            host.settle()
    before = layout_of(host)
    with pytest.raises(TrialRefused, match=r"no class of service \(CLOSID\) is left"):
        try_ways(host, vm, least, may_fill_fewer=True)
    host.settle()
    assert layout_of(host) == before and host.agent.trials.running is None


@NO_OWN
@pytest.mark.usefixtures("long_lease")
def test_a_vm_without_ways_of_its_own_is_confined_to_a_few_and_is_where_it_was_when_the_trial_is_over(
    host: Host, specs: dict[str, str], least: int
) -> None:
    vm, alike, other = beside_one_alike(host, specs)
    before, told = layout_of(host), host.agent.snapshot.vms[vm]
    trials.begin(host.agent, "key", vm, CacheRequest(ways=least), confine=True)
    host.settle()
    found = host.agent.trials.state()
    assert found is not None and found[1] and found[2] <= trial.LONGEST
    assert counts_of(host, vm) == {least} and counts_of(host, other) == {2}
    own = set(values_on(host, vm, "L3"))
    for one in (alike, other):
        assert all(not int(mask, 16) & int(mine, 16) for mask in values_on(host, one, "L3") for mine in own)
    host.agent.trials.end("key")
    host.settle()
    assert layout_of(host) == before and host.agent.snapshot.vms[vm].allocation == told.allocation


@pytest.mark.usefixtures("long_lease")
def test_a_vm_with_ways_of_its_own_is_not_confined(host: Host) -> None:
    vm, _, _ = beside_one_alike(host, TWO)
    before = layout_of(host)
    with pytest.raises(TrialRefused, match="its flavor gives it ways of its own, and it fills no others"):
        trials.begin(host.agent, "key", vm, CacheRequest(ways=2), confine=True)
    host.settle()
    assert layout_of(host) == before


@pytest.mark.usefixtures("long_lease")
def test_a_newcomer_whose_class_can_not_be_whole_has_as_much_of_it_as_without_a_trial(host: Host) -> None:
    vm, _, free = fit(host)
    try_ways(host, vm, 2 + free)
    host.settle()
    assert counts_of(host, vm) == {2 + free}
    # More than there is, with or without the trial.
    newcomer = host.serve({"hw:cache_ways": str(free + 4), **SHARE})
    assert host.state(newcomer) is PromiseState.DEGRADED and min(counts_of(host, newcomer)) >= free
    assert counts_of(host, vm) == {2}
    with pytest.raises(TrialRefused, match=f"VM {newcomer} would have less for it: has 2 of"):
        host.agent.trials.renew("key")


@pytest.mark.parametrize(
    "wants", [CacheRequest(ways=4), CacheRequest(bandwidth_percent=20)], ids=["ways", "a limit of bandwidth"]
)
@pytest.mark.usefixtures("long_lease")
def test_a_trial_is_over_once_resctrl_is_mounted_anew(host: Host, wants: CacheRequest) -> None:
    vm, _, _ = fit(host)
    before = layout_of(host).keys()
    trials.begin(host.agent, "key", vm, wants)
    host.settle()
    found = host.agent.trials.state()
    assert found is not None and found[1], "it is in force"
    host.resctrl.mount_anew()
    host.settle()
    with pytest.raises(TrialRefused, match="this trial is over: resctrl was mounted anew"):
        host.agent.trials.renew("key")
    host.settle()
    assert layout_of(host).keys() == before and counts_of(host, vm) == {2} and limits_on(host, vm) == {"100"}
    assert host.state(vm) is PromiseState.KEPT


@pytest.mark.usefixtures("long_lease")
def test_a_trial_is_not_told_to_be_in_force_without_resctrl(host: Host) -> None:
    vm = settled_with(host, TWO)
    try_a_limit(host, vm)
    host.settle()
    assert (told := trials.told(host.agent.trials)) is not None and told["in_force"]
    with host.unmounted():
        host.agent.run_passes()
        assert host.state(vm) is PromiseState.PENDING
        host.agent.trials.renew("key")
        assert (told := trials.told(host.agent.trials)) is not None and not told["in_force"]


@pytest.mark.parametrize("specs", [{}, CAP], ids=["nothing promised", "in a class"])
def test_a_limit_for_which_the_last_closid_is_gone_takes_no_vm_out_of_its_class(
    host: Host, specs: dict[str, str]
) -> None:
    vm = settled_with(host, specs)
    resctrl = host.agent.snapshot.resctrl
    assert resctrl is not None
    for number in range(resctrl.capabilities.num_closids - len(resctrl.layout.groups) - 1):
        host.resctrl.mkdir(f"theirs{number}")
    host.settle()
    before, state, last = layout_of(host), host.state(vm), host.agent.events.after(0)["last"]
    try_a_limit(host, vm)
    # Another program takes it before the pass that would limit the VM.
    host.resctrl.mkdir("last")
    host.settle()
    with pytest.raises(TrialRefused, match=r"this trial is over: no class of service \(CLOSID\) is left"):
        host.agent.trials.renew("key")
    assert layout_of(host) == before
    told = [one["state"] for one in host.agent.events.after(last)["events"] if one["uuid"] == vm]
    assert host.state(vm) is state and set(told) <= {state.value}, "its promise was kept all the time"  # type: ignore[union-attr]
