# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.host import reset
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource
from vmqos.resctrl.groups import ControlGroup

VM = "vmqos.4f2c1a9e-0f0b-4a55-9c1e-2b6d7a90c3aa"
ALL = 0x7FF


def l3(sparse: bool = False) -> CacheResource:
    return CacheResource("L3", 16, CapacityBitmask(ALL), 1, CapacityBitmask(), sparse, (0,))


def groups(masks: Mapping[str, int]) -> list[ControlGroup]:
    return [ControlGroup(name, "shareable", {"L3": {0: f"{bits:x}"}}) for name, bits in masks.items()]


def grown(masks: Mapping[str, int], reserved: int = 0, sparse: bool = False, keep_ours: bool = False) -> int:
    found = reset.grow_default(groups(masks), l3(sparse), CapacityBitmask(reserved), keep_ours)
    return found[0].bits if found else masks[""]


@pytest.mark.parametrize(
    ("masks", "reserved", "sparse", "expected"),
    [
        ({"": 0x7FC, VM: 0x3}, 0, False, 0x7FF),
        ({"": 0x7C0, VM: 0x3, "vmqos.shared-ways2": 0xC0}, 0, False, 0x7FF),
        ({"": 0x7F0, VM: 0xC, "libvirt": 0x3}, 0, False, 0x7FC),
        ({"": 0x7E0, VM: 0x3, "libvirt": 0x1C}, 0, False, 0x7E0),
        ({"": 0x7E0, VM: 0x3, "libvirt": 0x1C}, 0, True, 0x7E3),
        ({"": 0x7F8, VM: 0x7, "pqos": 0x700}, 0, False, 0x7FF),
        ({"": 0x7FC}, 0x3, False, 0x7FC),
        ({"": 0x7FF}, 0, False, 0x7FF),
        ({"": 0x7F0}, 0, False, 0x7FF),
    ],
)
def test_the_default_group_gets_back_what_nobody_else_holds(
    masks: dict[str, int], reserved: int, sparse: bool, expected: int
) -> None:
    assert f"{grown(masks, reserved, sparse):x}" == f"{expected:x}"


def test_the_default_group_does_not_ask_for_ways_that_are_left_locked() -> None:
    locked = {0: CapacityBitmask(0x3)}
    found = reset.grow_default(groups({"": 0x7F0, VM: 0xC}), l3(), CapacityBitmask(), locked=locked)
    assert found == {0: CapacityBitmask(0x7FC)}


MASKS = st.integers(1, ALL)


@given(
    MASKS, st.dictionaries(st.sampled_from([VM, "vmqos.shared-ways2", "libvirt", "pqos"]), MASKS), MASKS, st.booleans()
)
def test_the_default_group_loses_no_way_and_takes_none_from_others(
    default: int, others: dict[str, int], reserved: int, sparse: bool
) -> None:
    now = CapacityBitmask(default).runs()[0].bits
    mask = grown({"": now} | others, reserved, sparse)
    assert mask & now == now
    for name, bits in others.items():
        if not name.startswith("vmqos."):
            assert mask & bits & ~now == 0
    assert mask & reserved & ~now == 0
    assert sparse or CapacityBitmask(mask).is_contiguous


def test_our_own_groups_keep_their_ways_where_only_idle_ones_are_meant() -> None:
    assert grown({"": 0x7F0, VM: 0x3}, keep_ours=True) == 0x7FC


def test_a_reset_that_has_nothing_to_do_is_empty() -> None:
    assert reset.Reset({}, (), {}).is_empty
    assert reset.Reset({}, (), {}).describe() == []


def test_the_steps_are_told_in_their_order() -> None:
    told = reset.Reset({VM: 12}, ("vmqos.x",), {"L3": {0: CapacityBitmask(ALL)}}).describe()
    assert told == [
        f"remove the control group {VM}; its tasks (12) return to the default group",
        "remove the monitoring group mon_groups/vmqos.x",
        "write L3:0=7ff to the default group's schemata",
    ]
