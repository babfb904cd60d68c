# SPDX-License-Identifier: Apache-2.0
"""A machine's caches fit any number of CPUs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.hardware.topology import regular


def test_cpus_are_numbered_socket_by_socket() -> None:
    machine = regular(sockets=2, cores=2, threads=2, l3_size=1, l2_size=1, l3_ways=4, l2_ways=4)
    assert [cache.cpus for cache in machine.l3] == [{0, 1, 2, 3}, {4, 5, 6, 7}]
    assert [cache.cpus for cache in machine.l2] == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
    assert machine.cpu_count == 8


@given(st.sampled_from(sorted(PROFILES)), st.sets(st.integers(0, 300), min_size=1))
def test_every_cpu_of_the_host_has_one_cache_of_each_level(name: str, cpus: set[int]) -> None:
    fitted = PROFILES[name].topology.fitted(cpus)
    assert len(fitted.l3) == len(PROFILES[name].topology.l3)
    assert fitted.cpus == cpus
    for level in (2, 3):
        caches = fitted.caches(level)
        assert sorted(cpu for cache in caches for cpu in cache.cpus) == sorted(cpus)
        assert [cache.id for cache in caches] == list(range(len(caches)))


@given(st.integers(1, 64))
def test_cpus_are_dealt_out_evenly(count: int) -> None:
    sizes = [len(cache.cpus) for cache in PROFILES["milan"].topology.fitted(range(count)).l3]
    assert max(sizes) - min(sizes) <= 1
