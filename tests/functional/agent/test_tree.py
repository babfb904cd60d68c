# SPDX-License-Identifier: Apache-2.0
"""How the tests read resctrl while the agent removes a group."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.functional.agent.tree import Tree


class Losing(Tree):
    """A tree that loses a group just before a certain thing is read of it."""

    def lose(self, what: str, group: str) -> None:
        (self.root / "lost").write_text(f"{what} {group}")

    def _before(self, what: str, group: str) -> None:
        if (self.root / "lost").read_text() == f"{what} {group}":
            shutil.rmtree(self.root / group)

    def masks(self, group: str = "") -> dict[int, int]:
        self._before("masks", group)
        return super().masks(group)

    def mode(self, group: str) -> str:
        self._before("mode", group)
        return super().mode(group)

    def tasks(self, directory: str = "") -> set[int]:
        self._before("tasks", directory)
        return super().tasks(directory)


def make_group(tree: Tree, name: str, mask: str, tasks: str = "") -> None:
    group = tree.root / name
    group.mkdir(exist_ok=True)
    (group / "schemata").write_text(f"L3:0={mask}\n")
    (group / "mode").write_text("shareable\n")
    (group / "tasks").write_text(tasks)


@pytest.fixture
def tree(tmp_path: Path) -> Losing:
    """An exclusive VM, and a VM with which it shares a way."""
    made = Losing(tmp_path)
    (tmp_path / "info/L3").mkdir(parents=True)
    (tmp_path / "info/L3/cbm_mask").write_text("ff\n")
    (tmp_path / "info/L3/min_cbm_bits").write_text("1\n")
    make_group(made, "", "f0")
    make_group(made, "vmqos.owner", "3", "1\n")
    make_group(made, "vmqos.other", "6", "2\n")
    made.lose("nothing", "at all")
    return made


def test_a_group_that_gets_other_ways_and_then_its_tasks_while_it_is_read_breaks_no_rules(tree: Losing) -> None:
    class Moving(Losing):
        """The agent gives a new group its ways, and then its tasks, between two reads."""

        def tasks(self, directory: str = "") -> set[int]:
            make_group(self, "vmqos.other", "c", "2\n")
            return super().tasks(directory)

    make_group(tree, "vmqos.other", "6")
    assert not tree.violations(["vmqos.owner"])
    assert not Moving(tree.root).violations(["vmqos.owner"])
    assert tree.masks("vmqos.other") == {0: 0xC}


def test_a_way_of_two_groups_breaks_the_rules(tree: Losing) -> None:
    assert list(tree.violations(["vmqos.owner"])) == ["vmqos.other shares ways 2 of cache 0 with vmqos.owner"]


@pytest.mark.parametrize(
    ("what", "group"),
    [("masks", "vmqos.other"), ("masks", "vmqos.owner"), ("tasks", "vmqos.other"), ("mode", "vmqos.owner")],
)
def test_a_group_that_goes_while_it_is_read_breaks_no_rule(tree: Losing, what: str, group: str) -> None:
    tree.lose(what, group)
    assert not list(tree.violations(["vmqos.owner"]))
    assert not (tree.root / group).exists()


def test_a_group_that_stays_and_is_not_what_it_should_be_is_told_of(tree: Losing) -> None:
    (tree.root / "vmqos.other/schemata").unlink()
    with pytest.raises(FileNotFoundError):
        list(tree.violations(["vmqos.owner"]))
