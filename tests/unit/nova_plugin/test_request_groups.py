# SPDX-License-Identifier: Apache-2.0
"""What ``vmqos flavor check`` says that Placement can't give, judged by Placement itself, asked by Nova's own code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from nova.scheduler import utils
from nova.scheduler.client.report import SchedulerReportClient

from tests.unit.nova_plugin.clouds import Placement, request
from vmqos import extra_specs
from vmqos.cli.flavor import request_groups
from vmqos.extra_specs import resources

Finds = Callable[[Mapping[str, str]], bool]

WAYS, CLASSES = f":{resources.LLC_WAYS}", f":{resources.LLC_CLASSES}"
ASKED = {f"resources{WAYS}": "2", f"resources{CLASSES}": "1"}
APART = {f"resources1{WAYS}": "2", f"resources2{CLASSES}": "1"}
L3_CAT, L3_CDP = f":{resources.L3_CAT}", f":{resources.L3_CDP}"

WORKS: list[dict[str, str]] = [
    {},
    {"resources:VCPU": "1", "trait:OWNER_NOVA": "required"},
    {f"resources{CLASSES}": "1", f"trait{L3_CAT}": "forbidden"},
    ASKED,
    {f"resources1{WAYS}": "2", f"resources1{CLASSES}": "1"},
    {f"resources_LLC{WAYS}": "2", f"resources_LLC{CLASSES}": "1", f"trait_LLC{L3_CAT}": "required"},
    {**ASKED, f"trait{L3_CAT}": "required"},
    {**ASKED, f"trait{L3_CDP}": "forbidden"},
    {**APART, "group_policy": "none"},
    {f"resources{WAYS}": "2", f"resources1{CLASSES}": "1", "group_policy": "isolate"},
    {**APART, f"resources2{CLASSES}": "0"},
    {**ASKED, "resources1:VCPU": "1"},
    {"resources1:VCPU": "1", "resources2:MEMORY_MB": "64", "group_policy": "none"},
]

NEVER: list[tuple[dict[str, str], str]] = [
    (APART, "need group_policy=none"),
    ({**APART, "group_policy": "both"}, "need group_policy=none, not 'both'"),
    ({**APART, "group_policy": "isolate"}, "set it to none"),
    ({f"resources1{WAYS}": "2", "resources1:VCPU": "1"}, "has no VCPU"),
    ({f"resources1{WAYS}": "2", "resources1:VCPU": "1", "resources1:MEMORY_MB": "64"}, "has no VCPU and no MEMORY_MB"),
    ({f"trait{L3_CAT}": "required"}, "no host passes"),
    ({f"resources1{WAYS}": "2", f"trait{L3_CAT}": "required"}, "no host passes"),
    ({"resources1:VCPU": "1", f"trait1{L3_CAT}": "required"}, "no host passes"),
    ({**ASKED, f"trait1{L3_CAT}": "required"}, "a numbered request group that takes nothing"),
    ({**ASKED, f"trait1{L3_CDP}": "forbidden"}, "a numbered request group that takes nothing"),
    ({**ASKED, f"trait{L3_CAT}": "forbidden"}, "needs that trait"),
    (
        {f"resources{CLASSES}": "1", f"resources1{WAYS}": "2", f"trait{L3_CAT}": "forbidden"},
        "needs that trait",
    ),
    ({"resources:CUSTOM_LLC_WAY": "2"}, "did you mean CUSTOM_LLC_WAYS?"),
    ({"resources1:CUSTOM_LLC_CLASS": "1"}, "did you mean CUSTOM_LLC_CLASSES?"),
    ({"resources:CUSTOM_LLC_WAYS ": "2"}, "did you mean CUSTOM_LLC_WAYS?"),
    ({**ASKED, "trait:CUSTOM_VMQOS_L3CAT": "required"}, "did you mean CUSTOM_VMQOS_L3_CAT?"),
    ({**ASKED, "trait:CUSTOM_VMQOS_ANYTHING": "required"}, "those of vmqos are CUSTOM_VMQOS_"),
]

# What Placement is not asked at all, or in vain: servers land as if it did not stand there.
IN_VAIN: list[tuple[dict[str, str], str]] = [
    ({f"trait{L3_CAT}": "forbidden"}, "it keeps no server away from any host"),
    ({"resources1:VCPU": "1", f"trait1{L3_CAT}": "forbidden"}, "it keeps no server away from any host"),
    ({**ASKED, f"trait{L3_CAT}": "Required"}, "'required' or 'forbidden' is allowed"),
    ({**ASKED, f"resources{WAYS}": "two"}, "a number is allowed, in plain decimal digits"),
    ({**ASKED, f"resources{WAYS}": " 2"}, "a number is allowed, in plain decimal digits"),
    ({**ASKED, f"resources{WAYS}": "-2"}, "a number is allowed, in plain decimal digits"),
    ({"resources:llc_ways": "2"}, "did you mean CUSTOM_LLC_WAYS?"),
    ({"resources:custom_llc_ways": "2"}, "did you mean CUSTOM_LLC_WAYS?"),
]


@pytest.fixture(scope="module")
def finds(placement_url: str, client: SchedulerReportClient) -> Iterator[Finds]:
    """Whether Nova gets any candidate for a flavor, of three hosts with room; one has no L3 CAT, one has everything."""
    with Placement.of(placement_url) as placement:
        placement.compute_node(ways=8, classes=8)
        placement.compute_node(ways=8, classes=8, traits=resources.TRAITS)
        placement.compute_node(ways=0, classes=8, traits=(resources.L2_CAT,))

        def found(specs: Mapping[str, str]) -> bool:
            asked = utils.ResourceRequest.from_request_spec(request(specs))
            candidates, *_ = client.get_allocation_candidates(request(specs)._context, asked)
            return bool(candidates)

        yield found


def problems(specs: Mapping[str, str]) -> list[str]:
    return request_groups.problems(specs, extra_specs.parse(specs).request)


@pytest.mark.parametrize("specs", WORKS)
def test_what_placement_gives_is_no_problem(finds: Finds, specs: dict[str, str]) -> None:
    assert finds(specs)
    assert problems(specs) == []


@pytest.mark.parametrize(("specs", "told"), NEVER)
def test_what_no_host_gives_is_a_problem(finds: Finds, specs: dict[str, str], told: str) -> None:
    assert not finds(specs)
    (problem,) = problems(specs)
    assert told in problem


@pytest.mark.parametrize(("specs", "told"), IN_VAIN)
def test_what_is_asked_in_vain_is_a_problem(finds: Finds, specs: dict[str, str], told: str) -> None:
    assert finds(specs)
    (problem,) = problems(specs)
    assert told in problem


GROUPS = st.sampled_from(["", "1", "_LLC"])
CLASS_NAMES = st.sampled_from([resources.LLC_WAYS, resources.LLC_CLASSES, "VCPU"])
TRAIT_NAMES = st.sampled_from([resources.L3_CAT, resources.L3_CDP])
RESOURCES = st.dictionaries(
    st.builds("resources{}:{}".format, GROUPS, CLASS_NAMES), st.sampled_from(["0", "1"]), max_size=4
)
TRAITS = st.dictionaries(
    st.builds("trait{}:{}".format, GROUPS, TRAIT_NAMES), st.sampled_from(["required", "forbidden"]), max_size=2
)
POLICY = st.sampled_from([{}, {"group_policy": "none"}, {"group_policy": "isolate"}, {"group_policy": "any"}])


@settings(
    deadline=None,
    max_examples=150,
    # These take the place of those that all unit tests suppress (tests/unit/conftest.py).
    suppress_health_check=[
        HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
)  # fmt: skip
@given(asked=RESOURCES, traits=TRAITS, policy=POLICY)
def test_the_check_and_placement_agree(
    finds: Finds, asked: dict[str, str], traits: dict[str, str], policy: dict[str, str]
) -> None:
    specs = {**asked, **traits, **policy}
    # vCPUs of two providers are no matter of the cache.
    assume(policy != {"group_policy": "isolate"} or not {"resources1:VCPU", "resources_LLC:VCPU"} <= asked.keys())
    never = [problem for problem in problems(specs) if "keeps no server away" not in problem]
    if any(map(resources.asking, ({key: value} for key, value in specs.items() if value != "0"))) or traits:
        assert bool(never) is not finds(specs), never
    else:
        assert never == []
