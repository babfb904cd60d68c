# SPDX-License-Identifier: Apache-2.0
"""What flavors demand of a host."""

from __future__ import annotations

import pytest

from nova_plugin.scheduler import demand
from nova_plugin.scheduler.demand import NONE_TAKEN, Demand, Taken
from vmqos.extra_specs import CachePolicy, CacheRequest, InvalidExtraSpecs, resources
from vmqos.extra_specs.resources import (
    L2_CAT,
    L3_CAT,
    L3_CDP,
    LLC_CLASSES,
    LLC_WAYS,
    MBA_MBPS,
    MBA_PERCENT,
)

WAYS = {"hw:cache_ways": "2"}
OWN = {LLC_WAYS: 2, LLC_CLASSES: 1}
ASKED = resources.as_extra_specs(OWN)
CAT = resources.as_required({L3_CAT})
SHARED = CachePolicy.SHARED
CAP = {**WAYS, "hw:cache_policy": "shared"}
CLASS = {"CUSTOM_LLC_SHARED_WAYS2": 1}
PERCENT = {"hw:mem_bandwidth_percent": "20"}


def demanded(
    request: CacheRequest, taken: dict[str, int], *traits: str, placement: bool = False, settled: bool = False
) -> tuple[Demand, bool]:
    return Demand(request, taken, frozenset(traits), placement), settled


DEMANDS: list[tuple[dict[str, str], tuple[Demand, bool] | None]] = [
    ({}, None),
    ({"hw:cpu_policy": "dedicated"}, None),
    (ASKED, None),
    (WAYS, demanded(CacheRequest(2), OWN)),
    ({**WAYS, **ASKED}, demanded(CacheRequest(2), OWN, placement=True, settled=True)),
    (
        {**WAYS, **ASKED, "resources:CUSTOM_LLC_WAYS": "3"},
        demanded(CacheRequest(2), OWN, placement=True, settled=True),
    ),
    ({**WAYS, **ASKED, "resources:CUSTOM_LLC_WAYS": "1"}, demanded(CacheRequest(2), OWN)),
    ({**WAYS, "resources:CUSTOM_LLC_WAYS": "2"}, demanded(CacheRequest(2), OWN)),
    (CAP, demanded(CacheRequest(2, SHARED), CLASS, L3_CAT)),
    # A trait that is required of nothing that is asked for is not looked at by Placement.
    ({**CAP, **CAT}, demanded(CacheRequest(2, SHARED), CLASS, L3_CAT)),
    (
        {**CAP, **resources.as_extra_specs(CLASS)},
        demanded(CacheRequest(2, SHARED), CLASS, L3_CAT, placement=True),
    ),
    (
        {**CAP, **CAT, **resources.as_extra_specs(CLASS)},
        demanded(CacheRequest(2, SHARED), CLASS, placement=True, settled=True),
    ),
    (
        {**CAP, "hw:mem_bandwidth_mbps": "900"},
        demanded(CacheRequest(2, SHARED, bandwidth_mbps=900), {"CUSTOM_LLC_SHARED_WAYS2_MBPS900": 1}, L3_CAT, MBA_MBPS),
    ),
    (
        {"hw:cache_code_ways": "1", "hw:cache_data_ways": "2"},
        demanded(CacheRequest(code_ways=1, data_ways=2), {LLC_WAYS: 3, LLC_CLASSES: 1}, L3_CDP),
    ),
    (
        {**WAYS, **PERCENT, **ASKED},
        demanded(CacheRequest(2, bandwidth_percent=20), OWN, MBA_PERCENT, placement=True),
    ),
    (
        {**WAYS, **PERCENT, **ASKED, **resources.as_required({MBA_PERCENT})},
        demanded(CacheRequest(2, bandwidth_percent=20), OWN, placement=True, settled=True),
    ),
    (PERCENT, demanded(CacheRequest(bandwidth_percent=20), {"CUSTOM_LLC_SHARED_MB20": 1}, MBA_PERCENT)),
    (
        {"hw:mem_bandwidth_mbps": "900"},
        demanded(CacheRequest(bandwidth_mbps=900), {LLC_CLASSES: 1}, MBA_MBPS),
    ),
    (
        {"hw:mem_bandwidth_mbps": "900", "resources:CUSTOM_LLC_CLASSES": "1"},
        demanded(CacheRequest(bandwidth_mbps=900), {LLC_CLASSES: 1}, MBA_MBPS, placement=True),
    ),
    ({"hw:l2_cache_ways": "2"}, demanded(CacheRequest(l2_ways=2), {LLC_CLASSES: 1}, L2_CAT)),
    (
        {"hw:l2_cache_ways": "2", "hw:cache_vcpus": "1", **PERCENT},
        demanded(
            CacheRequest(l2_ways=2, bandwidth_percent=20, vcpus=frozenset({1})), {LLC_CLASSES: 1}, L2_CAT, MBA_PERCENT
        ),
    ),
]


@pytest.mark.parametrize(("specs", "wanted"), DEMANDS)
def test_a_flavor_demands_what_it_promises_less_what_placement_was_asked_for(
    specs: dict[str, str], wanted: tuple[Demand, bool] | None
) -> None:
    found = demand.of_flavor(specs)
    assert (None if found is None else (found, found.settled)) == wanted
    assert demand.taken_by(specs) == (NONE_TAKEN if found is None else Taken(found.amount, found.shared_class))


@pytest.mark.parametrize(
    ("specs", "shared_class"),
    [
        (WAYS, None),
        ({"hw:l2_cache_ways": "2"}, None),
        ({"hw:mem_bandwidth_mbps": "900"}, None),
        ({"hw:l2_cache_ways": "2", "hw:mem_bandwidth_percent": "20"}, None),
        ({**WAYS, "hw:cache_policy": "shared"}, CacheRequest(2, SHARED)),
        ({**WAYS, "hw:cache_policy": "shared", "hw:cache_vcpus": "0"}, CacheRequest(2, SHARED)),
        ({"hw:mem_bandwidth_percent": "20"}, CacheRequest(bandwidth_percent=20)),
    ],
)
def test_servers_share_a_class_by_what_it_grants(specs: dict[str, str], shared_class: CacheRequest | None) -> None:
    wanted = demand.of_flavor(specs)
    assert wanted is not None
    assert wanted.shared_class == shared_class


def test_a_promise_that_can_not_be_understood_is_an_error_and_takes_nothing_of_the_host_that_has_such_a_server() -> (
    None
):
    wrong = {**WAYS, "hw:cache_polcy": "shared"}
    with pytest.raises(InvalidExtraSpecs, match="did you mean hw:cache_policy"):
        demand.of_flavor(wrong)
    assert demand.taken_by(wrong) == NONE_TAKEN
