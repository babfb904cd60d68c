# SPDX-License-Identifier: Apache-2.0
"""Crashes on the kernel's own resctrl: the functional tests, and an agent that is killed between two writes."""

from __future__ import annotations

import pytest

from tests.functional.agent.test_recovery import (
    kill_and_converge,
    test_a_new_agent_finds_everything_as_the_old_one_left_it,
    test_a_restart_of_libvirtd_is_survived,
    test_a_vm_that_dies_while_libvirtd_is_down_gives_its_ways_back,
    test_once_does_the_work_and_ends,
    test_sigterm_ends_the_agent_and_changes_nothing,
    test_what_happened_while_the_agent_was_dead_is_made_up_for,
    test_without_libvirt_nothing_is_taken_down,
)
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm
from tests.kernel.agent.witness import KillingWitness, Witness

pytestmark = [pytest.mark.guest(machines=("sapphire-rapids",), kernels=("newest",)), pytest.mark.feature("ways")]

KILLS = 8
WRITES = 4
"""What a small change of wishes takes at least: most turns end in a kill."""


def test_sigkill_between_any_two_writes_leads_to_the_same_end(
    witness: Witness, make_agent: MakeAgent, tree: Tree, make_vm: MakeVm
) -> None:
    killer = KillingWitness(witness)
    kill_and_converge(KILLS, WRITES, killer, make_agent, tree, make_vm)
    # Each was about to make one more write, in another place of its plan than the one before.
    assert len(killer.deaths) == KILLS
    assert {death.path.rpartition("/")[2] for death in killer.deaths} >= {"schemata", "tasks"}


__all__ = [
    "test_a_new_agent_finds_everything_as_the_old_one_left_it",
    "test_a_restart_of_libvirtd_is_survived",
    "test_a_vm_that_dies_while_libvirtd_is_down_gives_its_ways_back",
    "test_once_does_the_work_and_ends",
    "test_sigterm_ends_the_agent_and_changes_nothing",
    "test_what_happened_while_the_agent_was_dead_is_made_up_for",
    "test_without_libvirt_nothing_is_taken_down",
]
