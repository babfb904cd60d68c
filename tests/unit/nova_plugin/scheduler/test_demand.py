# SPDX-License-Identifier: Apache-2.0
"""What flavors demand of a host."""

from __future__ import annotations

import pytest

from nova_plugin.scheduler import demand
from nova_plugin.scheduler.demand import NONE_TAKEN, NOTHING, Amount, Demand, Taken
from vmqos.openstack.extra_specs import CachePolicy, CacheRequest, InvalidExtraSpecs
from vmqos.openstack.extra_specs.resources import L2_CAT, L3_CAT, L3_CDP, MBA_MBPS, MBA_PERCENT

WAYS = {"hw:cache_ways": "2"}
ASKED = {"resources:CUSTOM_LLC_WAYS": "2", "resources:CUSTOM_LLC_CLASSES": "1"}

CAT = frozenset({L3_CAT})
SHARED = CachePolicy.SHARED

DEMANDS: list[tuple[dict[str, str], Demand | None]] = [
    ({}, None),
    ({"hw:cpu_policy": "dedicated"}, None),
    (ASKED, None),
    (WAYS, Demand(CacheRequest(2), Amount(2, 1), CAT, placement=False)),
    ({**WAYS, **ASKED}, Demand(CacheRequest(2), Amount(2, 1), CAT, placement=True)),
    (
        {**WAYS, **ASKED, "resources:CUSTOM_LLC_WAYS": "3"},
        Demand(CacheRequest(2), Amount(2, 1), CAT, placement=True),
    ),
    (
        {**WAYS, **ASKED, "resources:CUSTOM_LLC_WAYS": "1"},
        Demand(CacheRequest(2), Amount(2, 1), CAT, placement=False),
    ),
    ({**WAYS, "resources:CUSTOM_LLC_WAYS": "2"}, Demand(CacheRequest(2), Amount(2, 1), CAT, placement=False)),
    ({**WAYS, "hw:cache_policy": "shared"}, Demand(CacheRequest(2, SHARED), NOTHING, CAT, placement=False)),
    (
        {**WAYS, "hw:cache_policy": "shared", "hw:mem_bandwidth_mbps": "900"},
        Demand(CacheRequest(2, SHARED, bandwidth_mbps=900), NOTHING, frozenset({L3_CAT, MBA_MBPS}), placement=False),
    ),
    (
        {"hw:cache_code_ways": "1", "hw:cache_data_ways": "2"},
        Demand(CacheRequest(code_ways=1, data_ways=2), Amount(3, 1), frozenset({L3_CDP}), placement=False),
    ),
    (
        {**WAYS, "hw:mem_bandwidth_percent": "20"},
        Demand(CacheRequest(2, bandwidth_percent=20), Amount(2, 1), frozenset({L3_CAT, MBA_PERCENT}), placement=False),
    ),
    (
        {"hw:mem_bandwidth_percent": "20"},
        Demand(CacheRequest(bandwidth_percent=20), NOTHING, frozenset({MBA_PERCENT}), placement=False),
    ),
    (
        {"hw:mem_bandwidth_mbps": "900"},
        Demand(CacheRequest(bandwidth_mbps=900), Amount(0, 1), frozenset({MBA_MBPS}), placement=False),
    ),
    (
        {"hw:mem_bandwidth_mbps": "900", "resources:CUSTOM_LLC_CLASSES": "1"},
        Demand(CacheRequest(bandwidth_mbps=900), Amount(0, 1), frozenset({MBA_MBPS}), placement=True),
    ),
    (
        {"hw:l2_cache_ways": "2"},
        Demand(CacheRequest(l2_ways=2), Amount(0, 1), frozenset({L2_CAT}), placement=False),
    ),
    (
        {"hw:l2_cache_ways": "2", "hw:cache_vcpus": "1", "hw:mem_bandwidth_percent": "20"},
        Demand(
            CacheRequest(l2_ways=2, bandwidth_percent=20, vcpus=frozenset({1})),
            Amount(0, 1),
            frozenset({L2_CAT, MBA_PERCENT}),
            placement=False,
        ),
    ),
]


@pytest.mark.parametrize(("specs", "wanted"), DEMANDS)
def test_a_flavor_demands_what_it_promises(specs: dict[str, str], wanted: Demand | None) -> None:
    assert demand.of_flavor(specs) == wanted
    assert demand.taken_by(specs) == (NONE_TAKEN if wanted is None else Taken(wanted.amount, wanted.shared_class))


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
