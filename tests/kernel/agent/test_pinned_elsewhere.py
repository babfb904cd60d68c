# SPDX-License-Identifier: Apache-2.0
"""A VM that is pinned elsewhere has its promise follow, on the kernel's own resctrl: more of the functional tests.

They know a machine of two CPUs with a cache each.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.functional.agent.test_confined import (
    quick_agent,
    test_a_vcpu_that_is_plugged_in_takes_ways_where_it_can_run,
    test_a_vm_that_is_pinned_behind_libvirts_back_is_found_by_the_audit,
    test_one_task_that_is_let_out_takes_ways_on_the_other_cache,
    test_the_promise_follows_a_vm_that_is_pinned_elsewhere,
    test_ways_for_two_sockets_are_enough_for_two_vms_that_would_not_fit_on_one,
)
from tests.kernel.agent import groups
from tests.kernel.agent.conftest import is_promised
from tests.kernel.agent.conftest import witness as strict_witness
from tests.kernel.agent.kernel_resctrl import ROOT
from tests.kernel.agent.pool import VmPool
from tests.kernel.agent.registers import L3Registers
from tests.kernel.agent.witness import Step, Witness

pytestmark = [pytest.mark.guest(pairs=("milan-kvm-6.12",)), pytest.mark.feature("confined"), pytest.mark.long]


@pytest.fixture
def witness(strict_witness: Witness, registers: L3Registers, pool: VmPool) -> Witness:
    """Looks at the registers before each write: what an exclusive VM had alone it keeps, as long as it runs there.

    Between a VM's being pinned elsewhere and the agent's answer it runs where it has no ways of its own yet.
    """
    held: set[tuple[str, int]] = set()

    def look(step: Step) -> None:
        everybody = groups.read(ROOT, registers)
        shared = {(found.group, found.cache): found for found in _broken(everybody)}
        lost = [str(shared[pair]) for pair in held & shared.keys()]
        held.clear()
        held.update({(group.name, cache) for group in everybody if group.of_exclusive_vm for cache in group.caches})
        held.difference_update(shared)
        assert not lost, f"before the write to {step.path}: {lost}"

    def _broken(everybody: list[groups.ControlGroup]) -> list[groups.Broken]:
        return list(groups.broken_promises(everybody, partial(is_promised, pool)))

    strict_witness.look = look
    return strict_witness


__all__ = [
    "quick_agent",
    "strict_witness",
    "test_a_vcpu_that_is_plugged_in_takes_ways_where_it_can_run",
    "test_a_vm_that_is_pinned_behind_libvirts_back_is_found_by_the_audit",
    "test_one_task_that_is_let_out_takes_ways_on_the_other_cache",
    "test_the_promise_follows_a_vm_that_is_pinned_elsewhere",
    "test_ways_for_two_sockets_are_enough_for_two_vms_that_would_not_fit_on_one",
]
