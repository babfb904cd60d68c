# SPDX-License-Identifier: Apache-2.0
"""What promises take, in Placement's words."""

from __future__ import annotations

import re

import pytest

from vmqos.openstack import extra_specs
from vmqos.openstack.extra_specs import CacheRequest, resources
from vmqos.openstack.extra_specs.resources import LLC_CLASSES, LLC_WAYS

TAKEN: list[tuple[dict[str, str], dict[str, int]]] = [
    ({}, {}),
    ({"hw:cache_ways": "3"}, {LLC_WAYS: 3, LLC_CLASSES: 1}),
    ({"hw:cache_ways": "3", "hw:cache_policy": "exclusive"}, {LLC_WAYS: 3, LLC_CLASSES: 1}),
    ({"hw:cache_ways": "3", "hw:cache_policy": "shared"}, {}),
    ({"hw:cache_ways": "3", "hw:cache_vcpus": "0"}, {LLC_WAYS: 3, LLC_CLASSES: 1}),
    ({"hw:cache_code_ways": "1", "hw:cache_data_ways": "4"}, {LLC_WAYS: 5, LLC_CLASSES: 1}),
    ({"hw:cache_code_ways": "1", "hw:cache_data_ways": "4", "hw:cache_policy": "shared"}, {}),
    ({"hw:l2_cache_ways": "2"}, {LLC_CLASSES: 1}),
    ({"hw:mem_bandwidth_percent": "20"}, {}),
    ({"hw:mem_bandwidth_mbps": "900"}, {LLC_CLASSES: 1}),
    ({"hw:cache_ways": "1", "hw:mem_bandwidth_mbps": "900"}, {LLC_WAYS: 1, LLC_CLASSES: 1}),
    ({"hw:cache_ways": "1", "hw:mem_bandwidth_mbps": "900", "hw:cache_policy": "shared"}, {}),
    ({"hw:l2_cache_ways": "2", "hw:mem_bandwidth_percent": "20"}, {LLC_CLASSES: 1}),
    ({"hw:l2_cache_ways": "2", "hw:cache_ways": "3"}, {LLC_WAYS: 3, LLC_CLASSES: 1}),
    ({"hw:l2_cache_ways": "2", "hw:cache_ways": "3", "hw:cache_policy": "shared"}, {}),
]

ASKED: list[tuple[dict[str, str], dict[str, int]]] = [
    ({}, {}),
    ({"resources:VCPU": "2", "hw:cache_ways": "2"}, {}),
    ({"resources:CUSTOM_LLC_WAYS": "2", "resources:CUSTOM_LLC_CLASSES": "1"}, {LLC_WAYS: 2, LLC_CLASSES: 1}),
    ({"resources1:CUSTOM_LLC_WAYS": "2", "resources_B:CUSTOM_LLC_WAYS": "3"}, {LLC_WAYS: 5}),
    ({"resources:CUSTOM_LLC_WAYS": "0"}, {}),
    ({"resources:CUSTOM_LLC_WAYS": "many"}, {}),
    ({"resources:CUSTOM_LLC_WAYS_2": "2", "xresources:CUSTOM_LLC_WAYS": "2"}, {}),
]


@pytest.mark.parametrize(("specs", "taken"), TAKEN)
def test_a_promise_takes_what_is_exclusively_its_own(specs: dict[str, str], taken: dict[str, int]) -> None:
    request = extra_specs.parse_strict(specs)
    assert resources.requested(request) == taken
    assert resources.asked(resources.as_extra_specs(taken)) == taken


@pytest.mark.parametrize(
    ("specs", "traits"),
    [
        ({}, set()),
        ({"hw:cache_ways": "1", "hw:cache_policy": "shared"}, {resources.L3_CAT}),
        ({"hw:cache_code_ways": "1", "hw:cache_data_ways": "4"}, {resources.L3_CDP}),
        ({"hw:cache_ways": "1", "hw:mem_bandwidth_percent": "20"}, {resources.L3_CAT, resources.MBA_PERCENT}),
        ({"hw:mem_bandwidth_percent": "20"}, {resources.MBA_PERCENT}),
        ({"hw:mem_bandwidth_mbps": "900"}, {resources.MBA_MBPS}),
        ({"hw:l2_cache_ways": "2"}, {resources.L2_CAT}),
        ({"hw:l2_cache_ways": "2", "hw:cache_vcpus": "0"}, {resources.L2_CAT}),
        ({"hw:l2_cache_ways": "2", "hw:cache_ways": "1"}, {resources.L3_CAT, resources.L2_CAT}),
    ],
)
def test_a_promise_needs_a_host_that_can_do_it(specs: dict[str, str], traits: set[str]) -> None:
    assert resources.required_traits(extra_specs.parse_strict(specs) or CacheRequest()) == traits


@pytest.mark.parametrize(("specs", "asked"), ASKED)
def test_what_a_flavor_asks_placement_for_is_added_up(specs: dict[str, str], asked: dict[str, int]) -> None:
    assert resources.asked(specs) == asked


def test_a_provider_is_named_after_its_compute_node() -> None:
    assert resources.provider_name("node-1.example") == "node-1.example_LLC"
    assert resources.hostname_of("node-1.example_LLC") == "node-1.example"
    assert resources.hostname_of("node_LLC_LLC") == "node_LLC"
    assert resources.hostname_of("node-1.example") is None
    assert resources.hostname_of("_LLC") is None


@pytest.mark.parametrize("name", [*resources.CLASSES, *resources.TRAITS])
def test_every_name_is_one_that_placement_takes(name: str) -> None:
    assert re.fullmatch(r"CUSTOM_[A-Z0-9_]{1,248}", name)
