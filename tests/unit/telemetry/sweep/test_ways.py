# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.sweep.ways, on texts that real kernels wrote."""

import pytest

from vmqos.resctrl import exceptions
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthUnit
from vmqos.telemetry.sweep import ways
from vmqos.telemetry.sweep.ways import Granted, Held

AMD = ("    MB:0=2048;1=2048\n    L3:0=0003;1=ffff\n", "    MB:0=2048;1=2048\n    L3:0=4194304;1=33554432\n")
CDP = (
    "    MB:0=100;1=100\nL3DATA:0=01f;1=7ff\nL3CODE:0=018;1=7ff\n",
    "    MB:0=100;1=100\nL3DATA:0=7625995;1=16777211\nL3CODE:0=3050398;1=16777211\n",
)


def held(**masks: str) -> Held:
    return Held({int(cache[1:]): CapacityBitmask(int(mask, 16)) for cache, mask in masks.items()}, {})


def test_masks_and_sizes_are_taken_from_the_kernels_padded_text():
    found = ways.parse(*AMD)
    assert found.masks == {0: CapacityBitmask(0x3), 1: CapacityBitmask(0xFFFF)}
    assert found.sizes == {0: 4194304, 1: 33554432}


def test_with_code_and_data_apart_a_way_that_is_for_both_counts_once():
    found = ways.parse(*CDP)
    assert found.masks == {0: CapacityBitmask(0x1F), 1: CapacityBitmask(0x7FF)}
    assert found.sizes == {0: 7625995, 1: 16777211}
    assert found.parts == {0: (2, 5)} and found.throttles == {0: 100, 1: 100}


def test_without_sizes_the_masks_are_known_all_the_same():
    found = ways.parse(AMD[0], "")
    assert (found.masks.keys(), found.sizes) == ({0, 1}, {})


def test_a_machine_without_cache_allocation_holds_nothing():
    assert ways.parse("MB:0=100;1=50\n", "MB:0=100;1=50\n") == Held(throttles={0: 100, 1: 50})


def test_a_text_that_is_none_of_the_kernels_is_refused():
    with pytest.raises(exceptions.ResctrlError):
        ways.parse("L3:0=xyz\n", "")


def test_l2_ways_are_those_of_the_l2s_whatever_has_code_and_data_apart():
    found = ways.parse("    L3:0=3\nL2DATA:4=0f;5=ff\nL2CODE:4=18;5=ff\n", "")
    assert found.l2 == {4: CapacityBitmask(0x1F), 5: CapacityBitmask(0xFF)}
    assert found.masks == {0: CapacityBitmask(3)} and not found.parts


def test_a_vm_in_the_default_group_was_promised_nothing():
    assert ways.granted(None, held(_0="7ff"), held(_0="7ff")) == Granted()


def test_an_exclusive_vm_was_promised_what_it_does_not_share_with_the_default_group():
    vm = Held(held(_0="600", _1="7ff").masks, {0: 3145728, 1: 17301504})
    assert ways.granted("exclusive", vm, held(_0="1ff", _1="7ff")) == Granted({0: 2}, 3145728)


def test_a_class_was_promised_ways_of_the_shared_pool():
    vm = Held(held(_0="3", _1="3").masks, {0: 100, 1: 100})
    assert ways.granted("shared", vm, held(_0="7ff", _1="7ff")) == Granted({0: 2, 1: 2}, 200)


def test_the_size_of_ways_is_unknown_where_resctrl_does_not_say():
    assert ways.granted("shared", held(_0="3"), held(_0="7ff")) == Granted({0: 2})


def test_code_and_data_are_told_where_the_vm_has_ways():
    vm = Held(held(_0="600", _1="7ff").masks, parts={0: (1, 2), 1: (11, 11)})
    assert ways.granted("exclusive", vm, held(_0="1ff", _1="7ff")).parts == {0: (1, 2)}


@pytest.mark.parametrize("policy", ["exclusive", "shared"])
def test_l2s_on_which_nothing_was_promised_follow_the_default_group(policy):
    vm = Held(l2={4: CapacityBitmask(0xC0), 5: CapacityBitmask(0x3F)})
    default = Held(l2={4: CapacityBitmask(0x3F), 5: CapacityBitmask(0x3F)})
    assert ways.granted(policy, vm, default).l2_ways == {4: 2}


@pytest.mark.parametrize(
    ("unit", "values", "limits"),
    [
        (BandwidthUnit.PERCENT, {0: 50, 1: 100}, {0: 50}),
        (BandwidthUnit.MBPS, {0: 1500, 1: (1 << 32) - 1}, {0: 1500}),
        (BandwidthUnit.EIGHTH_GBPS, {0: 16, 1: 2048}, {0: 2000}),
        (None, {0: 50}, {}),
    ],
)
@pytest.mark.parametrize("policy", [None, "exclusive", "shared"])
def test_a_limit_is_what_limits_something_in_the_unit_that_people_use(unit, values, limits, policy):
    assert ways.granted(policy, Held(throttles=values), Held(), unit).limits == limits


@pytest.mark.parametrize(
    ("others", "free"),
    [
        ({}, 11),
        ({"vmqos.00000000-0000-4000-8000-000000000001": "600"}, 9),
        ({"vmqos.shared-ways2": "3"}, 11),
        ({"qemu-1-vm-vcpus_0": "3"}, 9),
        ({"vmqos.00000000-0000-4000-8000-000000000001": "600", "foreign": "700"}, 8),
    ],
)
def test_ways_are_free_that_are_the_default_groups_or_nobodys(others, free):
    groups = {"": held(_0="1ff")} | {name: held(_0=mask) for name, mask in others.items()}
    assert ways.free({0: CapacityBitmask(0x7FF)}, groups) == {0: free}


def test_the_size_of_a_cache_follows_from_what_the_default_group_has_of_it():
    default = Held({0: CapacityBitmask(0x1FF), 1: CapacityBitmask(0)}, {0: 14155776, 1: 0})
    assert ways.cache_bytes({0: 11, 1: 11}, default) == {0: 17301504}
