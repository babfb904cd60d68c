# SPDX-License-Identifier: Apache-2.0
"""A VM pays where it can run, on the kernel's own resctrl: the functional tests of the same name."""

from __future__ import annotations

import pytest

from tests.functional.agent.test_confined import (
    quick_agent,
    test_a_vm_all_of_whose_tasks_are_pinned_pays_where_they_are_pinned,
    test_vms_on_two_sockets_have_the_same_ways_each_on_its_own,
)

pytestmark = [
    pytest.mark.guest(pairs=("milan-kvm-6.12", "sapphire-rapids-newest")),
    pytest.mark.feature("confined"),
    pytest.mark.long,
]

__all__ = [
    "quick_agent",
    "test_a_vm_all_of_whose_tasks_are_pinned_pays_where_they_are_pinned",
    "test_vms_on_two_sockets_have_the_same_ways_each_on_its_own",
]
