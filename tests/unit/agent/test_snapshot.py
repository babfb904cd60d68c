# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.agent.snapshot import CacheTopology

TOPOLOGY = CacheTopology(cpus={0: frozenset({0, 1, 2, 3})}, l2={4: frozenset({0, 1}), 7: frozenset({2, 3})})


@pytest.mark.parametrize(
    ("vcpus", "cores"),
    [
        ([{0}], {4}),
        ([{0}, {1}], {4}),
        ([{0, 1}, {3}], {4, 7}),
        ([{0}, {1, 2}], set()),
        ([{0}, {9}], set()),
        ([], set()),
    ],
)
def test_a_vm_is_pinned_if_each_vcpu_is_bound_to_one_core(vcpus: list[set[int]], cores: set[int]) -> None:
    assert TOPOLOGY.cores_of(map(frozenset, vcpus)) == cores
