# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.agent.serve.test_vms import GROUP, snapshot
from vmqos.agent.serve import caches
from vmqos.agent.snapshot import Snapshot
from vmqos.allocation import Group, Layout, Policy, Split
from vmqos.allocation.caches import l2
from vmqos.group_names import Owner
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthResource, BandwidthUnit, CacheResource, Capabilities
from vmqos.resctrl.topology import CacheTopology

LOCK = "vmqos.lock-table"


def full() -> Snapshot:
    """A host with code and data apart, limits of bandwidth, and two L2s, in one of which something is locked."""
    before = snapshot()
    assert before.resctrl is not None
    mask = CapacityBitmask
    l3 = [CacheResource(f"L3{part}", 8, mask(0x7FF), 1, mask(), False, (0,)) for part in ("CODE", "DATA")]
    of_l2 = CacheResource("L2", 8, mask(0xFF), 1, mask(), False, (0, 1))
    mb = BandwidthResource("MB", 8, 0, 1, False, (0,), BandwidthUnit.EIGHTH_GBPS)
    groups = (
        Group("", Owner.DEFAULT, {0: mask(0x7F0), l2(0): mask(0xF0), l2(1): mask(0xFC)}, throttles={0: 2048}),
        Group(
            GROUP,
            Owner.VM,
            {0: mask(0xF), l2(0): mask(0xF), l2(1): mask(0xFC)},
            throttles={0: 10},
            splits={0: Split(mask(0x3), mask(0xC))},
        ),
        Group(LOCK, Owner.FOREIGN, {l2(1): mask(0x3)}, exclusive=True, holds_closid=False),
    )
    capabilities = Capabilities({one.name: one for one in (*l3, of_l2)}, {"MB": mb}, None)
    modes = {"": "shareable", GROUP: "exclusive", LOCK: "pseudo-locked"}
    view = replace(before.resctrl, capabilities=capabilities, layout=Layout(groups), modes=modes)
    cpus = {0: frozenset({0, 1}), 1: frozenset({2, 3})}
    return replace(
        before, resctrl=view, topology=CacheTopology({0: frozenset(range(4))}, {0: 11 << 20}, cpus, {0: 8192})
    )


def test_caches_are_told_with_every_group_and_the_room_that_is_left() -> None:
    first, second = caches.caches(snapshot())
    assert (first["id"], first["ways"], first["way_bytes"], first["cpus"]) == (0, 11, 1 << 20, "0-1,4")
    assert first["shareable_bits"] == "600" and first["cbm_mask"] == "7ff"
    assert [(group["owner"], group["mask"], group["vm_name"]) for group in first["groups"]] == [
        ("default", "7f0", None),
        ("vm", "f", "gold"),
    ]
    assert (first["free_ways"], second["free_ways"]) == (5, 9)
    assert first["bandwidth_unit"] is None and {group["bandwidth"] for group in first["groups"]} == {None}


@pytest.mark.parametrize("told", [caches.caches, caches.l2_caches])
def test_nothing_is_told_of_caches_while_resctrl_can_not_be_read(told) -> None:
    assert told(Snapshot()) == []


def test_nothing_is_told_of_l2_caches_that_can_not_be_partitioned() -> None:
    assert caches.l2_caches(snapshot()) == []


def test_code_and_data_are_told_apart_where_they_are_and_limits_of_bandwidth_in_mbps() -> None:
    (only,) = caches.caches(full())
    default, vm = only["groups"]
    assert (vm["mask"], vm["code_mask"], vm["data_mask"]) == ("f", "3", "c")
    assert (only["bandwidth_unit"], default["bandwidth"], vm["bandwidth"]) == ("MB/s", None, 1250)


def test_l2_caches_are_told_as_l3_caches_are() -> None:
    first, second = caches.l2_caches(full())
    assert (first["resource"], first["id"], first["ways"], first["cpus"]) == ("L2", 0, 8, "0-1")
    assert (first["way_bytes"], second["way_bytes"]) == (1024, None)
    assert [(group["name"], group["mask"]) for group in first["groups"]] == [("", "f0"), (GROUP, "f")]
    assert [(group["mode"], group["mask"]) for group in second["groups"]] == [
        ("shareable", "fc"),
        ("exclusive", "fc"),
        ("pseudo-locked", "3"),
    ]
    assert (first["free_ways"], second["free_ways"]) == (2, 4)
    assert {first["bandwidth_unit"], *(group["bandwidth"] for group in first["groups"])} == {None}


def test_ways_that_are_reserved_are_those_of_l3_alone() -> None:
    seen = replace(full(), policy=Policy(reserved_ways=CapacityBitmask(0x401)))
    assert caches.caches(seen)[0]["reserved"] == "401"
    assert caches.l2_caches(seen)[0]["reserved"] == "0"
