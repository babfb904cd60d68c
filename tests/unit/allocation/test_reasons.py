# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import machine, uuid
from vmqos.allocation import Policy, WhenFull, reasons
from vmqos.allocation.cache_ways import CacheWays, WantedMask
from vmqos.allocation.planner_input import PlannerInput, read_input
from vmqos.allocation.rights.cache_budget import budget_for
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import class_group, vm_group
from vmqos.reason import Code, Reason


def inputs(policy: Policy | None = None, sparse: bool = False, **masks: int) -> PlannerInput:
    kernel = Kernel(machine(11, sparse=sparse, closids=4))
    kernel.masks |= {name.replace("_", "").replace("default", ""): {0: mask} for name, mask in masks.items()}
    return read_input(kernel.capabilities, kernel.layout(), policy or Policy())


def test_a_lack_of_ways_in_the_pool_is_told_as_such() -> None:
    found = inputs(default=0x400, pqos=0x3FC)
    budget = budget_for(found.cache_ways[0], [WantedMask("a", 2, 0x3)])
    assert reasons.shortage(found, {0: budget}, {0: 1}, "b").text == (
        "L3 cache 0 has no ways to give in one piece and 1 is asked for: of its 11 ways 2 are other VMs', "
        "the default group can have 1 and nothing is given out before it has 2 ([allocation] default_ways_min = 2), "
        "8 are taken by pqos"
    )


@pytest.mark.parametrize(("floor", "told"), [(7, reasons.NO_SAFE_ORDER.text), (8, "default_ways_min = 8")])
def test_masks_that_cant_be_moved_are_the_reason_only_if_there_were_room_after_a_move(floor: int, told: str) -> None:
    found = inputs(Policy(default_ways_min=floor), default=0x1F)
    budget = budget_for(found.cache_ways[0], [WantedMask("a", 3, 0xE0)], frozen=True)
    assert told in reasons.shortage(found, {0: budget}, {0: 1}, "b").text


def test_where_masks_may_have_gaps_there_is_no_talk_of_pieces() -> None:
    found = inputs(sparse=True)
    budget = budget_for(found.cache_ways[0], [])
    text = reasons.shortage(found, {0: budget}, {0: 10}, "b").text
    assert text.startswith("L3 cache 0 has 9 ways to give and 10 are asked for: of its 11 ways 2 stay with the default")


def test_the_cache_with_least_is_named() -> None:
    grown = reasons.grown({0: 3, 1: 2, 2: 2}, {0: 4, 1: 4, 2: 4}, Reason(Code.NO_WAYS, "no room"))
    assert grown == Reason(Code.NO_WAYS, "has 2 of 4 ways on L3 cache 1: no room")
    assert reasons.capped({0: 3, 1: 5, ~4: 3}, {0: 6, 1: 6, ~4: 3}).text.startswith("has 3 of 6 ways on L3 cache 0: ")


@pytest.mark.parametrize(
    ("others", "begin"),
    [
        ([""], "the default group has ways of this VM's mask 3 on L3 cache 0, too"),
        (["a"], "the control group a has ways"),
        (["b", "a"], "the control groups a, b have ways"),
    ],
)
def test_who_is_in_the_way_is_named(others: list[str], begin: str) -> None:
    assert reasons.overlapped(0, 0x3, others).text.startswith(begin)


def test_ways_that_should_not_be_the_vms_are_named() -> None:
    cache_ways = CacheWays(0x7FF, 0x7FF, 0, 0x1FF, 0x600, 1, False)
    text = reasons.on_io_ways(cache_ways, 1, 0x300).text
    assert text.startswith("I/O fills ways 200 of this VM's mask 300 on L3 cache 1, too")
    assert "reserved_ways" in reasons.on_reserved_ways(1, 0x3).text


def test_a_lack_of_closids_tells_who_has_them_and_what_would_help() -> None:
    full = {vm_group(uuid(1)): {0: 0x1}, class_group(CacheRequest(2)): {0: 0x6}}
    kernel = Kernel(machine(11, closids=4))
    kernel.masks |= {**full, "pqos": {0: 0x8}}
    pend = read_input(kernel.capabilities, kernel.layout(), Policy())
    share = read_input(kernel.capabilities, kernel.layout(), Policy(when_full=WhenFull.SHARE))
    begin = (
        "no class of service (CLOSID) is left: of 4 one is the default group's, 2 vmqos uses, and 1 others do (pqos)"
    )
    assert reasons.no_closid(pend, None).text == (
        f"{begin}; with [allocation] when_full = share it would share the class next to what it asks for"
    )
    name = class_group(CacheRequest(2))
    assert reasons.no_closid(share, name).text == f"{begin}: it shares {name} instead"
    text = f"{begin}, and there is no class to share: it runs in the default group"
    assert reasons.no_closid(share, None).text == text
