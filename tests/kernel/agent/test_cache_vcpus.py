# SPDX-License-Identifier: Apache-2.0
"""Some vCPUs alone have the ways, on the kernel's own resctrl: the functional tests of the same name."""

from __future__ import annotations

import pytest

from tests.functional.agent.test_cache_vcpus import (
    quick_agent,
    test_a_thread_that_is_born_in_the_group_is_moved_out_of_it,
    test_tasks_that_somebody_moved_go_back_to_either_side,
    test_the_named_vcpus_alone_get_the_ways,
    test_vcpus_of_vms_that_share_are_in_the_class,
    test_vcpus_that_are_plugged_in_get_the_ways_once_they_are_there,
)

pytestmark = [
    pytest.mark.guest(machines=("milan-kvm",), kernels=("6.12",)),
    pytest.mark.feature("vcpus"),
    pytest.mark.long,
]


__all__ = [
    "quick_agent",
    "test_a_thread_that_is_born_in_the_group_is_moved_out_of_it",
    "test_tasks_that_somebody_moved_go_back_to_either_side",
    "test_the_named_vcpus_alone_get_the_ways",
    "test_vcpus_of_vms_that_share_are_in_the_class",
    "test_vcpus_that_are_plugged_in_get_the_ways_once_they_are_there",
]
