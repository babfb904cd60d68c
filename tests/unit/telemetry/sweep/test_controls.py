# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.sweep.controls."""

import pytest

from tests.unit.telemetry.tree import open_files
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem
from vmqos.telemetry.sweep.controls import Controls
from vmqos.telemetry.sweep.ways import Held


@pytest.fixture(params=[True, False], ids=["kept", "not-kept"])
def controls(request, tree):
    made = Controls(Filesystem(str(tree.root)), request.param)
    yield made
    made.close()
    assert open_files(tree.root) == []


def test_a_changed_mask_is_seen(tree, controls):
    assert controls.read([""])[""].masks[0] == CapacityBitmask(0x7FF)
    tree.control("", "1ff")
    found = controls.read([""])[""]
    assert found.masks[0] == CapacityBitmask(0x1FF)
    assert found.sizes[0] == 17301504 // 11 * 9


def test_the_same_value_comes_back_while_nothing_changes(controls):
    assert controls.read([""]) is controls.read([""])


def test_a_group_that_is_gone_holds_nothing_and_is_let_go(tree, controls):
    group = tree.control("a", "3")
    assert controls.read(["", "a"])["a"].masks[0] == CapacityBitmask(3)
    tree.remove(group)
    assert controls.read([""]).keys() == {""}
    assert not any("/a/" in path for path in open_files(tree.root))
    assert controls.read(["", "a"])["a"] == Held()


def test_a_text_that_nobody_understands_is_no_reason_to_fail(tree, controls):
    (tree.root / "schemata").write_text("nonsense\n")
    assert controls.read([""])[""] == Held()


def test_masks_are_known_where_the_sizes_are_not(tree, controls):
    (tree.root / "size").unlink()
    found = controls.read([""])[""]
    assert (found.masks[0], found.sizes) == (CapacityBitmask(0x7FF), {})
