# SPDX-License-Identifier: Apache-2.0
"""A flavor's promise and what it asks Placement for, in step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.cli.flavor import flavor_specs
from vmqos.cli.flavor.flavor_specs import Edit
from vmqos.extra_specs import InvalidExtraSpecs

CAT = {"trait:CUSTOM_VMQOS_L3_CAT": "required"}
UNTRAITED = {"resources:CUSTOM_LLC_WAYS": "2", "resources:CUSTOM_LLC_CLASSES": "1"}
ASKED = {**UNTRAITED, **CAT}
TWO = {"hw:cache_ways": "2"}
SHARED = {**TWO, "hw:cache_policy": "shared"}
CLASS = {"resources:CUSTOM_LLC_SHARED_WAYS2": "1"}

CHANGES: list[tuple[dict[str, str], dict[str, str], Edit]] = [
    ({}, TWO, Edit({**TWO, **ASKED})),
    ({"hw:cpu_policy": "shared"}, TWO, Edit({**TWO, **ASKED})),
    ({**TWO, **ASKED}, TWO, Edit({})),
    (TWO, TWO, Edit(ASKED)),
    ({**TWO, **ASKED}, {"hw:cache_ways": "3"}, Edit({"hw:cache_ways": "3", "resources:CUSTOM_LLC_WAYS": "3"})),
    ({**TWO, **ASKED}, {"hw:cache_policy": "shared"}, Edit({"hw:cache_policy": "shared", **CLASS}, tuple(UNTRAITED))),
    (SHARED, {"hw:cache_policy": "exclusive"}, Edit({"hw:cache_policy": "exclusive", **ASKED})),
    ({**TWO, **UNTRAITED}, TWO, Edit(CAT)),
    (
        {**SHARED, **CLASS, **CAT, "trait:CUSTOM_VMQOS_MBA_PERCENT": "required", "trait:CUSTOM_VMQOS_CMT": "required"},
        {"hw:cache_ways": "4"},
        Edit(
            {"hw:cache_ways": "4", "resources:CUSTOM_LLC_SHARED_WAYS4": "1"},
            ("resources:CUSTOM_LLC_SHARED_WAYS2", "trait:CUSTOM_VMQOS_MBA_PERCENT"),
        ),
    ),
    (
        {},
        {"hw:mem_bandwidth_percent": "50"},
        Edit(
            {
                "hw:mem_bandwidth_percent": "50",
                "resources:CUSTOM_LLC_SHARED_MB50": "1",
                "trait:CUSTOM_VMQOS_MBA_PERCENT": "required",
            }
        ),
    ),
    ({"resources1:CUSTOM_LLC_WAYS": "9"}, TWO, Edit({**TWO, **ASKED}, ("resources1:CUSTOM_LLC_WAYS",))),
    ({**TWO, **ASKED}, {"hw:cache_vcpus": "0"}, Edit({"hw:cache_vcpus": "0"})),
]

PROBLEMS: list[tuple[dict[str, str], bool, list[str]]] = [
    ({}, True, []),
    ({"hw:cpu_policy": "shared"}, True, []),
    ({**TWO, **ASKED}, True, []),
    ({**TWO, **UNTRAITED}, True, []),
    (SHARED, True, []),
    ({**SHARED, **CLASS, **CAT}, True, []),
    (
        {**SHARED, **CAT},
        False,
        [
            "trait:CUSTOM_VMQOS_L3_CAT=required: no host passes, because a trait counts only where the same request "
            "group takes something of the provider of cache; let 'vmqos flavor set' ask for it, with the promise "
            "repeated, or remove the trait"
        ],
    ),
    ({"hw:mem_bandwidth_percent": "10"}, True, []),
    (TWO, False, []),
    (TWO, True, ["asks Placement for nothing; the promise takes CUSTOM_LLC_WAYS=2, CUSTOM_LLC_CLASSES=1"]),
    (
        {**TWO, "resources:CUSTOM_LLC_WAYS": "2"},
        False,
        ["asks Placement for CUSTOM_LLC_WAYS=2; the promise takes CUSTOM_LLC_WAYS=2, CUSTOM_LLC_CLASSES=1"],
    ),
    (
        {**SHARED, **ASKED},
        False,
        ["asks Placement for CUSTOM_LLC_WAYS=2, CUSTOM_LLC_CLASSES=1; the promise takes CUSTOM_LLC_SHARED_WAYS2=1"],
    ),
    (
        ASKED,
        True,
        ["asks Placement for CUSTOM_LLC_WAYS=2, CUSTOM_LLC_CLASSES=1; the promise takes nothing: there is no promise"],
    ),
    ({**TWO, **ASKED, "hw:cache_vcpus": "1"}, True, []),
    (
        {**TWO, **ASKED, "hw:cache_vcpus": "1-2"},
        True,
        ["hw:cache_vcpus='1-2': the flavor has 2 vCPUs, so only numbers from 0 to 1 are allowed"],
    ),
    (
        {"hw:cache_policy": "shared"},
        True,
        [
            "hw:cache_policy='shared': allowed only together with hw:cache_ways, or with hw:cache_code_ways and "
            "hw:cache_data_ways"
        ],
    ),
    (
        {**TWO, "hw:cache_mode": "shared"},
        True,
        ["hw:cache_mode='shared': there is no such extra spec, did you mean hw:cache_policy?"],
    ),
    (
        {"hw_cache_ways": "2", **ASKED},
        True,
        ["hw_cache_ways='2': there is no such extra spec, did you mean hw:cache_ways?"],
    ),
    (
        {"hw:cache_ways": " 2"},
        True,
        ["hw:cache_ways=' 2': an integer from 1 up is allowed, in plain decimal digits"],
    ),
    (
        {"hw:cache_ways": "0", "resources:CUSTOM_LLC_WAYS": "two"},
        True,
        [
            "hw:cache_ways='0': an integer from 1 up is allowed, in plain decimal digits",
            "resources:CUSTOM_LLC_WAYS='two': a number is allowed, in plain decimal digits",
        ],
    ),
    (
        {"hw:mem_bandwidth_mbps": "9", "resources:CUSTOM_LLC_CLASSES": "1", "trait:CUSTOM_VMQOS_MBA": "forbidden"},
        True,
        [
            "trait:CUSTOM_VMQOS_MBA=forbidden: no host passes, because the promise, or what is asked "
            "for, needs that trait; remove it"
        ],
    ),
    ({"aggregate_instance_extra_specs:cache_ways": "true", "cache_ways": "true"}, True, []),
    ({"resources1:VCPU": "1", "resources2:MEMORY_MB": "64", "trait:CUSTOM_OTHER": "forbidden"}, True, []),
    (
        {"hw:cache_ways": "0", "hw:cache_polcy": "shared"},
        True,
        [
            "hw:cache_ways='0': an integer from 1 up is allowed, in plain decimal digits",
            "hw:cache_polcy='shared': there is no such extra spec, did you mean hw:cache_policy?",
        ],
    ),
]


@pytest.mark.parametrize(("specs", "wanted", "change"), CHANGES)
def test_a_change_sets_what_differs_and_drops_what_would_be_asked_in_vain(
    specs: dict[str, str], wanted: dict[str, str], change: Edit
) -> None:
    assert flavor_specs.change(specs, wanted, placement=True, vcpus=2) == change


def test_where_the_filter_counts_alone_nothing_is_asked_of_placement() -> None:
    assert flavor_specs.change({}, TWO, placement=False, vcpus=2) == Edit(TWO)
    assert flavor_specs.change({**TWO, **ASKED}, TWO, placement=False, vcpus=2) == Edit({}, tuple(ASKED))


def test_without_resources_no_trait_is_required_for_placement_would_find_no_host() -> None:
    found = flavor_specs.change({**SHARED, **CLASS, **CAT}, TWO, placement=False, vcpus=2)
    assert found == Edit({}, (*CLASS, *CAT))
    monitored = {"trait:CUSTOM_VMQOS_CMT": "required"}
    assert flavor_specs.change(monitored, TWO, placement=False, vcpus=2) == Edit(TWO, tuple(monitored))


@pytest.mark.parametrize(
    ("specs", "found"),
    [(TWO, None), (SHARED, "CUSTOM_LLC_SHARED_WAYS2"), ({**SHARED, **CLASS}, None), ({"hw:cache_ways": "x"}, None)],
)
def test_a_shared_promise_has_a_class_to_ask_for_until_it_does(specs: dict[str, str], found: str | None) -> None:
    assert flavor_specs.shared_to_ask_for(specs, {}) == found


def test_half_a_promise_is_none() -> None:
    with pytest.raises(InvalidExtraSpecs, match="allowed only together with hw:cache_data_ways"):
        flavor_specs.change({}, {"hw:cache_code_ways": "1"}, placement=True, vcpus=2)
    with pytest.raises(InvalidExtraSpecs, match="allowed only instead of hw:cache_ways"):
        flavor_specs.change(TWO, {"hw:cache_code_ways": "1", "hw:cache_data_ways": "1"}, placement=True, vcpus=2)


def test_vcpus_that_a_flavor_lacks_are_refused() -> None:
    with pytest.raises(InvalidExtraSpecs, match="the flavor has 2 vCPU"):
        flavor_specs.change(TWO, {"hw:cache_vcpus": "1-2"}, placement=True, vcpus=2)


def test_clearing_drops_the_promise_and_what_is_asked_for_it_alone() -> None:
    others = {"hw:cpu_policy": "shared", "resources:VCPU": "2", "trait:CUSTOM_LLC_WAYS": "required"}
    assert flavor_specs.clearing({**others, **SHARED, **ASKED}) == Edit({}, (*SHARED, *ASKED))
    assert flavor_specs.clearing(others) == Edit({})
    assert flavor_specs.shown({**others, **ASKED, **SHARED}) == {**SHARED, **ASKED}


@pytest.mark.parametrize(("specs", "placement", "found"), PROBLEMS)
def test_the_problems_of_a_flavor_are_told(specs: dict[str, str], placement: bool, found: list[str]) -> None:
    assert flavor_specs.problems(specs, placement=placement, vcpus=2) == found


L2 = {"hw:l2_cache_ways": "2", "resources:CUSTOM_LLC_CLASSES": "1"}
LAST_TWO = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0-1"}
PINNED: list[tuple[dict[str, str], bool]] = [
    ({}, False),
    ({"hw:cpu_policy": "dedicated"}, True),
    ({"hw:cpu_policy": "shared"}, False),
    ({"hw:cpu_policy": "Dedicated"}, False),
    ({"resources:PCPU": "4"}, True),
    ({"resources:PCPU": "0"}, False),
    ({"hw:cpu_policy": "shared", "resources:PCPU": "4"}, False),
    (LAST_TWO, False),
    ({**LAST_TWO, "hw:cache_vcpus": "2-3"}, True),
    ({**LAST_TWO, "hw:cache_vcpus": "1-3"}, False),
    ({**LAST_TWO, "hw:cpu_dedicated_mask": "2-3", "hw:cache_vcpus": "3"}, True),
    ({"hw:cpu_policy": "mixed", "hw:cpu_realtime_mask": "^0", "hw:cache_vcpus": "1-3"}, True),
    ({**LAST_TWO, "hw:cpu_dedicated_mask": "all", "hw:cache_vcpus": "2"}, False),
]


@pytest.mark.parametrize(("specs", "pinned"), PINNED)
def test_l2_ways_need_vcpus_that_the_flavor_pins(specs: dict[str, str], pinned: bool) -> None:
    found = flavor_specs.problems({**L2, **specs}, placement=True, vcpus=4)
    assert [problem for problem in found if "hw:cpu_policy=dedicated" not in problem] == []
    assert bool(found) is not pinned
    assert flavor_specs.problems(specs, placement=True, vcpus=4) == [] or "hw:cache_vcpus" in specs


@pytest.mark.parametrize(
    ("specs", "ways"),
    [
        ({}, 0),
        (TWO, 2),
        (SHARED, 0),
        ({"hw:cache_code_ways": "2", "hw:cache_data_ways": "4"}, 6),
        ({"hw:l2_cache_ways": "4"}, 0),
        ({"hw:cache_ways": "two"}, 0),
    ],
)
def test_the_ways_of_its_own_that_a_flavor_promises(specs: dict[str, str], ways: int) -> None:
    assert flavor_specs.exclusive_ways(specs) == ways


WANTED = st.sampled_from([TWO, SHARED, {"hw:cache_code_ways": "1", "hw:cache_data_ways": "2"}])
ALREADY = st.sampled_from([{}, ASKED, {"resources_X:CUSTOM_LLC_CLASSES": "2"}, {"resources:CUSTOM_LLC_WAYS": "x"}])


@given(wanted=WANTED, already=ALREADY, placement=st.booleans())
def test_a_flavor_that_was_set_has_no_problem_and_setting_it_again_changes_nothing(
    wanted: dict[str, str], already: dict[str, str], placement: bool
) -> None:
    change = flavor_specs.change(already, wanted, placement=placement, vcpus=2)
    after = {key: value for key, value in {**already, **change.put}.items() if key not in change.drop}
    assert flavor_specs.problems(after, placement=placement, vcpus=2) == []
    assert flavor_specs.change(after, wanted, placement=placement, vcpus=2) == Edit({})
