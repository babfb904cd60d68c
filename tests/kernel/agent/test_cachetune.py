# SPDX-License-Identifier: Apache-2.0
"""VMs that libvirt placed by cachetune, beside ours; libvirt does that with KVM only."""

from __future__ import annotations

import pytest

from tests.functional.agent.conftest import wait_until_told
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, EXCLUSIVE_4, SHARED_3, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.kernel.agent import eyes, foreign
from tests.kernel.agent.conftest import wait_for_kernel_threads
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tests.kernel.agent.registers import L3Registers
from tools.lab import vms

pytestmark = [pytest.mark.guest(machines=("milan-kvm",), kernels=("6.12",)), pytest.mark.long]

WAY = 2
"""MiB of one way of this machine."""


def cachetune(ways: int) -> str:
    """That many ways on both caches for the first vCPU, and libvirt's own monitoring of it."""
    caches = "".join(f'<cache id="{cache}" level="3" type="both" size="{ways * WAY}" unit="MiB"/>' for cache in (0, 1))
    return f'<cachetune vcpus="0">{caches}<monitor level="3" vcpus="0"/></cachetune>'


def test_a_vm_placed_by_cachetune_is_libvirts(
    make_agent: MakeAgent,
    resctrl: KernelResctrl,
    registers: L3Registers,
    tree: Tree,
    make_vm: MakeVm,
    wait_for: WaitFor,
) -> None:
    # libvirt gives out only ways that no group has, not even the default one.
    agent = make_agent({"allocation": {"reserved_ways": "ff"}})
    agent.start()
    wait_for(lambda: tree.masks()[0] == tree.every_way & ~0xFF, "the default group leaving ways to libvirt")
    theirs = make_vm(cputune=cachetune(ways=3))
    (name,) = tree.groups()
    assert name.startswith("qemu-") and theirs.name in name
    assert {mask.bit_count() for mask in tree.masks(name).values()} == {3}
    before = foreign.belongings(resctrl.root, [name])
    assert before[name]["tasks"]

    wait_until_told(agent, wait_for, theirs, "none", reason="cachetune")
    ours = make_vm(EXCLUSIVE_4)
    for specs in (EXCLUSIVE_4, EXCLUSIVE_2, SHARED_3, EXCLUSIVE_4):
        ours.change_flavor(vms.Flavor("changed", specs))
        wait_until_told(
            agent,
            wait_for,
            ours,
            "kept",
            ways_requested=int(specs["hw:cache_ways"]),
            policy=specs.get("hw:cache_policy", "exclusive"),
        )
        wait_for_kernel_threads(ours, wait_for)
        assert not list(eyes.faults(resctrl.root, registers, ours))
        assert foreign.belongings(resctrl.root, [name]) == before
    assert not list(tree.violations([group(ours)]))
    others = set(theirs.tasks()) - set(map(int, before[name]["tasks"].split()))
    assert eyes.groups_of(others) == {("", "")}, "libvirt left them in the default group, and so do we"
    theirs.domain.destroy()
    wait_for(lambda: tree.groups() == [group(ours)], "libvirt removing its group")
