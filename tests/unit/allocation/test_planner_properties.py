# SPDX-License-Identifier: Apache-2.0
"""The rules of allocation over random machines, foreign groups, arrivals, departures, resizes and crashes."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.allocation import every_place
from tests.unit.allocation.hosts import EVERYTHING, Host, happens, hosts
from tests.unit.allocation.kernel import Kernel, Refused
from tests.unit.allocation.run_plan import follow, settle
from vmqos.allocation import (
    Allocation,
    CreateGroup,
    Layout,
    Plan,
    PromiseState,
    Request,
    Step,
    WriteMasks,
    plan,
    reasons,
)
from vmqos.allocation.cache_ways import runs
from vmqos.extra_specs import CachePolicy
from vmqos.group_names import Owner, owner_of, vm_group


def verdicts(host: Host, kernel: Kernel) -> dict[str, Allocation]:
    """What every VM has when nothing is left to do."""
    return dict(plan(kernel.capabilities, kernel.layout(), host.requests, host.policy).allocations)


def promises(host: Host, kernel: Kernel) -> dict[str, tuple[PromiseState, str, dict[int, int]]]:
    """What every VM has, wherever it lies."""
    return {
        uuid: (verdict.state, verdict.group, {cache: mask.count for cache, mask in verdict.masks.items()})
        for uuid, verdict in verdicts(host, kernel).items()
    }


def ways_of(kernel: Kernel, request: Request) -> dict[int, int]:
    """How many ways a VM is to get where it asks for any that this machine has, by cache."""
    wants, found = request.wants, {}
    for cache in request.caches:
        fewest = max(1, kernel.resources[cache].min_cbm_bits)
        if cache < 0:
            asked = wants.l2_ways or 0
        elif wants.code_ways is not None and wants.data_ways is not None and 3 in kernel.capabilities.split_levels:
            asked = max(wants.code_ways, fewest) + max(wants.data_ways, fewest)
        else:
            asked = wants.ways or 0
        if asked:
            found[cache] = max(asked, fewest)
    return found


def takes_detours(steps: Sequence[Step]) -> bool:
    """Whether any mask is written twice on the way."""
    written = [(step.group, cache) for step in steps if isinstance(step, WriteMasks) for cache in step.masks]
    return len(written) != len(set(written))


@given(hosts())
def test_every_state_on_the_way_keeps_the_rules_and_an_unchanged_world_gives_an_empty_plan(host: Host) -> None:
    plans = settle(host.kernel, host.requests, host.policy)
    assert plans[-1].prepare == plans[-1].retire == ()


@given(hosts(), st.integers())
def test_the_order_of_the_input_does_not_matter(host: Host, seed: int) -> None:
    layout, requests = host.kernel.layout(), host.requests
    first = plan(host.kernel.capabilities, layout, requests, host.policy)
    groups = list(layout.groups)
    shuffle = random.Random(seed).shuffle
    shuffle(groups)
    shuffle(requests)
    again = plan(host.kernel.capabilities, Layout(tuple(groups)), requests, host.policy)
    assert again == first


def own_ways(host: Host, kernel: Kernel) -> dict[tuple[str, int], int]:
    """How many ways each VM has alone, of those that it asks for, by its UUID and by cache."""
    found = {}
    for request in host.requests:
        group = vm_group(request.uuid)
        if request.wants.policy is not CachePolicy.EXCLUSIVE or group not in kernel.masks:
            continue
        for cache, asked in ways_of(kernel, request).items():
            mask = kernel.masks[group][cache]
            if not mask & kernel.others(group, cache):
                found[request.uuid, cache] = min(asked, mask.bit_count())
    return found


def may_be_a_grant(host: Host, kernel: Kernel) -> bool:
    """Whether a VM's group has a mask in common with the default group of which one can't see what it is.

    It may be the default group's mask, of now or of before; or it was granted, and another program wrote the default
    group's mask since. Where the default group could have had no other place, and where a cache came online, one sees.
    """
    for request in host.requests:
        group = vm_group(request.uuid)
        for cache in ways_of(kernel, request) if group in kernel.masks else ():
            mask, every = kernel.masks[group][cache], kernel.resources[cache].cbm_mask.bits
            others = [name for name in kernel.masks if owner_of(name) is Owner.VM and name != group]
            alone = [name for name in others if not kernel.masks[name][cache] & kernel.masks[""][cache]]
            left = every & ~mask & ~kernel.others(group, cache, alone)
            lengths = [left.bit_count()] if kernel.resources[cache].sparse_masks else [size for _, size in runs(left)]
            has_place = max(lengths, default=0) >= max(1, kernel.resources[cache].min_cbm_bits)
            if mask & kernel.masks[""][cache] and mask != every and has_place:
                return True
    return False


@given(hosts(), st.data())
def test_a_plan_made_anew_after_a_crash_comes_to_the_same_end(host: Host, data: st.DataObject) -> None:
    undisturbed, crashed = host.kernel.copy(), host.kernel.copy()
    settle(undisturbed, host.requests, host.policy)
    found = plan(crashed.capabilities, crashed.layout(), host.requests, host.policy)
    steps = (*found.prepare, *found.retire)
    count = data.draw(st.integers(0, len(steps)))
    follow(crashed, host.requests, host.policy, found, count)
    had, guesses = own_ways(host, crashed), may_be_a_grant(host, host.kernel) or may_be_a_grant(host, crashed)
    settle(crashed, host.requests, host.policy)
    # What was in force at the crash is kept in any case (rule 4).
    ends = own_ways(host, crashed)
    assert all(ends.get(who, 0) >= ways for who, ways in had.items())
    if guesses:
        # Who else gets ways that are left depends on what the agent takes for a grant, which it can't see.
        return
    assert promises(host, crashed) == promises(host, undisturbed)
    # What the kernel gave a new group, and a place that was meant for a while, may turn out to be good places to stay.
    if not (count and isinstance(steps[count - 1], CreateGroup)) and not takes_detours(steps):
        assert (crashed.masks, crashed.exclusive) == (undisturbed.masks, undisturbed.exclusive)


@given(hosts(most_ways=8, most_caches=2))
def test_who_waits_for_ways_could_not_have_them_anywhere(host: Host) -> None:
    kernel = host.kernel
    settle(kernel, host.requests, host.policy)
    found = verdicts(host, kernel)
    for request in host.requests:
        verdict, ways = found[request.uuid], ways_of(kernel, request)
        if not ways:
            assert verdict.state is not PromiseState.PENDING or any(
                words in verdict.reason.text for words in ("CLOSID", "hw:mem", "mounted with cdp", "hw:l2_cache_ways")
            )
            continue
        waits = verdict.state is PromiseState.PENDING or re.search("(^|; )has ", verdict.reason.text)
        if request.wants.policy is CachePolicy.EXCLUSIVE and waits and "CLOSID" not in verdict.reason.text:
            if reasons.NO_SAFE_ORDER.text in verdict.reason.text:
                # Masks that can't pass each other can be pushed together, unless somebody is in between.
                assert any(
                    len(list(runs(every_place.cache_ways_of(kernel, host.policy, cache).pool))) > 1 for cache in ways
                )
                continue
            assert not every_place.can_be_placed(kernel, host.policy, vm_group(request.uuid), ways)


@given(hosts(), st.data())
def test_a_newcomer_takes_nothing_from_anybody(host: Host, data: st.DataObject) -> None:
    settle(host.kernel, host.requests, host.policy)
    before = verdicts(host, host.kernel)
    for _ in range(data.draw(st.integers(1, 4))):
        data.draw(happens(host, ["start"]))
    settle(host.kernel, host.requests, host.policy)
    after = verdicts(host, host.kernel)
    for uuid, old in before.items():
        if old.group and uuid not in {request.uuid for request in host.requests if old.reason}:
            new = after[uuid]
            assert (new.state, new.group) == (old.state, old.group)
        if owner_of(old.group) is Owner.VM:
            assert all(after[uuid].masks[cache].count >= mask.count for cache, mask in old.masks.items())


@given(hosts())
def test_the_kernel_guards_whom_it_can(host: Host) -> None:
    kernel = host.kernel
    settle(kernel, host.requests, host.policy)
    found = verdicts(host, kernel)
    for request in host.requests:
        name = found[request.uuid].group
        if name != vm_group(request.uuid):
            continue
        trial = kernel.copy()
        try:
            if name not in kernel.exclusive:
                trial.set_mode(name, True)
        except Refused:
            continue
        assert (name in kernel.exclusive) == host.policy.kernel_exclusive


@given(hosts(), st.data())
def test_when_all_vms_are_gone_the_host_has_its_ways_back(host: Host, data: st.DataObject) -> None:
    kernel = host.kernel
    settle(kernel, host.requests, host.policy)
    had_groups = any(name.startswith("vmqos.") for name in kernel.masks)
    host.vms.clear()
    data.draw(happens(host, [event for event in EVERYTHING if event != "start"]))
    settle(kernel, [], host.policy)
    assert all(owner_of(name) in (Owner.DEFAULT, Owner.FOREIGN) for name in kernel.masks)
    if had_groups:
        for cache in kernel.l3.cache_ids:
            cache_ways = every_place.cache_ways_of(kernel, host.policy, cache)
            assert kernel.masks[""][cache].bit_count() >= cache_ways.largest(cache_ways.pool)


@given(hosts())
def test_a_further_member_of_a_class_changes_nothing(host: Host) -> None:
    """So an agent need not plan for it (vmqos.agent.reconcile)."""
    settle(host.kernel, host.requests, host.policy)
    capabilities, layout = host.kernel.capabilities, host.kernel.layout()
    granted = plan(capabilities, layout, host.requests, host.policy).granted
    found = plan(capabilities, layout, host.requests, host.policy, granted)
    for member in host.requests:
        given_to_it = found.allocations[member.uuid]
        if given_to_it.state is PromiseState.KEPT and owner_of(given_to_it.group) is Owner.CLASS:
            further = replace(member, uuid="ffffffff-0000-4000-8000-000000000000", arrival=host.clock + 1)
            again = plan(capabilities, layout, [*host.requests, further], host.policy, granted)
            allocations = {**found.allocations, further.uuid: given_to_it}
            assert again == Plan(found.prepare, allocations, found.retire, found.granted)
