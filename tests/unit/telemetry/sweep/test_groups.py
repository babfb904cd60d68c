# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.sweep.groups."""

import pytest

from tests.unit.telemetry.tree import ONE, THREE, TWO
from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem
from vmqos.telemetry.sweep.groups import Listing, Place, list_groups

NOTHING = Listing()


@pytest.fixture
def fs(tree):
    return Filesystem(str(tree.root))


def test_each_vm_is_found_by_its_groups_name(tree, fs):
    tree.control(f"vmqos.{ONE}", "600")
    tree.control("vmqos.shared-ways2", "3")
    tree.vm(TWO, "vmqos.shared-ways2")
    tree.vm(THREE)
    assert list_groups(fs, NOTHING).vms == {
        ONE: Place(f"vmqos.{ONE}", f"vmqos.{ONE}", "exclusive"),
        TWO: Place("vmqos.shared-ways2", f"vmqos.shared-ways2/mon_groups/vmqos.{TWO}", "shared"),
        THREE: Place("", f"mon_groups/vmqos.{THREE}", None),
    }


def test_foreign_groups_are_counted_but_no_vm_of_ours(tree, fs):
    tree.control("qemu-1-vm-vcpus_0", "3")
    tree.monitoring(f"vmqos.{ONE}", "qemu-1-vm-vcpus_0")
    tree.monitoring("pqos-1")
    found = list_groups(fs, NOTHING)
    assert found.vms == {}
    assert {control: list(inside) for control, inside in found.names.items()} == {
        "": ["pqos-1"],
        "qemu-1-vm-vcpus_0": [f"vmqos.{ONE}"],
    }


def test_a_vm_with_tasks_in_the_default_group_too_is_counted_in_both(tree, fs):
    tree.vm(ONE)
    tree.control(f"vmqos.{ONE}", "600")
    tree.control("vmqos.shared-ways2", "3")
    tree.vm(TWO, "vmqos.shared-ways2")
    tree.vm(TWO)
    assert list_groups(fs, NOTHING).vms == {
        ONE: Place(f"vmqos.{ONE}", f"vmqos.{ONE}", "exclusive", f"mon_groups/vmqos.{ONE}"),
        TWO: Place(
            "vmqos.shared-ways2",
            f"vmqos.shared-ways2/mon_groups/vmqos.{TWO}",
            "shared",
            f"mon_groups/vmqos.{TWO}",
        ),
    }


def test_what_a_vm_left_in_its_class_is_counted_with_its_own_group(tree, fs):
    tree.control("vmqos.shared-ways2", "3")
    tree.vm(ONE, "vmqos.shared-ways2")
    tree.control(f"vmqos.{ONE}", "600")
    left = f"vmqos.shared-ways2/mon_groups/vmqos.{ONE}"
    assert list_groups(fs, NOTHING).vms == {ONE: Place(f"vmqos.{ONE}", f"vmqos.{ONE}", "exclusive", left)}


def test_the_same_value_comes_back_while_nothing_changes(tree, fs):
    tree.vm(ONE)
    first = list_groups(fs, NOTHING)
    assert list_groups(fs, first) is first
    tree.vm(TWO)
    assert list_groups(fs, first).vms.keys() == {ONE, TWO}


def test_a_machine_that_can_only_partition_has_no_vms_to_read(tree, fs):
    (tree.root / "mon_groups").rmdir()
    assert list_groups(fs, NOTHING).vms == {}


def test_a_resctrl_that_is_gone_is_an_error(tmp_path):
    with pytest.raises(exceptions.Vanished):
        list_groups(Filesystem(str(tmp_path / "gone")), NOTHING)
