# SPDX-License-Identifier: Apache-2.0
"""What tests in guests take for a broken promise, while the agent goes on working."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.kernel.agent import groups
from tests.kernel.agent.registers import L3Registers

OWN, SHARED = "vmqos.8b1e", "vmqos.shared-ways3"
FREE = 0x7F0
OWNED = 0xF


@dataclass
class Host:
    """A default group, a VM's own and one that VMs share, the mode of which is not ``exclusive``.

    :ivar ways: by CLOSID.
    :ivar after_masks: called after the masks of each group are read, with its CLOSID.
    """

    root: Path
    ways: dict[int, int]
    after_masks: Callable[[int], None] = lambda closid: None

    def masks(self, closid: int) -> dict[int, int]:
        """As :meth:`.L3Registers.masks`."""
        found = self.ways[closid]
        self.after_masks(closid)
        return {0: found}

    def caches_of(self, cpus: Iterator[int]) -> frozenset[int]:
        """As :meth:`.L3Registers.caches_of`."""
        return frozenset(0 for _ in cpus)

    def move_to_shared(self) -> None:
        """Put a task into the group that is shared."""
        (self.root / SHARED / "tasks").write_text(f"{os.getpid()}\n")

    def broken(self) -> list[str]:
        """What is found broken."""
        registers = cast(L3Registers, self)
        return list(map(str, groups.broken_now(self.root, registers, lambda group: True)))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """The group that is shared has just been made: it has no task, and the ways that the kernel chose."""
    for number, (name, tasks) in enumerate((("", ""), (OWN, f"{os.getpid()}\n"), (SHARED, ""))):
        group = tmp_path / name
        group.mkdir(exist_ok=True)
        for file, text in (("ctrl_hw_id", f"{number}\n"), ("mode", "shareable\n"), ("tasks", tasks)):
            (group / file).write_text(text)
    return Host(tmp_path, {0: FREE, 1: OWNED, 2: OWNED})


def test_ways_that_two_groups_with_tasks_have_are_told(host: Host) -> None:
    assert host.broken() == []
    host.move_to_shared()
    assert host.broken() == [f"ways f of cache 0: {OWN} and {SHARED}"]


def test_a_group_that_gets_its_ways_and_then_its_tasks_while_it_is_read_is_no_fault(host: Host) -> None:
    def go_on(closid: int) -> None:
        if closid == 2 and host.ways[2] == OWNED:
            host.ways[2] = 0x70
            host.move_to_shared()

    host.after_masks = go_on
    assert host.broken() == []
    assert host.ways[2] == 0x70


def test_ways_that_a_vm_gave_up_before_another_took_them_are_no_fault(host: Host) -> None:
    host.move_to_shared()
    host.ways[2] = 0x70

    def go_on(closid: int) -> None:
        if closid == 1 and host.ways[1] == OWNED:
            host.ways.update({1: 0x300, 2: OWNED, 0: 0x480})

    host.after_masks = go_on
    assert host.broken() == []


def test_ways_that_are_shared_are_told_whatever_others_do_meanwhile(host: Host) -> None:
    host.move_to_shared()

    def go_on(closid: int) -> None:
        if closid == 0:
            host.ways[0] = FREE ^ host.ways[0] ^ 0x400

    host.after_masks = go_on
    assert host.broken() == [f"ways f of cache 0: {OWN} and {SHARED}"]


def test_groups_that_never_stay_as_they_are_can_t_be_judged(host: Host) -> None:
    host.move_to_shared()

    def go_on(closid: int) -> None:
        if closid == 2:
            host.ways[2] ^= 0x10

    host.after_masks = go_on
    with pytest.raises(TimeoutError, match="in 20 readings no two are alike"):
        host.broken()
