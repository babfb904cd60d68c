# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.names."""

import pytest

from vmqos import allocation
from vmqos.telemetry import names

UUID = "6e33a463-cfb7-40e4-8ced-88dc1df76034"


@pytest.mark.parametrize(
    "name",
    [
        "",
        f"vmqos.{UUID}",
        f"vmqos.{UUID.upper()}",
        "vmqos.shared-ways2",
        "vmqos.shared-",
        "vmqos.",
        f"vmqos.{UUID}x",
        f"vmqos.x{UUID}",
        UUID,
        "qemu-1-instance-00000001-vcpus_0",
        "libvirt",
    ],
)
def test_a_reader_takes_the_same_groups_for_ours_as_the_agent_does(name):
    owner = allocation.owner_of(name)
    assert names.is_class(name) == (owner is allocation.Owner.CLASS)
    assert (names.vm_of(name) is not None) == (owner is allocation.Owner.VM)
    assert names.is_ours(name) == (owner in (allocation.Owner.CLASS, allocation.Owner.VM))


def test_a_group_that_the_agent_makes_leads_back_to_its_vm():
    assert names.vm_of(allocation.vm_group(UUID)) == UUID
