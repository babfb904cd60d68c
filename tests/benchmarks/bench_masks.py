# SPDX-License-Identifier: Apache-2.0
"""Giving a control group other ways on every cache."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks import rivals
from tests.benchmarks.arena import Arena
from tests.benchmarks.contest import compare
from tests.benchmarks.figures import Comparison, Effort
from vmqos.resctrl import groups, info, schemata
from vmqos.resctrl.bitmask import CapacityBitmask


def run(arena: Arena, effort: Effort) -> Iterator[Comparison]:
    """Write one group's schemata."""
    with arena.group() as group:
        yield _measure(arena, effort, group)


def _measure(arena: Arena, effort: Effort, group: str) -> Comparison:
    filesystem = arena.filesystem
    l3 = info.read_capabilities(filesystem).l3
    assert l3 is not None
    masks = dict.fromkeys(l3.cache_ids, CapacityBitmask(0b11))
    every = dict.fromkeys(l3.cache_ids, l3.cbm_mask)

    def check() -> None:
        now = schemata.parse_masks(filesystem.read(group, "schemata"), "L3")
        if now != masks:
            raise AssertionError(f"the masks were not written: {now}")

    path = filesystem.path(group, "schemata")
    there = rivals.writing(path, schemata.format_values("L3", masks))
    back = rivals.writing(path, schemata.format_values("L3", every))
    with rivals.system_calls(there) as calls, rivals.system_calls(back) as porter:
        return compare(
            "giving a group other masks",
            [
                arena.ours(lambda: groups.write_values(filesystem, group, "L3", masks)),
                arena.limit(calls),
                *arena.pqos_sides("-e", f"llc:{group.removeprefix(rivals.COS)}=0x3"),
            ],
            effort,
            check=check,
            undo=lambda: porter.go(0),
        )
