# SPDX-License-Identifier: Apache-2.0
"""Hosts of every kind: what their agents tell Placement, which flavors Nova's scheduler lets pass there, and whether
the agent keeps exactly these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import nova.conf
import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from nova import objects
from nova.scheduler.client import report
from nova.scheduler.host_manager import HostState

from nova_plugin.scheduler.filters import CacheWaysFilter
from nova_plugin.scheduler.inventory import Inventory
from nova_plugin.scheduler.promises import Promises
from nova_plugin.scheduler.recent import Recent
from nova_plugin.scheduler.rooms import Rooms
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.openstack.placement.compute_node import ComputeNode
from tests.openstack.servers.placement import ADMIN_TOKEN, Placement
from tests.unit.nova_plugin.clouds import request
from tools.lab.agent import Agent
from vmqos import extra_specs
from vmqos.extra_specs import resources
from vmqos.extra_specs.resources import (
    CMT,
    L2_CAT,
    L3_CAT,
    L3_CDP,
    LLC_CLASSES,
    LLC_WAYS,
    MBA,
    MBA_MBPS,
    MBA_PERCENT,
    MBM,
    SHARED_ROOM,
)

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of host.

    :ivar machine: the simulator's profile and mount options.
    :ivar ways: what its agent tells of CUSTOM_LLC_WAYS: all but the floor's two, which the devices fill too.
    :ivar classes: the same of CUSTOM_LLC_CLASSES: the fewest CLOSIDs of all resources, less the default group's.
    :ivar traits: what it is able to do.
    """

    machine: tuple[str, str]
    ways: int
    classes: int
    traits: frozenset[str]

    @property
    def name(self) -> str:
        return "-".join(filter(None, self.machine))


COUNTS = frozenset({CMT, MBM, SHARED_ROOM})
PERCENT, MBPS = frozenset({MBA, MBA_PERCENT}), frozenset({MBA, MBA_MBPS})

KINDS = [
    Kind(("cascade-lake", ""), 9, 5, COUNTS | PERCENT | {L3_CAT}),
    Kind(("cascade-lake", "mba_MBps"), 9, 5, COUNTS | MBPS | {L3_CAT}),
    Kind(("broadwell", ""), 18, 13, COUNTS | {L3_CAT}),
    # CDP halves the CLOSIDs of its cache: of 16, those of L3 here, and of 8, those of L2 on Sapphire Rapids.
    Kind(("broadwell", "cdp"), 18, 5, COUNTS | {L3_CAT, L3_CDP}),
    Kind(("sapphire-rapids", ""), 13, 5, COUNTS | PERCENT | {L3_CAT, L2_CAT}),
    Kind(("sapphire-rapids", "cdpl2"), 13, 2, COUNTS | PERCENT | {L3_CAT, L2_CAT}),
    Kind(("milan", ""), 14, 13, COUNTS | MBPS | {L3_CAT}),
    # Devices may fill any way, so none is anybody's own.
    Kind(("mpam", ""), 0, 29, COUNTS | PERCENT | {L3_CAT}),
    Kind(("minimal", ""), 6, 2, COUNTS | {L3_CAT}),
]

TWO, SHARED = {"hw:cache_ways": "2"}, {"hw:cache_ways": "2", "hw:cache_policy": "shared"}
L2_WAYS = {"hw:cpu_policy": "dedicated", "hw:l2_cache_ways": "4"}
CODE_AND_DATA = {"hw:cache_code_ways": "1", "hw:cache_data_ways": "2"}
HALF, MEGABYTES = {"hw:mem_bandwidth_percent": "50"}, {"hw:mem_bandwidth_mbps": "4000"}

FLAVORS = [
    TWO,
    {**TWO, "hw:cache_vcpus": "0"},
    SHARED,
    CODE_AND_DATA,
    L2_WAYS,
    {**L2_WAYS, **TWO},
    HALF,
    {**HALF, **SHARED},
    MEGABYTES,
    {**MEGABYTES, **TWO},
]


@pytest.fixture(scope="module")
def nova_conf() -> Iterator[Any]:
    """Nova's configuration, as far as the filter needs any."""
    conf = nova.conf.CONF
    conf([], project="nova", default_config_files=[])
    conf.set_override("inventory_lifetime", 0, group="vmqos")
    objects.register_all()
    yield conf
    conf.reset()


@pytest.fixture
def scheduled(nova_conf: Any, placement: Placement) -> Any:
    """Whether the filter lets a flavor pass on a host that has no server."""
    session = Session(Token(placement.endpoint, ADMIN_TOKEN))
    client = report.SchedulerReportClient(Adapter(session, "placement", raise_exc=False))
    ours = CacheWaysFilter(Rooms(Inventory(lambda: client), Promises(lambda *_: {}), Recent(lambda: client)))

    def passes(node: ComputeNode, specs: Mapping[str, str]) -> bool:
        host = HostState("compute", node.hostname, "cell")
        host.uuid = node.uuid
        host.allocation_candidates = node.candidates(**resources.asked(specs))
        return bool(ours.host_passes(host, request(specs)))

    return passes


@pytest.mark.parametrize(
    ("simulator", "kind"), [(kind.machine, kind) for kind in KINDS], indirect=["simulator"], ids=[k.name for k in KINDS]
)
def test_a_flavor_passes_on_a_host_if_and_only_if_its_agent_keeps_the_promise(
    placement: Placement,
    node: ComputeNode,
    make_agent: MakeAgent,
    make_vm: MakeVm,
    wait_for: WaitFor,
    scheduled: Any,
    kind: Kind,
) -> None:
    agent = make_agent({"placement": {**placement.credentials, "hypervisor_hostname": node.hostname}})
    agent.start()
    empty = {LLC_WAYS: kind.ways, LLC_CLASSES: kind.classes}
    wait_for(lambda: node.child is not None and set(node.of_child("traits")) == kind.traits, f"{kind.traits}")
    assert node.totals() == empty
    counted = [scheduled(node, specs) for specs in FLAVORS]
    # The classes of shared promises are not listed here, so that Placement can't be asked for them.
    alone = [taken(specs) if taken(specs).keys() <= set(resources.CLASSES) else {} for specs in FLAVORS]
    asking = [{**specs, **resources.as_extra_specs(own)} for specs, own in zip(FLAVORS, alone, strict=True)]
    assert [scheduled(node, specs) for specs in asking] == counted
    for specs, passes in zip(FLAVORS, counted, strict=True):
        vm = make_vm(specs, **({"cpuset": "0"} if "hw:cpu_policy" in specs else {}))
        where = f"/v1/vms/{vm.uuid}"
        wait_for(partial(is_settled, agent, where, passes), f"{specs} being {'kept' if passes else 'refused'}")
        vm.domain.destroy()
        wait_for(lambda: agent.get("/v1/vms")["vms"] == [], "the VM being gone")
    wait_for(lambda: node.totals() == empty, "the classes being given back")


def is_settled(agent: Agent, where: str, kept: bool) -> bool:
    """Whether the agent keeps the promise; or does not, for a reason that is the host's."""
    told = agent.get(where)
    if kept:
        return bool(told["state"] == "kept")
    return any(words in told["reason"] for words in LACKING) and told["state"] in ("degraded", "pending")


LACKING = (
    "can't be partitioned",
    "to be mounted with cdp",
    "hw:mem_bandwidth_",
    "can't be throttled",
    "no ways to give",
)
"""Of the reasons that are the host's."""


def taken(specs: Mapping[str, str]) -> dict[str, int]:
    return resources.requested(extra_specs.parse_strict(specs))
