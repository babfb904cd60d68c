# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from vmqos.bench import exceptions, place
from vmqos.resctrl.topology import Cache

SMT = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7"}
"""Four cores of two threads."""


@pytest.fixture
def sysfs(tmp_path: Path) -> str:
    for siblings in SMT.values():
        for cpu in siblings.split(","):
            directory = tmp_path / f"cpu{cpu}" / "topology"
            directory.mkdir(parents=True)
            (directory / "thread_siblings_list").write_text(f"{siblings}\n")
    return str(tmp_path)


def caches(cpus: Mapping[int, set[int]]) -> dict[int, Cache]:
    return {number: Cache(number, frozenset(found), 1 << 24) for number, found in cpus.items()}


ONE = {0: set(range(8))}
TWO = {0: {0, 1, 4, 5}, 1: {2, 3, 6, 7}}


def test_victim_and_neighbours_are_on_cores_of_their_own(sysfs: str) -> None:
    found = place.choose(caches(ONE), 0, range(8), None, 2, sysfs_cpu=sysfs)
    assert (found.victim, found.neighbors) == ({3}, {1, 2})
    assert found.is_real


def test_neighbours_are_no_more_than_there_are_cores(sysfs: str) -> None:
    assert place.choose(caches(ONE), 0, range(8), None, 99, sysfs_cpu=sysfs).neighbors == {0, 1, 2}


def test_the_first_cache_that_has_two_cores_is_taken_or_the_one_that_is_named(sysfs: str) -> None:
    assert place.choose(caches(TWO), 0, range(8), None, 1, sysfs_cpu=sysfs).cache == 0
    assert place.choose(caches(TWO), 0, range(8), 1, 1, sysfs_cpu=sysfs).cache == 1
    assert place.choose(caches(TWO), 0, {0, 2, 3, 4}, None, 1, sysfs_cpu=sysfs).cache == 1


@pytest.mark.parametrize("usable", [set(), {0}, {0, 4}, {0, 2}])
def test_two_threads_of_a_core_or_of_two_caches_are_not_enough(sysfs: str, usable: set[int]) -> None:
    with pytest.raises(exceptions.TooFewCores, match="two cores that share an L3 cache"):
        place.choose(caches(TWO), 0, usable, None, 1, sysfs_cpu=sysfs)


def test_a_host_that_tells_of_no_cache_is_refused(sysfs: str) -> None:
    with pytest.raises(exceptions.TooFewCores, match="tells of no L3 cache"):
        place.choose({}, 0, range(8), None, 1, simulated=True, sysfs_cpu=sysfs)


def test_where_the_caches_are_simulated_any_two_cores_do(sysfs: str) -> None:
    found = place.choose(caches({0: {0, 4}, 1: {1, 5}}), 0, range(8), 1, 1, simulated=True, sysfs_cpu=sysfs)
    assert (found.cache, found.victim, found.neighbors, found.is_real) == (1, {3}, {2}, False)


def test_an_unknown_cache_is_refused_with_those_there_are(sysfs: str) -> None:
    with pytest.raises(exceptions.NoSuchCache, match="id 7; there are: 0, 1"):
        place.choose(caches(TWO), 0, range(8), 7, 1, sysfs_cpu=sysfs)


def test_a_vm_keeps_its_place_and_the_other_party_keeps_off_its_cores(sysfs: str) -> None:
    victim = place.choose(caches(TWO), 0, range(8), None, 3, victim={2, 6}, sysfs_cpu=sysfs)
    assert (victim.cache, victim.victim, victim.neighbors) == (1, {2, 6}, {3})
    neighbor = place.choose(caches(TWO), 0, range(8), None, 3, neighbors={5}, sysfs_cpu=sysfs)
    assert (neighbor.cache, neighbor.victim, neighbor.neighbors) == (0, {0}, {5})
    with pytest.raises(exceptions.TooFewCores):
        place.choose(caches(TWO), 0, range(8), None, 1, victim={0, 1}, sysfs_cpu=sysfs)


def test_a_cpu_of_which_nothing_is_known_is_a_core(tmp_path: Path) -> None:
    assert place.cores({3, 1}, str(tmp_path)) == [{1}, {3}]
