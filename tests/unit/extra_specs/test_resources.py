# SPDX-License-Identifier: Apache-2.0
"""What promises take, in Placement's words."""

from __future__ import annotations

import re

import pytest

from vmqos import extra_specs
from vmqos.extra_specs import CacheRequest, resources
from vmqos.extra_specs.resources import LLC_CLASSES, LLC_WAYS
from vmqos.group_names import class_request

TAKEN: list[tuple[dict[str, str], dict[str, int]]] = [
    ({}, {}),
    ({"hw:cache_ways": "3"}, {LLC_WAYS: 3, LLC_CLASSES: 1}),
    ({"hw:cache_ways": "3", "hw:cache_policy": "exclusive"}, {LLC_WAYS: 3, LLC_CLASSES: 1}),
    ({"hw:cache_ways": "3", "hw:cache_policy": "shared"}, {"CUSTOM_LLC_SHARED_WAYS3": 1}),
    ({"hw:cache_ways": "3", "hw:cache_policy": "shared", "hw:cache_vcpus": "0"}, {"CUSTOM_LLC_SHARED_WAYS3": 1}),
    ({"hw:cache_ways": "3", "hw:cache_vcpus": "0"}, {LLC_WAYS: 3, LLC_CLASSES: 1}),
    ({"hw:cache_code_ways": "1", "hw:cache_data_ways": "4"}, {LLC_WAYS: 5, LLC_CLASSES: 1}),
    (
        {"hw:cache_code_ways": "1", "hw:cache_data_ways": "4", "hw:cache_policy": "shared"},
        {"CUSTOM_LLC_SHARED_CODE1_DATA4": 1},
    ),
    ({"hw:l2_cache_ways": "2"}, {LLC_CLASSES: 1}),
    ({"hw:mem_bandwidth_percent": "20"}, {"CUSTOM_LLC_SHARED_MB20": 1}),
    ({"hw:mem_bandwidth_mbps": "900"}, {LLC_CLASSES: 1}),
    ({"hw:cache_ways": "1", "hw:mem_bandwidth_mbps": "900"}, {LLC_WAYS: 1, LLC_CLASSES: 1}),
    (
        {"hw:cache_ways": "1", "hw:mem_bandwidth_mbps": "900", "hw:cache_policy": "shared"},
        {"CUSTOM_LLC_SHARED_WAYS1_MBPS900": 1},
    ),
    ({"hw:l2_cache_ways": "2", "hw:mem_bandwidth_percent": "20"}, {LLC_CLASSES: 1}),
    ({"hw:l2_cache_ways": "2", "hw:cache_ways": "3"}, {LLC_WAYS: 3, LLC_CLASSES: 1}),
    (
        {"hw:l2_cache_ways": "2", "hw:cache_ways": "3", "hw:cache_policy": "shared"},
        {"CUSTOM_LLC_SHARED_WAYS3_L2WAYS2": 1},
    ),
]

ASKED: list[tuple[dict[str, str], dict[str, int]]] = [
    ({}, {}),
    ({"resources:VCPU": "2", "hw:cache_ways": "2"}, {}),
    ({"resources:CUSTOM_LLC_WAYS": "2", "resources:CUSTOM_LLC_CLASSES": "1"}, {LLC_WAYS: 2, LLC_CLASSES: 1}),
    ({"resources1:CUSTOM_LLC_WAYS": "2", "resources_B:CUSTOM_LLC_WAYS": "3"}, {LLC_WAYS: 5}),
    ({"resources:CUSTOM_LLC_SHARED_WAYS4": "1", "resources:CUSTOM_LLC": "1"}, {"CUSTOM_LLC_SHARED_WAYS4": 1}),
    ({"resources:CUSTOM_LLC_WAYS": "0"}, {}),
    ({"resources:CUSTOM_LLC_WAYS": "many"}, {}),
    ({"resources:CUSTOM_LLC_WAYS_2": "2", "xresources:CUSTOM_LLC_WAYS": "2"}, {}),
]


@pytest.mark.parametrize(("specs", "taken"), TAKEN)
def test_a_promise_asks_for_what_is_its_own_or_for_its_class(specs: dict[str, str], taken: dict[str, int]) -> None:
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


def test_an_amount_that_is_longer_than_nova_takes_asks_for_nothing() -> None:
    assert resources.asked({"resources:CUSTOM_LLC_WAYS": "9" * 5000}) == {}


@pytest.mark.parametrize("name", ["ways4", "code1-data3", "ways4-mb50", "ways4-l2ways2-mbps900", "mb50"])
def test_a_shared_class_is_named_by_what_it_grants(name: str) -> None:
    granted = resources.class_of(name)
    assert resources.class_name(granted) == name
    assert resources.shared_class(granted) == granted
    # The control group of that class has the same name.
    assert class_request(f"vmqos.shared-{name}") is not None


def test_the_parts_of_a_class_s_name_may_stand_in_any_order() -> None:
    assert resources.class_of("mb50-ways4") == resources.class_of("ways4-mb50")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "its parts are waysNUMBER"),
        ("ways", "its parts are"),
        ("ways0", "its parts are"),
        ("ways" + "9" * 5000, "its parts are"),
        ("Ways4", "its parts are"),
        ("ways4-ways5", "each once"),
        ("ways4_mb50", "joined by '-'"),
        ("code1", "allowed only together with hw:cache_data_ways"),
        ("mb101", "an integer from 1 to 100 is allowed"),
        ("mb50-mbps900", "allowed only instead of"),
        ("mbps900", "a VM with that promise has a control group of its own"),
        ("l2ways2", "a VM with that promise has a control group of its own"),
    ],
)
def test_what_names_no_shared_class_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        resources.class_of(name)


def test_required_traits_are_those_of_vmqos_in_the_group_without_a_number() -> None:
    specs = {**resources.as_required({resources.L3_CAT}), "trait:HW_CPU_X86_AVX": "required"}
    more = {f"trait:{resources.MBA}": "forbidden", f"trait1:{resources.L3_CDP}": "required"}
    assert specs[f"trait:{resources.L3_CAT}"] == "required"
    assert resources.required({**specs, **more}) == {resources.L3_CAT}


def test_a_provider_is_named_after_its_compute_node() -> None:
    assert resources.provider_name("node-1.example") == "node-1.example_LLC"


@pytest.mark.parametrize("name", [*resources.CLASSES, *resources.TRAITS])
def test_every_name_is_one_that_placement_takes(name: str) -> None:
    assert re.fullmatch(r"CUSTOM_[A-Z0-9_]{1,248}", name)
