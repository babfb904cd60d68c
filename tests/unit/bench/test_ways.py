# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.bench import exceptions, ways
from vmqos.bench.ways import Loan, Policy
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities
from vmqos.resctrl.groups import ControlGroup

ALL = 0x7FF
VM = "vmqos.4f2c1a9e-0f0b-4a55-9c1e-2b6d7a90c3aa"


def machine(*names: str, shareable: int = 0, sparse: bool = False, least: int = 1) -> Capabilities:
    return Capabilities(
        {
            name: CacheResource(name, 16, CapacityBitmask(ALL), least, CapacityBitmask(shareable), sparse, (0, 1))
            for name in names or ("L3",)
        }
    )


def groups(masks: Mapping[str, int], resource: str = "L3") -> list[ControlGroup]:
    return [ControlGroup(name, "shareable", {resource: {0: f"{bits:x}", 1: "7ff"}}) for name, bits in masks.items()]


def choose(
    masks: Mapping[str, int],
    wanted: int | None = 4,
    policy: Policy = Policy(),  # noqa: B008 - it can't be changed
    capabilities: Capabilities | None = None,
    locked: int = 0,
) -> int:
    taken = {"L3": {0: CapacityBitmask(locked)}}
    return ways.choose(capabilities or machine(), groups(masks), taken, 0, wanted, policy).mask.bits


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ({"": ALL}, 0x00F),
        ({"": 0x7FC, VM: 0x003}, 0x03C),
        ({"": 0x0FF, VM: 0x700}, 0x00F),
        # The lower end is another's too, the upper one is not.
        ({"": ALL, "qemu-1-x-vcpus_0": 0x001}, 0x780),
    ],
)
def test_ways_are_lent_that_the_default_group_alone_holds(masks: dict[str, int], expected: int) -> None:
    assert f"{choose(masks):x}" == f"{expected:x}"


def test_ways_of_devices_reserved_and_locked_ones_are_not_lent() -> None:
    assert choose({"": ALL}, capabilities=machine(shareable=0x00F)) == 0x780
    assert choose({"": ALL}, policy=Policy(reserved=CapacityBitmask(1))) == 0x780
    assert choose({"": ALL}, locked=1) == 0x780
    assert choose({"": ALL}, policy=Policy(use_shareable=True), capabilities=machine(shareable=0x00F)) == 0x00F


def test_ways_that_devices_are_confined_to_are_not_lent_on_that_cache() -> None:
    l3 = replace(machine().caches["L3"], io_alloc={0: CapacityBitmask(0x00F), 1: CapacityBitmask(0x700)})
    assert choose({"": ALL}, capabilities=Capabilities({"L3": l3})) == 0x780


def test_the_default_group_keeps_its_floor_and_one_piece() -> None:
    assert choose({"": 0x00F}, 2) == 0x003
    with pytest.raises(exceptions.TooFewWays, match=r"3 neighbouring ways of .* keeps 2 or more; it can lend 2\."):
        choose({"": 0x00F}, 3)
    # In the middle the kernel would refuse what is left, unless masks may have gaps.
    both_ends = {"": ALL, "low": 0x001, "high": 0x400}
    with pytest.raises(exceptions.TooFewWays, match="it can lend 0"):
        choose(both_ends, 1)
    assert choose(both_ends, 1, capabilities=machine(sparse=True)) == 0x002


def test_fewer_ways_than_four_do_where_no_number_is_named() -> None:
    assert choose({"": ALL}, None) == 0x00F
    assert choose({"": 0x01F}, None) == 0x007
    with pytest.raises(exceptions.TooFewWays, match="needs 1 way of L3 cache"):
        choose({"": 0x003}, None)


def test_a_mask_has_as_many_ways_as_the_machine_demands() -> None:
    with pytest.raises(exceptions.TooFewWays):
        choose({"": ALL}, 1, capabilities=machine(least=2))


def test_with_cdp_ways_are_lent_of_code_and_data_alike() -> None:
    found = [ControlGroup("", "shareable", {"L3CODE": {0: "7f0"}, "L3DATA": {0: "7ff"}})]
    loan = ways.choose(machine("L3CODE", "L3DATA"), found, {}, 0, 2, Policy())
    # Of data the middle would have to go.
    assert loan.mask == CapacityBitmask(0x600)


@given(
    st.integers(1, ALL),
    st.dictionaries(st.sampled_from(("a", "b", VM)), st.integers(1, ALL)),
    st.integers(0, ALL),
    st.integers(0, ALL),
    st.integers(1, 5),
    st.integers(1, 3),
    st.booleans(),
)
def test_whatever_is_lent_is_nobody_elses_and_leaves_a_legal_mask(
    default: int, others: dict[str, int], shareable: int, reserved: int, wanted: int, floor: int, sparse: bool
) -> None:
    capabilities = machine(shareable=shareable, sparse=sparse)
    policy = Policy(floor, CapacityBitmask(reserved))
    try:
        mask = choose({"": default, **others}, wanted, policy, capabilities)
    except exceptions.TooFewWays:
        return
    left = CapacityBitmask(default & ~mask)
    assert mask.bit_count() == wanted
    assert mask & default == mask
    assert not any(mask & bits for bits in (*others.values(), shareable, reserved))
    assert left.count >= floor
    capabilities.caches["L3"].check(left)
    capabilities.caches["L3"].check(CapacityBitmask(mask))


@given(st.integers(0, 7), st.integers(1, ALL))
def test_a_groups_name_tells_what_it_holds(cache: int, bits: int) -> None:
    loan = Loan(cache, CapacityBitmask(bits))
    assert Loan.of_group(loan.group) == loan


@pytest.mark.parametrize(
    "name",
    [VM, "vmqos.shared-ways2", "vmqos.bench-0", "vmqos.bench-0-xyz", "vmqos.bench-\u0661-f", "x.vmqos.bench-0-f", ""],
)
def test_no_other_group_is_taken_for_one_of_an_experiment(name: str) -> None:
    assert Loan.of_group(name) is None
