# SPDX-License-Identifier: Apache-2.0
"""What was in force comes back before anything new or larger is given, whatever happened meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from tests.unit.allocation.examples import DEGRADED, KEPT, PENDING, carry_out, host, masks, ways
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from tests.unit.allocation.run_plan import follow
from vmqos.allocation import Allocation, Policy, Request, plan
from vmqos.allocation.planner_input import PlannerInput, read_input
from vmqos.allocation.rights import earlier as earlier_grants
from vmqos.allocation.rights.claims import read
from vmqos.allocation.rights.earlier import NONE, EarlierGrant
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import class_group, vm_group

UNGUARDED = Policy(kernel_exclusive=False)
A, B, C = (vm_group(uuid(number)) for number in (1, 2, 3))


class Agent:
    """Plans and carries out, and knows what it granted until it starts anew."""

    def __init__(self, kernel: Kernel, policy: Policy = UNGUARDED) -> None:
        self.kernel, self.policy = kernel, policy
        self.granted: Mapping[str, Mapping[int, int]] | None = None

    def restart(self) -> None:
        self.granted = None

    def passes(self, requests: Iterable[Request]) -> dict[int, Allocation]:
        """Plan and do until nothing is left to do; the last verdicts by the VMs' numbers."""
        wanted = list(requests)
        for _ in range(4):
            found = plan(self.kernel.capabilities, self.kernel.layout(), wanted, self.policy, self.granted)
            follow(self.kernel, wanted, self.policy, found)
            self.granted = found.granted
            if not found.prepare and not found.retire:
                return {int(key[:8], 16): verdict for key, verdict in found.allocations.items()}
        raise AssertionError(found)


RESTARTS = pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])


@RESTARTS
def test_who_grows_does_not_evict_whom_an_outsiders_write_to_the_default_group_overlapped(restarted: bool) -> None:
    agent = Agent(Kernel(machine(11, (0, 1), 0x600)))
    agent.passes([request(1, 4), request(2, 4)])
    wanted = [request(1, 4), request(2, 6)]
    assert agent.passes(wanted)[2].masks[0].count == 4
    before = masks(agent.kernel)
    agent.kernel.masks[""][0] = before[1]
    if restarted:
        agent.restart()
    found = agent.passes(wanted)
    assert (found[1].state, found[2].state) == (KEPT, DEGRADED)
    assert masks(agent.kernel) == before


@RESTARTS
def test_nor_does_a_grower_that_came_first(restarted: bool) -> None:
    agent = Agent(Kernel(machine(11)))
    agent.passes([request(1, 4), request(2, 4)])
    wanted = [request(1, 6), request(2, 4)]
    before = {number: verdict.masks for number, verdict in agent.passes(wanted).items()}
    agent.kernel.masks[""] = {0: masks(agent.kernel)[2]}
    if restarted:
        agent.restart()
    assert {number: verdict.masks for number, verdict in agent.passes(wanted).items()} == before


@RESTARTS
def test_a_vm_that_had_a_part_gets_a_part_back_when_its_cache_comes_online(restarted: bool) -> None:
    agent = Agent(Kernel(machine(11, (0, 1), 0x600)))
    agent.passes([request(1, 4, caches=[1]), request(2, 4, caches=[1])])
    wanted = [request(1, 4, caches=[1]), request(2, 6, caches=[1])]
    assert agent.passes(wanted)[2].masks[1].count == 4
    agent.kernel.come_online(1)
    if restarted:
        agent.restart()
    found = agent.passes(wanted)
    assert found[1].state is KEPT and found[1].masks[1].count == 4
    assert found[2].state is DEGRADED and found[2].masks[1].count >= 4


def test_what_a_cache_had_to_give_before_it_went_offline_is_still_known() -> None:
    agent = Agent(Kernel(machine(11, (0, 1))))
    agent.passes([request(1, 4, caches=(0, 1)), request(2, 4, caches=(0, 1))])
    wanted = [request(1, 8, caches=(0, 1)), request(2, 4, caches=(0, 1))]
    agent.passes(wanted)
    small, large = machine(11, [0]), agent.kernel.capabilities
    gone = {name: found.pop(1) for name, found in agent.kernel.masks.items()}
    agent.kernel.capabilities = small
    here = [request(1, 8, caches=[0]), request(2, 4, caches=[0])]
    agent.granted = plan(small, agent.kernel.layout(), here, UNGUARDED, agent.granted).granted
    agent.kernel.capabilities = large
    for name in gone:
        agent.kernel.masks[name][1] = 0x7FF
    found = agent.passes(wanted)
    assert {number: {cache: mask.count for cache, mask in found[number].masks.items()} for number in found} == {
        1: {0: 4, 1: 4},
        2: {0: 4, 1: 4},
    }


def test_a_cache_that_was_offline_when_the_agent_started_is_judged_by_what_the_vm_has_elsewhere() -> None:
    agent = Agent(Kernel(machine(11, (0, 1))))
    agent.passes([request(1, 4, caches=(0, 1)), request(2, 4, caches=(0, 1))])
    wanted = [request(1, 8, caches=(0, 1)), request(2, 4, caches=(0, 1))]
    agent.passes(wanted)
    agent.granted = {A: {0: 4}, B: {0: 4}}
    agent.kernel.come_online(1)
    found = agent.passes(wanted)
    assert (found[1].masks[1].count, found[2].masks[1].count) == (4, 4)


def test_a_group_made_while_a_cache_was_offline_had_nothing_there_that_comes_before_what_is_known() -> None:
    agent = Agent(Kernel(machine(8, (0, 1))))
    first, second = request(1, 4, caches=(0, 1)), request(2, 5, caches=[1])
    agent.kernel.masks = {"": {0: 0xF0, 1: 0xFF}, A: {0: 0x0F, 1: 0xFF}}
    agent.granted = {A: {0: 4}, B: {0: 0, 1: 5}}
    found = agent.passes([first, second])
    assert found[2].state is KEPT and found[1].masks[1].count == 1


def test_a_vm_whose_own_mask_was_made_small_grows_back_before_others_grow() -> None:
    agent = Agent(Kernel(machine(11)))
    agent.passes([request(1, 4), request(2, 4)])
    wanted = [request(1, 7), request(2, 4)]
    agent.passes(wanted)
    agent.kernel.masks[B] = {0: 1 << 4}
    found = agent.passes(wanted)
    assert found[2].state is KEPT and found[1].masks[0].count == 4


def test_a_vm_whose_group_was_removed_comes_before_newcomers_and_growers() -> None:
    agent = Agent(Kernel(machine(11)))
    agent.passes([request(2, 4), request(3, 4)])
    del agent.kernel.masks[C]
    found = agent.passes([request(1, 2), request(2, 6), request(3, 4)])
    assert [found[number].state for number in (1, 2, 3)] == [PENDING, DEGRADED, KEPT]


def test_a_class_that_lost_its_ways_gets_them_back_before_a_vm_grows() -> None:
    agent = Agent(Kernel(machine(11)))
    agent.passes([request(1, 4), request(2, 6, SHARED)])
    wanted = [request(1, 8), request(2, 6, SHARED)]
    agent.kernel.masks[class_group(CacheRequest(6))] = {0: 0x400}
    found = agent.passes(wanted)
    assert found[2].state is KEPT and found[1].masks[0].count == 4


@RESTARTS
def test_a_class_that_came_later_takes_no_more_than_before_when_the_cache_comes_online(restarted: bool) -> None:
    wanted = [request(1, 7, caches=[1]), request(2, 6, SHARED, caches=[1])]
    agent = Agent(Kernel(machine(11, (0, 1))))
    before = agent.passes(wanted)
    agent.kernel.come_online(1)
    if restarted:
        agent.restart()
    found = agent.passes(wanted)
    assert {n: (v.state, v.masks[1].count) for n, v in found.items()} == {
        n: (v.state, v.masks[1].count) for n, v in before.items()
    }


def test_what_cant_be_given_back_now_stays_owed() -> None:
    agent = Agent(Kernel(machine(11)))
    agent.passes([request(1, 4), request(2, 4)])
    agent.kernel.masks["pqos"] = {0: 0x7FF}
    del agent.kernel.masks[A]
    wanted = [request(1, 4), request(2, 6)]
    assert agent.passes(wanted)[1].state is PENDING
    del agent.kernel.masks["pqos"]
    found = agent.passes(wanted)
    assert (found[1].state, found[2].state) == (KEPT, DEGRADED)


def test_who_gave_ways_up_is_owed_none() -> None:
    agent = Agent(Kernel(machine(11, (0, 1))))
    agent.passes([request(1, 6, caches=(0, 1)), request(2, 2)])
    agent.passes([request(1, 2, caches=[0]), request(2, 2)])
    assert agent.granted == {A: {0: 2, 1: 0}, B: {0: 2, 1: 0}}
    found = agent.passes([request(1, 6), request(2, 7)])
    assert (found[1].state, found[2].state) == (KEPT, DEGRADED)


def test_a_newcomer_is_not_taken_for_one_that_had_something_by_an_agent_that_knows() -> None:
    agent = Agent(Kernel(machine(11)))
    agent.passes([request(1, 8), request(2, 8)])
    agent.kernel.mkdir(B)
    found = agent.passes([request(1, 8), request(2, 8)])
    assert found[2].state is PENDING and B not in agent.kernel.masks


PINNED = request(1, 6, caches=[1], arrival=1)
UNPINNED = request(1, 6, caches=[0, 1], arrival=1)
LARGE = request(2, 4, caches=[1])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([LARGE], [PINNED, LARGE, request(3, 2, caches=[1])], id="it has nothing, and a VM comes"),
        pytest.param([LARGE, request(3, 2, caches=[1])], [PINNED, LARGE], id="it has nothing, and a VM goes"),
        pytest.param([LARGE], [UNPINNED, LARGE, request(3, 2, caches=[1])], id="it has a part, and a VM comes"),
        pytest.param([LARGE, request(3, 2, caches=[1])], [UNPINNED, LARGE], id="it has a part, and a VM goes"),
    ],
)
def test_a_mask_that_was_the_default_groups_before_an_agent_was_killed_is_no_grant(
    before: list[Request], after: list[Request]
) -> None:
    kernel = Kernel(machine(8, (0, 1)))
    Agent(kernel).passes([request(1, 6, caches=[0]), *before])
    undisturbed = Agent(kernel.copy()).passes(after)
    found = plan(kernel.capabilities, kernel.layout(), after, UNGUARDED)
    for count in range(1, len(found.prepare) + len(found.retire)):
        killed = kernel.copy()
        follow(killed, after, UNGUARDED, found, count)
        assert Agent(killed).passes(after) == undisturbed, f"killed after step {count}"


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("floor", [2, 3])
def test_a_vm_that_steps_aside_when_a_cache_came_online_is_seen_to_have_had_something(floor: int, sparse: bool) -> None:
    policy = replace(UNGUARDED, default_ways_min=floor)
    kernel = Kernel(machine(9, sparse=sparse))
    after = [request(1, 4), request(2, 1), request(3, 3)]
    Agent(kernel, policy).passes(after[1:])
    kernel.come_online(0)
    undisturbed = Agent(kernel.copy(), policy).passes(after)
    assert [undisturbed[number].state for number in (1, 2, 3)] == [PENDING, KEPT, KEPT]
    found = plan(kernel.capabilities, kernel.layout(), after, policy)
    for count in range(1, len(found.prepare)):
        killed = kernel.copy()
        follow(killed, after, policy, found, count)
        states = [verdict.state for verdict in Agent(killed, policy).passes(after).values()]
        assert states == [PENDING, KEPT, KEPT], f"killed after step {count}"


class TestEvidence:
    """What the layout alone tells."""

    @staticmethod
    def seen(found: Mapping[str, Mapping[int, int]], caches: Iterable[int] = (0,)) -> PlannerInput:
        kernel = Kernel(machine(11, caches))
        kernel.masks = {name: dict(masks) for name, masks in found.items()}
        return read_input(kernel.capabilities, kernel.layout(), Policy())

    @pytest.mark.parametrize(
        ("default", "mask", "asked", "found"),
        [
            pytest.param(0x01F, 0x00F, 4, EarlierGrant(4, guessed=True), id="the length that is asked for"),
            pytest.param(
                0x00F, 0x00F, 4, EarlierGrant(4, guessed=True), id="that length, and the default group's mask"
            ),
            pytest.param(0x780, 0x780, 3, NONE, id="the default group's mask, where it can't run"),
            pytest.param(0x7FF, 0x7FF, 4, EarlierGrant(4, guessed=True), id="every way, as after a cache came online"),
            pytest.param(
                0x7FF, 0x00F, 6, EarlierGrant(4, guessed=True), id="a mask of its own, shorter than asked for"
            ),
            pytest.param(0x7FF, 0x7FF, 11, EarlierGrant(11, guessed=True), id="every way, and as many are asked for"),
            pytest.param(0x7FF, 0, 6, NONE, id="no mask"),
            pytest.param(0x00F, 0x3FF, 6, EarlierGrant(6, guessed=True), id="one that leaves one way"),
            pytest.param(0x400, 0x7FE, 11, EarlierGrant(10, guessed=True), id="one that leaves another way"),
        ],
    )
    def test_of_a_vms_mask_that_is_not_its_own(self, default: int, mask: int, asked: int, found: EarlierGrant) -> None:
        inputs = self.seen({"": {0: default}, A: {0: mask}})
        assert earlier_grants.of_vm(inputs, A, 0, asked, {}) == found

    @pytest.mark.parametrize(
        ("default", "mask", "asked"), [(0x00F, 0x07F, 9), (0x00F, 0x07F, 7), (0x07F, 0x07F, 7), (0x078, 0x07F, 5)]
    )
    def test_a_mask_beside_which_the_default_group_could_have_had_none_is_no_grant(
        self, default: int, mask: int, asked: int
    ) -> None:
        inputs = self.seen({"": {0: default}, A: {0: mask}, B: {0: 0x780}})
        assert earlier_grants.of_vm(inputs, A, 0, asked, {}) == NONE

    def test_what_it_has_on_another_cache_tells_what_it_had_here(self) -> None:
        inputs = self.seen({"": {0: 0x7F8, 1: 0x7FF}, A: {0: 0x7, 1: 0x7FF}}, (0, 1))
        assert earlier_grants.of_vm(inputs, A, 1, 5, {0: 0x7}) == EarlierGrant(3)

    def test_a_vm_without_a_group_had_nothing_as_far_as_one_can_see(self) -> None:
        assert earlier_grants.of_vm(self.seen({"": {0: 0x7FF}}), A, 0, 2, {}) == NONE

    @pytest.mark.parametrize(("mask", "guessed"), [(0x1F, False), (0x7FF, True), (0x3FF, True)])
    def test_of_a_class(self, mask: int, guessed: bool) -> None:
        name = class_group(CacheRequest(6))
        found = earlier_grants.of_class(self.seen({"": {0: 0x7FF}, name: {0: mask}}), name, 0, 6)
        assert found == EarlierGrant(min(6, mask.bit_count()), guessed)

    def test_only_what_is_lacking_is_owed(self) -> None:
        inputs = self.seen({"": {0: 0x700}, A: {0: 0xF}, B: {0: 0xF0}})
        found = read(replace(inputs, requests=[request(1, 4), request(2, 6)]))
        assert len(found) == 2 and not any(claim.owed for claim in found)

    def test_of_those_whose_grants_nobody_knows_each_gets_something(self) -> None:
        kernel = host(request(1, 2), request(2, 5), policy=UNGUARDED)
        kernel.come_online(0)
        found = carry_out(kernel, [request(1, 9), request(2, 5)], UNGUARDED)
        assert found[1].masks[0].count == 4 and found[2].masks == ways({0: masks(kernel)[2]})
        assert found[2].state is KEPT
