# SPDX-License-Identifier: Apache-2.0
"""What flavors demand of a host."""

from __future__ import annotations

import pytest

from nova_plugin.scheduler import demand
from nova_plugin.scheduler.demand import NOTHING, Amount, Demand
from vmqos.openstack.extra_specs import InvalidExtraSpecs
from vmqos.openstack.extra_specs.resources import L3_CAT, L3_CDP, MBA

WAYS = {"hw:cache_ways": "2"}
ASKED = {"resources:CUSTOM_LLC_WAYS": "2", "resources:CUSTOM_LLC_CLASSES": "1"}

DEMANDS: list[tuple[dict[str, str], Demand | None]] = [
    ({}, None),
    ({"hw:cpu_policy": "dedicated"}, None),
    (ASKED, None),
    (WAYS, Demand(Amount(2, 1), frozenset({L3_CAT}), placement=False)),
    ({**WAYS, **ASKED}, Demand(Amount(2, 1), frozenset({L3_CAT}), placement=True)),
    ({**WAYS, **ASKED, "resources:CUSTOM_LLC_WAYS": "3"}, Demand(Amount(2, 1), frozenset({L3_CAT}), placement=True)),
    ({**WAYS, **ASKED, "resources:CUSTOM_LLC_WAYS": "1"}, Demand(Amount(2, 1), frozenset({L3_CAT}), placement=False)),
    ({**WAYS, "resources:CUSTOM_LLC_WAYS": "2"}, Demand(Amount(2, 1), frozenset({L3_CAT}), placement=False)),
    ({**WAYS, "hw:cache_policy": "shared"}, Demand(NOTHING, frozenset({L3_CAT}), placement=False)),
    (
        {"hw:cache_code_ways": "1", "hw:cache_data_ways": "2"},
        Demand(Amount(3, 1), frozenset({L3_CDP}), placement=False),
    ),
    ({**WAYS, "hw:mem_bandwidth_percent": "20"}, Demand(Amount(2, 1), frozenset({L3_CAT, MBA}), placement=False)),
    ({"hw:mem_bandwidth_mbps": "900"}, Demand(NOTHING, frozenset({MBA}), placement=False)),
    ({"hw:l2_cache_ways": "2"}, Demand(NOTHING, frozenset(), placement=False)),
]


@pytest.mark.parametrize(("specs", "wanted"), DEMANDS)
def test_a_flavor_demands_what_it_promises(specs: dict[str, str], wanted: Demand | None) -> None:
    assert demand.of_flavor(specs) == wanted
    assert demand.taken_by(specs) == (NOTHING if wanted is None else wanted.amount)


def test_a_promise_that_can_not_be_understood_is_an_error_and_takes_nothing_of_the_host_that_has_such_a_server() -> (
    None
):
    wrong = {**WAYS, "hw:cache_polcy": "shared"}
    with pytest.raises(InvalidExtraSpecs, match="did you mean hw:cache_policy"):
        demand.of_flavor(wrong)
    assert demand.taken_by(wrong) == NOTHING
