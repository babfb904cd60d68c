# SPDX-License-Identifier: Apache-2.0
"""A trial: the lease, and what it makes of a flavor's request; what passes make of it is in ``test_loop_trials``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.agent.serve.test_vms import UUID, snapshot, with_record
from tests.unit.clock import Clock
from vmqos.agent import trial
from vmqos.agent.act.move_tasks import TaskGroup, TaskPlacement
from vmqos.agent.observe.flavor_request import CACHETUNE, NO_EXTRA_SPECS, FlavorRequest
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.trial import LEASE, LONGEST, LONGEST_OF_WAYS, Trial, TrialRefused, Trials
from vmqos.allocation import Allocation, Plan, PromiseState, Request, Split
from vmqos.daemon.backoff import Failure
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.hypervisor.model import Process
from vmqos.reason import NO_REASON, Code, Reason, joined
from vmqos.resctrl.bitmask import CapacityBitmask

VM = snapshot().vms[UUID].observed.vm
TRIAL = Trial("k", UUID, VM.process, 20, None, 20, "%")
OWN = CacheRequest(ways=4)


@pytest.fixture
def changes() -> list[str]:
    """A word for each time that a pass was called for."""
    return []


@pytest.fixture
def trials(clock: Clock, changes: list[str]) -> Trials:
    return Trials(lambda: changes.append("pass"), clock)


@pytest.mark.parametrize(
    ("asked", "wants"),
    [
        (None, CacheRequest(bandwidth_percent=20)),
        (OWN, replace(OWN, bandwidth_percent=20)),
        (
            CacheRequest(ways=2, policy=CachePolicy.SHARED),
            CacheRequest(ways=2, policy=CachePolicy.SHARED, bandwidth_percent=20),
        ),
    ],
)
def test_a_trial_adds_a_limit_and_changes_nothing_else_of_what_a_flavor_asks_for(
    asked: CacheRequest | None, wants: CacheRequest
) -> None:
    request = FlavorRequest(wants=asked, asked=asked)
    found = trial.applied(request, VM, TRIAL)
    assert (found.wants, found.asked) == (wants, asked)
    assert found.trial.code is Code.TRIAL and "20 %" in found.trial.text


def test_no_other_vm_and_no_other_run_of_it_is_limited() -> None:
    request = FlavorRequest()
    assert trial.applied(request, replace(VM, uuid="other"), TRIAL) is request
    assert trial.applied(request, replace(VM, process=Process(100, 6)), TRIAL) is request


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (FlavorRequest(hands_off=True, remark=CACHETUNE), "cachetune"),
        (FlavorRequest(unknown=NO_EXTRA_SPECS), "not known what its flavor promises"),
        (FlavorRequest(problem=Reason(Code.BAD_FLAVOR, "hw:cache_ways='x'")), "hw:cache_ways='x'"),
        (FlavorRequest(asked=CacheRequest(bandwidth_percent=50)), "gives it 50 % of memory bandwidth"),
        (FlavorRequest(asked=CacheRequest(bandwidth_mbps=4000)), "gives it 4000 MB/s of memory bandwidth"),
        (FlavorRequest(asked=CacheRequest(ways=2, vcpus=frozenset({0}))), "hw:cache_vcpus"),
    ],
)
def test_a_vm_that_could_lose_something_is_left_as_it_is(request_: FlavorRequest, why: str) -> None:
    assert why in trial.why_not(request_)
    assert trial.applied(request_, VM, TRIAL) is request_


def test_a_trial_is_over_when_nobody_asks_for_it_any_more(trials: Trials, clock: Clock, changes: list[str]) -> None:
    trials.begin(TRIAL)
    assert trials.running is TRIAL and trials.due == LEASE and changes == ["pass"]
    for _ in range(3):
        clock.now += LEASE - 0.1
        trials.renew("k")
    assert trials.running is TRIAL and len(changes) == 1, "asking again changes nothing"
    clock.now += LEASE
    assert trials.running is None and trials.due is None and len(changes) == 2
    with pytest.raises(TrialRefused, match="this trial is over: nobody asked for it for 5 s"):
        trials.renew("k")


def test_a_trial_is_over_after_its_longest_time_however_often_its_client_asks(trials: Trials, clock: Clock) -> None:
    trials.begin(TRIAL)
    for _ in range(int(LONGEST) - 1):
        clock.now += 1
        trials.renew("k")
    assert trials.due == pytest.approx(1)
    clock.now += 1
    with pytest.raises(TrialRefused, match="this trial is over: it lasted for 60 s"):
        trials.renew("k")
    assert trials.running is None


def test_a_trial_that_is_given_back_is_over_at_once(trials: Trials, changes: list[str]) -> None:
    trials.begin(TRIAL)
    trials.end("k")
    assert trials.running is None and len(changes) == 2
    with pytest.raises(TrialRefused, match="its client gave it back"):
        trials.end("k")


def test_one_trial_runs_at_a_time_and_only_its_client_may_speak_for_it(trials: Trials) -> None:
    trials.begin(TRIAL)
    with pytest.raises(TrialRefused, match=f"a trial on VM {UUID} runs already"):
        trials.begin(replace(TRIAL, key="other", uuid="other"))
    for say in (trials.renew, trials.end):
        with pytest.raises(TrialRefused, match="there is no such trial"):
            say("other")
    assert trials.running is TRIAL


def test_a_client_of_the_agent_before_does_not_begin_a_trial_by_asking_again(trials: Trials) -> None:
    with pytest.raises(TrialRefused, match="there is no such trial"):
        trials.renew("k")
    assert trials.running is None


def test_an_agent_that_ends_ends_its_trial_and_begins_none(trials: Trials) -> None:
    assert not trials.close()
    with pytest.raises(TrialRefused, match="the agent ends"):
        trials.begin(TRIAL)


def limited(**changes: object) -> Snapshot:
    """A host whose VM is limited by the trial."""
    given = Allocation(PromiseState.KEPT, f"vmqos.{UUID}", throttles={0: 20})
    placed = TaskPlacement(TaskGroup(given.group), frozenset({100}), frozenset({100}))
    request = trial.applied(FlavorRequest(OWN, OWN), VM, TRIAL)
    return with_record(snapshot(), **{"request": request, "allocation": given, "tasks": placed, **changes})


def test_a_limit_is_in_force_once_all_tasks_of_the_vm_have_it(trials: Trials) -> None:
    trials.begin(TRIAL)
    assert trials.state() == (TRIAL, False, LONGEST)
    trials.note(limited())
    assert trials.state() == (TRIAL, True, LONGEST)
    two = frozenset({100, 101})
    for less in (
        {"request": FlavorRequest(OWN, OWN)},
        {"allocation": Allocation(PromiseState.KEPT, f"vmqos.{UUID}")},
        {"allocation": Allocation(PromiseState.KEPT, "another", throttles={0: 20})},
        {"tasks": None},
        {"tasks": TaskPlacement(TaskGroup(f"vmqos.{UUID}"), two, frozenset({100}))},
        {"failure": Failure(Reason(Code.REFUSED, "no"), 1.0, 0.0)},
    ):
        trials.note(limited(**less))
        assert trials.state() == (TRIAL, False, LONGEST), less


def test_a_trial_is_over_when_its_vm_is_gone_or_has_another_process(trials: Trials) -> None:
    there = limited()
    known = there.vms[UUID].observed
    for gone in (
        replace(there, vms={}),
        limited(observed=replace(known, vm=replace(known.vm, process=Process(100, 6)))),
    ):
        trials.begin(TRIAL)
        trials.note(gone)
        assert trials.running is None
        with pytest.raises(TrialRefused, match="the VM has ended"):
            trials.renew("k")


@pytest.mark.parametrize("beside", [NO_REASON, Reason(Code.BANDWIDTH_UNIT, "this host takes MB/s")])
@pytest.mark.parametrize("code", [Code.NO_CLOSID, Code.WAITS_FOR_CLOSID])
def test_a_promise_that_lacks_a_closid_goes_before_a_trial(code: Code, beside: Reason, trials: Trials) -> None:
    known, reason = limited(), joined(beside, Reason(code, "none is left"))
    waits = replace(known.vms[UUID], allocation=Allocation(PromiseState.PENDING, reason=reason))
    host = replace(known, vms={**known.vms, "w": waits})
    trials.begin(replace(TRIAL, waiting=frozenset({"w"})))
    trials.note(host)
    assert trials.running is not None, "it waited before"
    trials.note(replace(host, vms={**host.vms, "x": waits}))
    assert trials.running is None
    with pytest.raises(TrialRefused, match=r"VM x needs a class of service \(CLOSID\)"):
        trials.renew("k")


# Of ways.

L2 = CapacityBitmask(1)
MORE = Trial("k", UUID, VM.process, None, None, 6, "ways", ways=6)


@pytest.mark.parametrize(
    ("asked", "ways"),
    [(OWN, 6), (CacheRequest(ways=8), 8), (CacheRequest(ways=2, bandwidth_percent=50, l2_ways=3), 6)],
    ids=["fewer are promised", "more are promised", "more is promised than ways"],
)
def test_a_vm_has_the_ways_that_are_tried_and_never_fewer_than_it_was_promised(asked: CacheRequest, ways: int) -> None:
    found = trial.applied(FlavorRequest(wants=asked, asked=asked), VM, MORE)
    assert (found.wants, found.asked) == (replace(asked, ways=ways), asked)
    assert found.trial == Reason(Code.TRIAL, "a trial lets it have 6 ways, for 15 minutes at most (vmqos size)")
    one = replace(MORE, ways=1).reason
    assert one == Reason(Code.TRIAL, "a trial lets it have 1 way, for 15 minutes at most (vmqos size)")
    assert not found.is_trial_alone
    assert trial.tries_ways(found) is (ways == 6) and trial.kept_place(found, ASKED) is None


ASKED = Request(UUID, CacheRequest(ways=6), frozenset({0}), 5)
FEWER = replace(MORE, may_fill_fewer=True)


@pytest.mark.parametrize(
    ("asked", "ways"),
    [
        (CacheRequest(ways=2, policy=CachePolicy.SHARED), 6),
        (CacheRequest(ways=6, policy=CachePolicy.SHARED), 6),
        (CacheRequest(ways=8, policy=CachePolicy.SHARED, bandwidth_percent=50), 8),
    ],
)
def test_a_vm_in_a_class_has_at_least_as_many_ways_for_itself_and_its_place_is_kept(
    asked: CacheRequest, ways: int
) -> None:
    found = trial.applied(FlavorRequest(wants=asked, asked=asked), VM, MORE)
    assert (found.wants, found.asked) == (replace(asked, ways=ways, policy=CachePolicy.EXCLUSIVE), asked)
    assert trial.tries_ways(found) and not found.is_trial_alone
    place = trial.kept_place(found, ASKED)
    assert place is not None and (place.wants, place.caches, place.arrival) == (asked, ASKED.caches, ASKED.arrival)
    assert place.uuid not in (UUID, "")


@pytest.mark.parametrize(
    ("asked", "wants", "has_place"),
    [
        (None, CacheRequest(ways=6), False),
        (CacheRequest(bandwidth_percent=50), CacheRequest(ways=6, bandwidth_percent=50), True),
        (CacheRequest(bandwidth_mbps=4000), CacheRequest(ways=6, bandwidth_mbps=4000), False),
        (CacheRequest(l2_ways=2), CacheRequest(ways=6, l2_ways=2), False),
        (CacheRequest(l2_ways=2, policy=CachePolicy.SHARED), CacheRequest(ways=6, l2_ways=2), True),
    ],
)
def test_a_vm_without_ways_has_some_only_if_its_client_says_that_it_may_fill_fewer(
    asked: CacheRequest | None, wants: CacheRequest, has_place: bool
) -> None:
    request = FlavorRequest(wants=asked, asked=asked)
    assert "promises it no ways" in trial.why_not(request, 6)
    assert trial.applied(request, VM, MORE) is request
    assert not trial.why_not(request, 6, may_fill_fewer=True)
    found = trial.applied(request, VM, FEWER)
    assert (found.wants, found.asked, found.is_trial_alone) == (wants, asked, asked is None)
    assert trial.tries_ways(found) and (trial.kept_place(found, ASKED) is not None) is has_place


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (FlavorRequest(asked=CacheRequest(code_ways=1, data_ways=2)), "ways for code and for data apart"),
        (FlavorRequest(asked=CacheRequest(ways=2, vcpus=frozenset({0}))), "hw:cache_vcpus"),
        (FlavorRequest(asked=CacheRequest(vcpus=frozenset({0}), l2_ways=1)), "hw:cache_vcpus"),
        (FlavorRequest(hands_off=True, remark=CACHETUNE), "cachetune"),
        (FlavorRequest(unknown=NO_EXTRA_SPECS), "not known what its flavor promises"),
        (FlavorRequest(problem=Reason(Code.BAD_FLAVOR, "hw:cache_ways='x'")), "hw:cache_ways='x'"),
    ],
)
def test_a_vm_whose_ways_are_not_all_of_its_tasks_alone_gets_none_to_try(request_: FlavorRequest, why: str) -> None:
    for one in (MORE, FEWER):
        assert why in trial.why_not(request_, 6, may_fill_fewer=one.may_fill_fewer)
        assert trial.applied(request_, VM, one) is request_


APART = CacheRequest(code_ways=2, data_ways=3)
MORE_DATA = replace(MORE, ways=7, limit=7, code=2)


@pytest.mark.parametrize(
    ("code", "data", "wants"),
    [
        (2, 5, CacheRequest(code_ways=2, data_ways=5)),
        (4, 3, CacheRequest(code_ways=4, data_ways=3)),
        (1, 1, APART),
    ],
)
@pytest.mark.parametrize("policy", CachePolicy)
def test_a_vm_with_ways_for_code_and_data_apart_has_more_of_the_one_and_never_fewer_of_the_other(
    code: int, data: int, wants: CacheRequest, policy: CachePolicy
) -> None:
    asked = replace(APART, policy=policy)
    found = trial.applied(FlavorRequest(asked, asked), VM, replace(MORE, ways=code + data, code=code))
    assert (found.wants, found.asked) == (wants, asked)
    assert trial.tries_ways(found) is (wants != asked)
    place = trial.kept_place(found, replace(ASKED, wants=wants))
    assert (place and place.wants) == (asked if policy is CachePolicy.SHARED else None)
    assert f"{code} {'way' if code == 1 else 'ways'} for code and {data} for data" in found.trial.text


def test_ways_for_code_and_data_apart_are_tried_on_vms_that_have_such_alone() -> None:
    for asked in (None, OWN):
        request = FlavorRequest(asked, asked)
        assert "no ways for code and for data apart" in trial.why_not(request, 7, code=2, may_fill_fewer=True)
        assert trial.applied(request, VM, replace(MORE_DATA, may_fill_fewer=True)) is request
    assert "some of its vCPUs" in trial.why_not(FlavorRequest(asked=replace(APART, vcpus=frozenset({0}))), 7, code=2)


@pytest.mark.parametrize(("code", "ways", "goes_on"), [(2, 8, True), (3, 8, True), (3, 7, False), (None, 9, False)])
def test_a_trial_of_ways_apart_goes_on_with_no_fewer_of_either(code: int | None, ways: int, goes_on: bool) -> None:
    further = replace(MORE_DATA, code=code, ways=ways)
    assert further.goes_on_from(MORE_DATA) is goes_on
    assert not MORE_DATA.goes_on_from(MORE)


@pytest.mark.parametrize(("data", "is_in_force"), [(0b1111100, True), (0b111100, False), (None, False)])
def test_ways_apart_are_in_force_once_the_vm_has_so_many_of_both(data: int | None, is_in_force: bool) -> None:
    parts = {} if data is None else {0: Split(CapacityBitmask(0b11), CapacityBitmask(data))}
    masks = {0: CapacityBitmask(0b1111111)}
    given = Allocation(PromiseState.KEPT, f"vmqos.{UUID}", masks, splits=parts)
    found = limited(request=trial.applied(FlavorRequest(APART, APART), VM, MORE_DATA), allocation=given)
    assert trial.is_in_force(found.vms[UUID], MORE_DATA) is is_in_force


@pytest.mark.parametrize(
    ("asked", "has_place"), [(None, False), (OWN, False), (CacheRequest(ways=2, policy=CachePolicy.SHARED), True)]
)
def test_a_limit_tries_no_ways_and_keeps_the_place_of_a_vm_in_a_class(
    asked: CacheRequest | None, has_place: bool
) -> None:
    found = trial.applied(FlavorRequest(wants=asked, asked=asked), VM, TRIAL)
    assert found.trial and not trial.tries_ways(found)
    place = trial.kept_place(found, ASKED)
    assert (place.wants if place is not None else None) == (asked if has_place else None)


def test_a_trial_of_ways_goes_up_step_by_step_and_its_time_is_that_of_all_steps(trials: Trials, clock: Clock) -> None:
    trials.begin(MORE)
    assert trials.state() == (MORE, False, LONGEST_OF_WAYS)
    for ways in (6, 7, 9):
        clock.now += 4.0
        trials.begin(replace(MORE, ways=ways, limit=ways))
    found = trials.state()
    assert found is not None and (found[0].ways, found[1], found[2]) == (9, False, LONGEST_OF_WAYS - 12.0)
    with pytest.raises(TrialRefused, match="this trial is at 9 ways, and goes up only"):
        trials.begin(MORE)
    for other in (replace(MORE, key="other", ways=10), replace(TRIAL, key="other"), TRIAL):
        with pytest.raises(TrialRefused, match=f"a trial on VM {UUID} runs already"):
            trials.begin(other)
    for _ in range(int(LONGEST_OF_WAYS) - 13):
        clock.now += 1
        trials.renew("k")
    clock.now += 1
    with pytest.raises(TrialRefused, match="this trial is over: it lasted for 900 s"):
        trials.renew("k")


def with_ways(count: int, **changes: object) -> Snapshot:
    """A host whose VM is let have 6 ways, and has so many."""
    given = Allocation(PromiseState.KEPT, f"vmqos.{UUID}", {0: CapacityBitmask((1 << count) - 1), ~0: L2})
    placed = TaskPlacement(TaskGroup(given.group), frozenset({100}), frozenset({100}))
    request = trial.applied(FlavorRequest(OWN, OWN), VM, MORE)
    return with_record(snapshot(), **{"request": request, "allocation": given, "tasks": placed, **changes})


def test_ways_are_in_force_once_the_vm_has_them_on_each_cache_with_all_its_tasks(trials: Trials) -> None:
    trials.begin(MORE)
    for enough in (6, 7):
        trials.note(with_ways(enough))
        assert trials.state() == (MORE, True, LONGEST_OF_WAYS)
    two = Allocation(PromiseState.KEPT, f"vmqos.{UUID}", {0: CapacityBitmask(0x3F), 1: CapacityBitmask(0xF)})
    for less in (
        with_ways(5),
        with_ways(6, allocation=two),
        with_ways(6, allocation=Allocation(PromiseState.KEPT, f"vmqos.{UUID}")),
        with_ways(6, request=FlavorRequest(OWN, OWN)),
        with_ways(6, tasks=None),
    ):
        trials.note(less)
        assert trials.state() == (MORE, False, LONGEST_OF_WAYS)
    trials.note(with_ways(6))
    trials.begin(replace(MORE, ways=7, limit=7))
    trials.note(with_ways(6))
    assert trials.state() == (replace(MORE, ways=7, limit=7), False, LONGEST_OF_WAYS), "the next step is not there yet"


def test_ways_that_a_pass_did_not_give_end_the_trial_with_its_reason(trials: Trials) -> None:
    trials.begin(MORE)
    trials.note(with_ways(6), (replace(MORE, key="another"), "of another trial"))
    assert trials.running is MORE
    trials.begin(replace(MORE, ways=7, limit=7))
    trials.note(with_ways(6), (MORE, "VM x would have less for it"))
    with pytest.raises(TrialRefused, match="this trial is over: VM x would have less for it"):
        trials.renew("k")


def test_a_vm_that_lacks_a_closid_ends_no_trial_of_ways(trials: Trials) -> None:
    lacks = Allocation(PromiseState.PENDING, reason=Reason(Code.NO_CLOSID, "none is left"))
    known = with_ways(6)
    trials.begin(MORE)
    trials.note(replace(known, vms={**known.vms, "w": replace(known.vms[UUID], allocation=lacks)}))
    assert trials.running is MORE


def test_what_is_only_tried_is_not_told_as_promised() -> None:
    known = with_ways(6)
    tried = known.vms[UUID].request.wants
    assert tried is not None and tried.ways == 6
    other = Request("other", CacheRequest(ways=3), frozenset({0}), 9)
    requests = (Request(UUID, tried, frozenset({0}), 5), other)
    assert trial.untried(known, requests) == (Request(UUID, OWN, frozenset({0}), 5), other)
    assert trial.untried(replace(known, requests=requests)) == trial.untried(known, requests)
    fewer_on_one = (replace(requests[0], wants_on={1: CacheRequest(ways=5)}), other)
    assert trial.untried(known, fewer_on_one) == trial.untried(known, requests), "a failure for it waits"
    assert trial.untried(with_record(known, request=FlavorRequest(OWN, OWN)), requests) == requests


def test_what_is_only_tried_on_a_vm_without_ways_of_its_own_is_not_told_either() -> None:
    known, shared = with_ways(6), CacheRequest(ways=2, policy=CachePolicy.SHARED)
    other = Request("other", CacheRequest(ways=3), frozenset({0}), 9)
    tried = trial.applied(FlavorRequest(), VM, FEWER)
    assert trial.untried(with_record(known, request=tried), (ASKED, other)) == (other,)
    tried = trial.applied(FlavorRequest(shared, shared), VM, MORE)
    place = trial.kept_place(tried, ASKED)
    assert place is not None
    found = trial.untried(with_record(known, request=tried), (place, ASKED, other))
    assert found == (replace(ASKED, wants=shared), other)


def test_what_another_vm_would_have_less_is_told() -> None:
    kept = Allocation(PromiseState.KEPT, "vmqos.other")
    waits = Allocation(PromiseState.PENDING, reason=Reason(Code.NO_WAYS, "no way is free"))
    ordered = Allocation(PromiseState.PENDING, reason=Reason(Code.NO_SAFE_ORDER, "masks can't be moved"))
    without, same = Plan(allocations={UUID: kept, "other": kept}), Plan(allocations={UUID: waits, "other": kept})
    assert not trial.what_others_lose(same, without, UUID)
    less = Plan(allocations={UUID: kept, "other": waits})
    assert trial.what_others_lose(less, without, UUID) == "VM other would have less for it: no way is free"
    assert trial.what_others_lose(less, Plan(allocations={"other": ordered}), UUID)
    assert not trial.what_others_lose(less, less, UUID)


@pytest.mark.parametrize(("masks", "has_less"), [({0: 0x7, 1: 0x3}, True), ({0: 0xF}, True), ({0: 0xF0, 1: 3}, False)])
def test_a_vm_without_all_of_its_ways_has_no_fewer_of_them_for_a_trial(masks: dict[int, int], has_less: bool) -> None:
    def with_masks(bits: dict[int, int]) -> Plan:
        some = {cache: CapacityBitmask(mask) for cache, mask in bits.items()}
        reason = Reason(Code.POOL_TOO_SMALL, "that is all there is")
        return Plan(allocations={"other": Allocation(PromiseState.DEGRADED, "vmqos.shared-ways9", some, reason)})

    told = trial.what_others_lose(with_masks(masks), with_masks({0: 0xF, 1: 0x3}), UUID)
    assert told == ("VM other would have less for it: that is all there is" if has_less else "")


# Of ways that a VM is confined to.

CONFINED = replace(MORE, ways=2, limit=2, may_fill_fewer=True, confines=True)


@pytest.mark.parametrize(
    ("asked", "ways"),
    [
        (None, 2),
        (CacheRequest(ways=2, policy=CachePolicy.SHARED), 2),
        (CacheRequest(ways=5, policy=CachePolicy.SHARED), 5),
    ],
)
def test_a_vm_is_confined_to_no_fewer_ways_than_its_flavor_promises(asked: CacheRequest | None, ways: int) -> None:
    request = FlavorRequest(wants=asked, asked=asked)
    found = trial.applied(request, VM, CONFINED)
    assert found.wants is not None
    assert (found.wants.ways, found.wants.policy, found.asked) == (ways, CachePolicy.EXCLUSIVE, asked)
    text = "a trial lets it fill 2 ways and no others, for 60 seconds at most (vmqos neighbours --confirm)"
    assert found.trial == Reason(Code.TRIAL, text)


@pytest.mark.parametrize("asked", [OWN, CacheRequest(code_ways=1, data_ways=1)])
def test_a_vm_with_ways_of_its_own_is_not_confined_to_any(asked: CacheRequest) -> None:
    request, code = FlavorRequest(asked, asked), asked.code_ways
    assert "ways of its own, and it fills no others" in trial.why_not(request, 2, code=code, confines=True)
    assert trial.applied(request, VM, replace(CONFINED, code=code)) is request


def test_a_vm_is_confined_for_as_long_as_it_would_be_limited_and_in_one_step(trials: Trials, clock: Clock) -> None:
    assert CONFINED.longest == LONGEST < MORE.longest
    trials.begin(CONFINED)
    for step in (replace(CONFINED, ways=3), replace(MORE, ways=3, may_fill_fewer=True)):
        with pytest.raises(TrialRefused, match="runs already: one is possible at a time"):
            trials.begin(step)
    for _ in range(int(LONGEST) - 1):
        clock.now += 1
        trials.renew("k")
    clock.now += 1
    with pytest.raises(TrialRefused, match="it lasted for 60 s"):
        trials.renew("k")


def test_a_vm_that_a_pass_did_not_confine_is_confined_no_more(trials: Trials) -> None:
    trials.begin(CONFINED)
    trials.note(snapshot(), (replace(CONFINED, key="another"), "of another trial"))
    assert trials.running is CONFINED
    trials.note(snapshot(), (CONFINED, "VM x would have less for it"))
    with pytest.raises(TrialRefused, match="this trial is over: VM x would have less for it"):
        trials.renew("k")
