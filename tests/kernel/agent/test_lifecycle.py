# SPDX-License-Identifier: Apache-2.0
"""A VM's life on the kernel's own resctrl: the functional tests of the same name, and the kernel's word on each."""

from __future__ import annotations

import pytest

from tests.functional.agent.test_lifecycle import (
    test_a_crashed_qemu_gives_its_ways_back,
    test_a_live_change_of_the_metadata_resizes_the_promise,
    test_a_paused_vm_keeps_its_ways,
    test_a_stopped_vm_leaves_a_clean_host,
    test_a_thread_that_somebody_moved_away_is_brought_back,
    test_a_vm_confined_to_one_cache_pays_on_that_cache_alone,
    test_a_vm_that_asks_for_nothing_is_monitored_in_the_default_group,
    test_a_vm_that_changes_from_exclusive_to_shared_and_back_is_never_without_a_group,
    test_an_exclusive_vm_gets_its_ways_for_all_its_tasks,
    test_hot_plugged_vcpus_are_in_the_group,
    test_sharing_vms_are_in_one_class_and_monitored_each,
)

pytestmark = pytest.mark.guest(machines=("milan-kvm",), kernels=("6.12",))

__all__ = [
    "test_a_crashed_qemu_gives_its_ways_back",
    "test_a_live_change_of_the_metadata_resizes_the_promise",
    "test_a_paused_vm_keeps_its_ways",
    "test_a_stopped_vm_leaves_a_clean_host",
    "test_a_thread_that_somebody_moved_away_is_brought_back",
    "test_a_vm_confined_to_one_cache_pays_on_that_cache_alone",
    "test_a_vm_that_asks_for_nothing_is_monitored_in_the_default_group",
    "test_a_vm_that_changes_from_exclusive_to_shared_and_back_is_never_without_a_group",
    "test_an_exclusive_vm_gets_its_ways_for_all_its_tasks",
    "test_hot_plugged_vcpus_are_in_the_group",
    "test_sharing_vms_are_in_one_class_and_monitored_each",
]
