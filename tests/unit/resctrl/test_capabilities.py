# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.capabilities."""

import dataclasses

import pytest

from vmqos.resctrl import exceptions
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthResource, CacheResource, Capabilities

L3 = CacheResource("L3", 16, CapacityBitmask(0x7FF), 2, CapacityBitmask(0x600), False, (0, 1))
MB = BandwidthResource("MB", 8, 10, 10, True, (0, 1))


@pytest.mark.parametrize("bits", [0x3, 0x7FF, 0x600, 0x0F0])
def test_a_mask_within_the_rules_passes(bits):
    L3.check(CapacityBitmask(bits))


@pytest.mark.parametrize(
    ("bits", "rule"),
    [(0x800, "7ff"), (0xFFF, "7ff"), (0x1, "at least 2 ways$"), (0, "at least 2 ways$"), (0x5, "neighbours")],
)
def test_a_mask_that_the_kernel_would_refuse_is_refused_with_the_rule(bits, rule):
    with pytest.raises(exceptions.IllegalBitmask, match=rule) as caught:
        L3.check(CapacityBitmask(bits))
    assert f"mask {bits:x}" in str(caught.value)


def test_one_way_is_no_plural():
    with pytest.raises(exceptions.IllegalBitmask, match=r"at least 1 way$"):
        dataclasses.replace(L3, min_cbm_bits=1).check(CapacityBitmask(0))


def test_gaps_and_empty_masks_pass_where_the_hardware_takes_them():
    amd = dataclasses.replace(L3, min_cbm_bits=0, sparse_masks=True)
    amd.check(CapacityBitmask(0))
    amd.check(CapacityBitmask(0x505))


def test_the_resource_with_the_fewest_closids_sets_the_number_of_groups():
    assert Capabilities(caches={"L3": L3}, bandwidths={"MB": MB}).num_closids == 8
    assert Capabilities(caches={"L3": L3}).num_closids == 16
    assert Capabilities().num_closids == 1


def test_an_l3_that_is_split_into_code_and_data_is_one_resource_all_the_same():
    split = {name: dataclasses.replace(L3, name=name) for name in ("L3CODE", "L3DATA")}
    assert Capabilities(caches=split).l3 == L3
    assert Capabilities(caches=split).split_levels == {3} and not Capabilities(caches={"L3": L3}).split_levels
    assert {resource.level for resource in split.values()} == {3}
    assert Capabilities(caches={"L3": L3}).l3 is L3


def test_the_ways_of_a_cache_are_those_of_its_full_mask():
    assert L3.way_count == 11
