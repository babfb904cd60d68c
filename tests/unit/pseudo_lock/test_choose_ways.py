# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.pseudo_lock.choose_ways import Choice, Holders, choose, most
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource

ALL = 0xFF
VM, ELSEWHERE, CLASS = (
    "vmqos.4f2c1a9e-0f0b-4a55-9c1e-2b6d7a90c3aa",
    "vmqos.0a2c1a9e-0f0b-4a55-9c1e-2b6d7a90c3aa",
    "vmqos.shared-ways2",
)


def cache(shareable: int = 0, sparse: bool = False, fewest: int = 1) -> CacheResource:
    return CacheResource("L2", 4, CapacityBitmask(ALL), fewest, CapacityBitmask(shareable), sparse, (0,))


def holders(default: int, others: int = 0, **ours: int) -> Holders:
    names = {"vm": VM, "elsewhere": ELSEWHERE, "shared": CLASS}
    masks = {names[name]: CapacityBitmask(mask) for name, mask in ours.items()}
    return Holders(CapacityBitmask(default), masks, CapacityBitmask(others))


def described(choice: Choice | None) -> tuple[str, dict[str, str]] | None:
    return choice and (f"{choice.locked}", {name: f"{mask}" for name, mask in choice.masks.items()})


@pytest.mark.parametrize(
    ("held", "ways", "expected"),
    [
        pytest.param(
            holders(0xFF), 2, ("3", {"": "fc"}), id="an end of the cache, so that VMs to come have a long run"
        ),
        pytest.param(holders(0xF0), 2, ("3", {}), id="ways that nobody has at all"),
        pytest.param(holders(0xFC, vm=0x03), 1, ("80", {"": "7c"}), id="a VM's own ways are not touched"),
        pytest.param(holders(0x3F, others=0xC0), 2, ("3", {"": "3c"}), id="nor those of others"),
        pytest.param(
            holders(0xFF, elsewhere=0xFF),
            2,
            ("3", {ELSEWHERE: "fc", "": "fc"}),
            id="a VM that does not run here follows",
        ),
        pytest.param(
            holders(0xFF, shared=0x03),
            2,
            ("3", {CLASS: "c", "": "fc"}),
            id="a class moves within the default group's ways",
        ),
        pytest.param(holders(0xFF, shared=0x30), 2, ("3", {"": "fc"}), id="a class out of the way stays"),
        pytest.param(holders(0xFF), 6, ("3f", {"": "c0"}), id="up to the floor"),
        pytest.param(holders(0xFF), 7, None, id="and not below it"),
        pytest.param(holders(0xFF, others=0x81), 5, None, id="ways in the company of others are no floor"),
        pytest.param(holders(0x66, others=0x99), 3, None, id="no gap in the region"),
        pytest.param(holders(0x1F, others=0xE0, shared=0x0F), 2, None, id="no class loses a way"),
    ],
)
def test_what_is_locked_and_who_makes_way(
    held: Holders, ways: int, expected: tuple[str, dict[str, str]] | None
) -> None:
    assert described(choose(cache(), held, ways, floor=2)) == expected


def test_ways_that_devices_fill_are_never_locked() -> None:
    assert described(choose(cache(shareable=0x0F), holders(0xFF), 4, floor=2)) == ("f0", {"": "f"})
    assert choose(cache(shareable=0x0F), holders(0xFF), 5, floor=2) is None


def test_a_region_has_no_gap_where_masks_may_have_some() -> None:
    held = holders(0xA5, others=0x5A)
    assert choose(cache(sparse=True), held, 2, floor=2) is None
    assert described(choose(cache(sparse=True), held, 1, floor=2)) == ("1", {"": "a4"})


def test_a_region_has_the_fewest_ways_that_a_mask_may_have() -> None:
    assert described(choose(cache(fewest=2), holders(0xFF), 1, floor=1)) == ("3", {"": "fc"})


@pytest.mark.parametrize(
    ("held", "expected"), [(holders(0xFF), 6), (holders(0x03, others=0xFC), 0), (holders(0xE7), 6)]
)
def test_the_most_that_can_be_locked(held: Holders, expected: int) -> None:
    assert most(cache(), held, floor=2) == expected


MASKS = st.integers(1, ALL)


@given(
    default=st.builds(
        lambda start, length: CapacityBitmask.run(start, length).bits & ALL, st.integers(0, 7), st.integers(1, 8)
    ),
    ours=st.dictionaries(st.sampled_from(["vm", "elsewhere", "shared"]), MASKS),
    others=st.integers(0, ALL),
    shareable=st.sampled_from([0, 0xC0, 0x03]),
    ways=st.integers(1, 8),
    floor=st.integers(1, 4),
)
def test_whatever_there_is_nobody_else_loses_and_the_region_is_alone(
    default: int, ours: dict[str, int], others: int, shareable: int, ways: int, floor: int
) -> None:
    held = holders(default, others, **ours)
    machine = cache(shareable)
    choice = choose(machine, held, ways, floor)
    if choice is None:
        return
    locked = choice.locked
    assert locked.count == ways and locked.is_contiguous
    assert not locked.overlaps(held.others | machine.shareable_bits)
    after = choice.masks.get("", held.default)
    assert not after - held.default and not after.overlaps(locked)
    for name, before in held.ours.items():
        now = choice.masks.get(name, before)
        assert not now.overlaps(locked)
        if now != before:
            assert before.overlaps(held.default) and not now - after
            assert now.count == before.count or before == held.default
    for mask in choice.masks.values():
        machine.check(mask)
    if "" in choice.masks:
        assert (after - held.others).count >= floor
        assert list(choice.masks)[-1] == ""
