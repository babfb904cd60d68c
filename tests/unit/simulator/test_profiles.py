# SPDX-License-Identifier: Apache-2.0
"""Every profile is a machine that could exist."""

from __future__ import annotations

import pytest

from tests.unit.simulator.table import Bench
from vmqos.simulator.profiles import PROFILES


def test_the_promised_profiles_are_there() -> None:
    assert list(PROFILES) == ["cascade-lake", "broadwell", "sapphire-rapids", "milan", "minimal"]


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_makes_sense(name: str) -> None:
    profile = PROFILES[name]
    assert profile.name == name and profile.description
    for cache in (profile.l3, profile.l2):
        if cache:
            assert not cache.shareable_bits >> cache.ways
            assert cache.min_cbm_bits <= cache.ways <= 32
            assert all(one.size >= cache.ways for one in profile.topology.caches(cache.level))
    assert 0 < profile.threshold <= profile.threshold_limit


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_can_be_mounted_and_used(name: str) -> None:
    bench = Bench(name)
    bench.mkdir("g")
    bench.write("g/schemata", "L3:0=3\n")
    assert bench.status == "ok\n"
    assert bench.read("g/size")
