# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import machine, request, uuid
from vmqos.allocation import Allocation, Policy, PromiseState, Request, plan
from vmqos.group_names import vm_group
from vmqos.resctrl.bitmask import CapacityBitmask


def verdict(kernel: Kernel, wanted: Request, policy: Policy) -> Allocation:
    return plan(kernel.capabilities, kernel.layout(), [wanted], policy).allocations[wanted.uuid]


def with_one_vm(mask: int, default: int, ways: int = 11, shareable: int = 0) -> Kernel:
    kernel = Kernel(machine(ways, shareable=shareable))
    kernel.masks = {"": {0: default}, vm_group(uuid(1)): {0: mask}}
    return kernel


def test_a_vm_on_ways_that_were_reserved_since_is_kept_with_a_remark() -> None:
    kernel = with_one_vm(0x1FF, 0x600)
    found = verdict(kernel, request(1, 9), Policy(reserved_ways=CapacityBitmask(0x3)))
    assert found.state is PromiseState.KEPT
    assert (
        found.reason.text
        == "its mask 1ff on L3 cache 0 has reserved ways ([allocation] reserved_ways): no room to move it"
    )


def test_a_vm_on_ways_of_io_that_should_not_be_is_degraded() -> None:
    kernel = with_one_vm(0x7F8, 0x7, shareable=0x600)
    found = verdict(kernel, request(1, 8), Policy(default_ways_min=3))
    assert (found.state, found.masks[0].bits) == (PromiseState.KEPT, 0xFF), "it moves if it can"
    kernel = with_one_vm(0x7F0, 0x3, shareable=0x600)
    kernel.masks["pqos"] = {0: 0xC}
    found = verdict(kernel, request(1, 7), Policy())
    assert (found.state, found.masks[0].bits) == (PromiseState.DEGRADED, 0x7F0)
    assert found.reason.text.startswith("I/O fills ways 600 of this VM's mask 7f0 on L3 cache 0, too")


def test_two_faults_are_both_told() -> None:
    kernel = with_one_vm(0x1F, 0x7E0)
    kernel.masks["pqos"] = {0: 0x7F8}
    found = verdict(kernel, request(1, 7), Policy())
    assert found.state is PromiseState.DEGRADED and found.masks[0].count == 5
    assert "has 5 of 7 ways" in found.reason.text and "pqos has ways of this VM's mask 1f" in found.reason.text
