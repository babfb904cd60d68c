# SPDX-License-Identifier: Apache-2.0
"""Ways for code and for data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.allocation.examples import DEFAULT, carry_out, host, look, masks
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from tests.unit.allocation.run_plan import settle
from vmqos.allocation import PromiseState, Split, WriteMasks
from vmqos.allocation.masks.target import split
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import vm_group
from vmqos.resctrl.bitmask import CapacityBitmask

KEPT, PENDING, DEGRADED = PromiseState.KEPT, PromiseState.PENDING, PromiseState.DEGRADED
A = vm_group(uuid(1))


def cdp(**fields: object) -> Kernel:
    return Kernel(machine(cdp=True, **fields))  # type: ignore[arg-type]


def test_code_and_data_get_ways_of_their_own_side_by_side() -> None:
    kernel = cdp()
    found = carry_out(kernel, [request(1, parts=(2, 4)), request(2, 3)])
    assert found[1].state is found[2].state is KEPT
    assert found[1].masks[0].bits == 0b111111
    assert found[1].splits == {0: Split(CapacityBitmask(0b000011), CapacityBitmask(0b111100))}
    assert kernel.parts(A) == found[1].splits and not found[2].splits
    assert kernel.parts(vm_group(uuid(2))) == {0: split(masks(kernel)[2])}
    assert kernel.parts("") == {0: split(masks(kernel)[""])}


def test_they_are_counted_together_and_do_not_fit_beside_too_many_others() -> None:
    found = carry_out(cdp(), [request(1, 5), request(2, parts=(2, 3)), request(3, parts=(1, 3))])
    assert [found[n].state for n in (1, 2, 3)] == [KEPT, PENDING, KEPT]
    assert "5 are asked for" in found[2].reason.text


def test_a_vm_that_has_other_parts_on_one_cache_keeps_them_there() -> None:
    kernel = cdp(caches=(0, 1, 2))
    vm = request(1, parts=(1, 3), caches=(0, 1, 2))
    settle(kernel, [vm], DEFAULT)
    few, whole = CacheRequest(code_ways=2, data_ways=1), CacheRequest(ways=4)
    settle(kernel, [replace(vm, wants_on={1: few, 2: whole})], DEFAULT)
    assert kernel.parts(A) == {0: split(0b1111, 1, 3), 1: split(0b111, 2, 1), 2: split(0b1111)}
    found = look(kernel, [replace(vm, wants_on={1: few, 2: whole})])
    assert not found.prepare and found.allocations[vm.uuid].splits == kernel.parts(A)


def test_each_part_has_as_many_ways_as_a_mask_must_have() -> None:
    found = carry_out(cdp(fewest=2), [request(1, parts=(1, 4))])[1]
    assert (found.splits[0].code.count, found.splits[0].data.count) == (2, 4)
    assert found.reason.text == "gets 6 ways for the 5 asked for: a mask has at least 2 ways on this machine"


def test_other_parts_of_as_many_ways_are_one_write_and_nothing_moves() -> None:
    kernel = cdp()
    settle(kernel, [request(1, parts=(2, 4))], DEFAULT)
    for vm, parts in (
        (request(1, parts=(4, 2)), (0b001111, 0b110000)),
        (request(1, 6), (0b111111, 0b111111)),
        (request(1, parts=(1, 5)), (0b000001, 0b111110)),
    ):
        found = look(kernel, [vm])
        wanted = {0: Split(CapacityBitmask(parts[0]), CapacityBitmask(parts[1]))}
        assert found.prepare == (WriteMasks(A, {0: CapacityBitmask(0b111111)}, wanted),)
        settle(kernel, [vm], DEFAULT)


def test_somebody_who_wrote_over_the_parts_is_put_right() -> None:
    vm = request(1, parts=(2, 4))
    kernel = host(vm, on=machine(cdp=True))
    kernel.splits[A] = {0: split(0b111111, 5, 1)}
    settle(kernel, [vm], DEFAULT)
    assert kernel.parts(A) == {0: split(0b111111, 2, 4)}


def test_a_class_of_code_and_data_ways_lies_in_the_pool() -> None:
    kernel = cdp()
    found = carry_out(kernel, [request(1, policy=SHARED, parts=(1, 2)), request(2, policy=SHARED, parts=(1, 2))])
    name = "vmqos.shared-code1-data2"
    assert {n: (each.state, each.group) for n, each in found.items()} == {n: (KEPT, name) for n in (1, 2)}
    (parts,) = kernel.parts(name).values()
    assert (parts.code.count, parts.data.count) == (1, 2) and parts.is_apart


def test_parts_that_were_rounded_up_and_overlap_are_kept_with_a_remark() -> None:
    # 1 and 10 ways become 2 and 10, which are 12, and the cache has 11.
    kernel = cdp(fewest=2)
    found = carry_out(kernel, [request(1, policy=SHARED, parts=(1, 10))])[1]
    assert found.state is KEPT and not found.splits[0].is_apart
    assert found.reason.text == "code and data both fill 1 way on L3 cache 0: its mask is too small to keep them apart"
    wide = carry_out(cdp(fewest=2), [request(1, policy=SHARED, parts=(1, 4))])[1]
    assert wide.splits[0].is_apart and "both fill" not in wide.reason.text


def test_a_vm_that_has_fewer_ways_than_its_parts_need_is_told_which_it_fills_with_both() -> None:
    kernel = host(request(1, 3), request(2, 6), on=machine(cdp=True))
    found = carry_out(kernel, [request(1, parts=(3, 2)), request(2, 6)])[1]
    assert found.state is DEGRADED and found.masks[0].count == 3
    assert found.reason.text.endswith(
        "; code and data both fill 2 ways on L3 cache 0: its mask is too small to keep them apart"
    )


def test_without_cdp_they_are_pending_with_what_helps() -> None:
    vms = [request(1, parts=(1, 2)), request(2, policy=SHARED, parts=(1, 2)), request(3, parts=(1, 2), percent=20)]
    found = carry_out(Kernel(machine()), vms)
    assert [found[n].state for n in (1, 2, 3)] == [PENDING, PENDING, DEGRADED]
    for n in (1, 2, 3):
        assert "to be mounted with cdp, and a CPU that has it: 'sudo vmqos doctor' tells how" in found[n].reason.text
    assert found[3].throttles == {0: 20}


@pytest.mark.parametrize(("code", "data"), [(0b1111, 0b1), (0b1, 0b1111)])
def test_what_a_foreign_group_has_for_either_is_taken_for_both(code: int, data: int) -> None:
    kernel = cdp()
    kernel.masks |= {"": {0: 0x7F0}, "pqos": {0: 0b1111}}
    kernel.splits["pqos"] = {0: Split(CapacityBitmask(code), CapacityBitmask(data))}
    found = carry_out(kernel, [request(1, 3), request(2, parts=(1, 1))])
    assert found[1].state is found[2].state is KEPT
    assert not (found[1].masks[0].bits | found[2].masks[0].bits) & 0b1111
