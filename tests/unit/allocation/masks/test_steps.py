# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import machine, uuid
from vmqos.allocation import CreateGroup, Policy, RemoveGroup, SetExclusive, Step, WriteMasks
from vmqos.allocation.masks.steps import NoSafeOrder, prepare
from vmqos.allocation.masks.target import Target
from vmqos.allocation.planner_input import PlannerInput, read_input
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import class_group, vm_group

A, B, C = (vm_group(uuid(number)) for number in (0xA, 0xB, 0xC))
CLASS = class_group(CacheRequest(2))
OWN = {A, B, C}


def inputs(now: Mapping[str, int | tuple[int, ...]], ways: int = 0, fewest: int = 1, floor: int = 2) -> PlannerInput:
    """A machine with as many caches as there are masks, and as many ways as the masks need unless told."""
    masks = {name: (mask,) if isinstance(mask, int) else mask for name, mask in now.items()}
    ways = ways or max(mask.bit_length() for found in masks.values() for mask in found)
    kernel = Kernel(machine(ways, range(len(masks[""])), fewest=fewest))
    kernel.masks = {name: dict(enumerate(found)) for name, found in masks.items()}
    return read_input(kernel.capabilities, kernel.layout(), Policy(default_ways_min=floor))


def target(
    inputs: PlannerInput, goal: Mapping[str, int | tuple[int, ...]], guarded: frozenset[str] = frozenset()
) -> Target:
    masks = {name: dict(enumerate((mask,) if isinstance(mask, int) else mask)) for name, mask in goal.items()}
    own = {
        (name, cache)
        for name, found in masks.items()
        for cache, mask in found.items()
        if name in OWN and mask != masks[""][cache]
    }
    created = tuple(name for name in goal if name not in inputs.groups)
    retired = tuple(name for name in goal if name != "" and name not in OWN and name != CLASS)
    return Target(masks, frozenset(own), guarded, created, retired)


def shown(steps: tuple[Step, ...]) -> list[str]:
    """The steps, one cache after the other, as text."""
    letters = {"": "default", A: "A", B: "B", C: "C", CLASS: "class"}
    found = []
    for step in steps:
        match step:
            case WriteMasks(name, masks):
                found.append(f"{letters[name]}={';'.join(f'{mask.bits:08b}' for mask in masks.values())}")
            case CreateGroup(name):
                found.append(f"+{letters[name]}")
            case SetExclusive(name, exclusive):
                found.append(f"{letters[name]} {'guarded' if exclusive else 'free'}")
            case RemoveGroup(name):
                found.append(f"-{letters[name]}")
    return found


@pytest.mark.parametrize(
    ("now", "goal", "steps"),
    [
        pytest.param(
            {"": 0b11111111},
            {"": 0b11111100, A: 0b00000011},
            ["default=11111100", "+A", "A=00000011"],
            id="the default group shrinks before a VM gets its ways",
        ),
        pytest.param(
            {"": 0b11110000, A: 0b00001111},
            {"": 0b11111100, A: 0b00000011},
            ["A=00000011", "default=11111100"],
            id="a VM shrinks before the default group grows",
        ),
        pytest.param(
            {"": 0b11110000, A: 0b00000011, B: 0b00001100},
            {"": 0b11110000, A: 0b00000001, B: 0b00001110},
            ["A=00000001", "B=00001110"],
            id="and before another VM grows",
        ),
        pytest.param(
            {"": 0b11110000, A: 0b00000011},
            {"": 0b11000000, A: 0b00001111, B: 0b00110000},
            ["default=11000000", "A=00001111", "+B", "B=00110000"],
            id="groups that exist come before new ones",
        ),
        pytest.param(
            {"": 0b11111111},
            {"": 0b11111100, A: 0b00000011, CLASS: 0b00001100},
            ["default=11111100", "+A", "A=00000011", "+class", "class=00001100"],
            id="classes are created last",
        ),
        pytest.param(
            {"": (0b11111111, 0b11111111)},
            {"": (0b11111100, 0b11111100), A: (0b00000011, 0b11111100), B: (0b11111100, 0b00000011)},
            [
                "default=11111100;11111100",
                "+A",
                "A=00000011;11111100",
                "+B",
                "B=11111100;00000011",
            ],
            id="the first write to a new group names every cache",
        ),
        pytest.param(
            {"": 0b11000000, A: 0b00110000, B: 0b00001100},
            {"": 0b11000000, A: 0b00001100, B: 0b00110000},
            ["B=00000011", "A=00001100", "B=00110000"],
            id="one of two that swap places waits in a free place",
        ),
        pytest.param(
            {"": 0b11110000, A: 0b00001100, B: 0b00000011},
            {"": 0b11110000, A: 0b00000011, B: 0b00001100},
            ["default=00110000", "B=11000000", "A=00000011", "B=00001100", "default=11110000"],
            id="or in one that the default group can spare",
        ),
    ],
)
def test_the_order_of_steps(now: Mapping[str, int], goal: Mapping[str, int], steps: list[str]) -> None:
    start = inputs(now)
    assert shown(prepare(start, target(start, goal))) == steps


def test_what_can_not_be_ordered_is_refused_and_the_cache_named() -> None:
    start = inputs({"": (0b0011, 0b0011), A: (0b1100, 0b1100)}, fewest=2)
    with pytest.raises(NoSafeOrder, match="L3 cache 1") as refusal:
        prepare(start, target(start, {"": (0b0011, 0b1100), A: (0b1100, 0b0011)}))
    assert refusal.value.cache == 1


def test_no_vm_gives_up_ways_for_a_while_so_that_others_can_pass() -> None:
    start = inputs({"": 0b11000000000, A: 0b111, B: 0b1100000, C: 0b110000000, "x": 0b10000})
    with pytest.raises(NoSafeOrder):
        prepare(start, target(start, {"": 0b11000000000, A: 0b11100000, B: 0b11, C: 0b1100, "x": 0b10000}))


def test_the_default_group_has_its_floor_on_every_detour() -> None:
    start = inputs({"": 0b1110, A: 0b0001}, ways=4, floor=3)
    with pytest.raises(NoSafeOrder):
        prepare(start, target(start, {"": 0b0111, A: 0b1000}))
    start = inputs({"": 0b1110, A: 0b0001}, ways=4, floor=1)
    assert shown(prepare(start, target(start, {"": 0b0111, A: 0b1000}))) == [
        "default=00000110",
        "A=00001000",
        "default=00000111",
    ]


def test_the_default_group_shrinks_before_and_grows_after_a_group_that_only_has_what_it_has() -> None:
    now, goal = (0b11110000, 0b11000000), (0b11000000, 0b11110000)
    found = inputs({"": now, A: now}, 8)
    steps = shown(prepare(found, target(found, {"": goal, A: goal})))
    assert steps == ["default=11000000", "A=11000000;11110000", "default=11110000"]


def test_guards_come_off_first_and_go_on_last() -> None:
    start = inputs({"": 0b11110000, A: 0b00000011})
    goal = target(start, {"": 0b11110000, A: 0b00000111}, guarded=frozenset({A}))
    assert shown(prepare(start, goal)) == ["A=00000111", "A guarded"]
    kernel = Kernel(machine(8))
    kernel.masks = {"": {0: 0b11110000}, A: {0: 0b00000011}}
    kernel.exclusive = {A}
    guarded = read_input(kernel.capabilities, kernel.layout(), Policy())
    goal = target(guarded, {"": 0b11111111, A: 0b11111111})
    assert shown(prepare(guarded, goal)) == ["A free", "A=11111111", "default=11111111"]


def test_guards_that_keep_every_write_out_of_a_cache_come_off_and_on_again() -> None:
    kernel = Kernel(machine(8, (0, 1)))
    kernel.masks = {"": {0: 0xF0, 1: 0xF0}, A: {0: 0x03, 1: 0x03}, B: {0: 0x0C, 1: 0x0C}}
    kernel.exclusive = {A, B}
    goal = {"": (0xF0, 0xF0), A: (0x03, 0x03), B: (0x0C, 0x0C)}
    kernel.come_online(1)
    found = read_input(kernel.capabilities, kernel.layout(), Policy())
    steps = prepare(found, target(found, goal, guarded=frozenset({A, B})))
    for step in steps:
        kernel.apply(step)
    assert shown(steps)[:2] == ["A free", "B free"] and kernel.exclusive == {A, B}
    assert {name: tuple(masks.values()) for name, masks in kernel.masks.items()} == goal


def test_many_vms_that_all_have_every_way_get_their_own_back() -> None:
    every = {name: 0b111111111 for name in ("", A, B, C)}
    start = inputs(every, floor=3)
    goal = {"": 0b000000111, A: 0b010000000, B: 0b100000000, C: 0b001110000}
    kernel = Kernel(machine(9))
    kernel.masks = {name: {0: mask} for name, mask in every.items()}
    for step in prepare(start, target(start, goal)):
        kernel.apply(step)
    assert {name: mask[0] for name, mask in kernel.masks.items()} == goal


def test_nothing_to_do_is_no_step() -> None:
    start = inputs({"": 0b11110000, A: 0b00000011})
    assert prepare(start, target(start, {"": 0b11110000, A: 0b00000011})) == ()
