# SPDX-License-Identifier: Apache-2.0
"""CPUs are switched off and on again: what the kernel makes of a cache's masks, and what the client says meanwhile."""

from __future__ import annotations

import os

import pytest

from tests.kernel.limits import patiently, processor
from vmqos.resctrl import exceptions, groups, info, topology
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem

pytestmark = pytest.mark.guest(machines=("cascade-lake", "milan"))

Caches = dict[int, frozenset[int]]
EXCLUSIVE, SHARED = CapacityBitmask(0b11), CapacityBitmask(0b1100)


@pytest.fixture
def masks(fs: Filesystem, caches: Caches) -> dict[str, CapacityBitmask]:
    """A group in the kernel's mode exclusive, another group, and the default group with the rest; the same everywhere.

    The result is each group's mask.
    """
    every = every_way(fs)
    wanted = {"": every - EXCLUSIVE - SHARED, "exclusive": EXCLUSIVE, "other": SHARED}
    patiently.create(fs, "exclusive", "other")
    for name, mask in wanted.items():
        groups.write_values(fs, name, "L3", dict.fromkeys(caches, mask))
    groups.set_mode(fs, "exclusive", "exclusive")
    return wanted


def every_way(fs: Filesystem) -> CapacityBitmask:
    l3 = info.read_capabilities(fs).l3
    assert l3 is not None
    return l3.cbm_mask


def masks_now(fs: Filesystem) -> dict[str, dict[int, CapacityBitmask]]:
    return {group.name: group.masks("L3") for group in groups.list_control_groups(fs)}


def on(caches: Caches, masks: dict[str, CapacityBitmask]) -> dict[str, dict[int, CapacityBitmask]]:
    return {name: dict.fromkeys(caches, mask) for name, mask in masks.items()}


def test_a_cache_that_keeps_a_cpu_keeps_its_masks(
    fs: Filesystem, masks: dict[str, CapacityBitmask], caches: Caches, last_cache: int
) -> None:
    most = sorted(caches[last_cache])[1:]
    with processor.offline(most):
        assert masks_now(fs) == on(caches, masks)
        assert topology.l3_of_cpus()[last_cache] == caches[last_cache] - set(most)
    assert masks_now(fs) == on(caches, masks)
    assert topology.l3_of_cpus() == caches


def test_a_cache_without_a_cpu_is_gone_from_everywhere(
    fs: Filesystem, masks: dict[str, CapacityBitmask], caches: Caches, last_cache: int
) -> None:
    others = {cache: cpus for cache, cpus in caches.items() if cache != last_cache}
    with processor.offline(caches[last_cache]):
        assert masks_now(fs) == on(others, masks)
        assert info.read_capabilities(fs).caches["L3"].cache_ids == tuple(others)
        assert topology.l3_of_cpus() == others
        assert f"mon_L3_{last_cache:02}" not in os.listdir(fs.path("other", "mon_data"))
        with pytest.raises(exceptions.CacheOffline, match="No such cache is online"):
            groups.write_values(fs, "other", "L3", {last_cache: SHARED})


def test_a_cache_that_comes_back_is_open_to_all_and_a_guarded_group_locks_every_write(
    fs: Filesystem, masks: dict[str, CapacityBitmask], caches: Caches, last_cache: int
) -> None:
    with processor.offline(caches[last_cache]):
        patiently.create(fs, "newcomer")
    every = every_way(fs)
    assert {name: now[last_cache] for name, now in masks_now(fs).items()} == dict.fromkeys([*masks, "newcomer"], every)
    assert fs.read("exclusive", "mode").strip() == "exclusive", "although the kernel itself has made it overlap"
    for name, mask in masks.items():
        with pytest.raises(exceptions.MasksOverlap):
            groups.write_values(fs, name, "L3", {last_cache: mask})
    groups.set_mode(fs, "exclusive", "shareable")
    for name, mask in masks.items():
        groups.write_values(fs, name, "L3", {last_cache: mask})
    groups.remove(fs, "newcomer")
    groups.set_mode(fs, "exclusive", "exclusive")
    assert masks_now(fs) == on(caches, masks)
