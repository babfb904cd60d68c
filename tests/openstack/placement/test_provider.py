# SPDX-License-Identifier: Apache-2.0
"""The child provider, made and changed in a real Placement."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from oslo_config import cfg

from tests.openstack.placement.compute_node import ComputeNode
from tests.openstack.servers.mariadb import MariaDb
from tests.openstack.servers.placement import Placement as Server
from tools.lab.workspace import Workspace
from vmqos.extra_specs.resources import (
    CMT,
    L3_CAT,
    LLC_CLASSES,
    LLC_SHARED,
    LLC_WAYS,
    MBA,
    TRAITS,
    provider_name,
)
from vmqos.gateway.openstack.capacity import NOTHING, Capacity
from vmqos.gateway.openstack.placement import Api
from vmqos.openstack import exceptions
from vmqos.openstack.placement import Inventory, Placement
from vmqos.openstack.provider_sync import Synced, Wanted, synchronize
from vmqos.openstack.service import Service


class Counted(Service):
    """A way to Placement that notes what is asked, and may have something done before."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf, "placement", "placement")
        self.asked: list[str] = []
        self.before: Callable[[str], object] = lambda question: None

    def ask(self, method: str, path: str, *arguments: Any, **options: Any) -> Any:
        question = f"{method} {path.rsplit('/', 1)[-1]}"
        self.asked.append(question)
        self.before(question)
        return super().ask(method, path, *arguments, **options)

    @property
    def writes(self) -> list[str]:
        return [question for question in self.asked if not question.startswith("GET")]


@pytest.fixture
def counted(placement: Server, configure: Callable[..., cfg.ConfigOpts]) -> Counted:
    return Counted(configure(placement=placement.credentials))


def wanted(node: ComputeNode, ways: int = 9, classes: int = 15) -> Wanted:
    return Wanted(
        compute_node=node.hostname,
        name=provider_name(node.hostname),
        inventories={LLC_WAYS: Inventory(total=ways, max_unit=ways), LLC_CLASSES: Inventory(total=classes)},
        traits=frozenset({L3_CAT, MBA}),
        known_traits=frozenset(TRAITS),
    )


def test_it_is_made_once_below_the_compute_node_and_then_left_alone(node: ComputeNode, counted: Counted) -> None:
    done = synchronize(Placement(counted), wanted(node))
    assert done.changed
    assert node.child is not None and node.child["parent_provider_uuid"] == node.uuid
    assert node.of_child("inventories") == {
        LLC_WAYS: {"total": 9, "reserved": 0, "min_unit": 1, "max_unit": 9, "step_size": 1, "allocation_ratio": 1.0},
        LLC_CLASSES: {
            "total": 15,
            "reserved": 0,
            "min_unit": 1,
            "max_unit": 1,
            "step_size": 1,
            "allocation_ratio": 1.0,
        },
    }
    assert set(node.of_child("traits")) == {L3_CAT, MBA}
    generation = node.child["generation"]
    counted.asked.clear()
    again = synchronize(Placement(counted), wanted(node), done)
    assert not again.changed
    assert len(counted.asked) == 1, "as long as nobody touches it, one question is enough"
    fresh = synchronize(Placement(counted), wanted(node))
    assert not fresh.changed and not counted.writes, "an agent that starts anew finds what it needs"
    assert node.child["generation"] == generation


def test_the_scheduler_gets_what_there_is_and_no_more(node: ComputeNode, service: Service) -> None:
    synchronize(Placement(service), wanted(node))
    first = node.boot(**{LLC_WAYS: 6, LLC_CLASSES: 1})
    with pytest.raises(LookupError):
        node.boot(**{LLC_WAYS: 4, LLC_CLASSES: 1})
    node.boot(**{LLC_WAYS: 3, LLC_CLASSES: 1})
    assert node.of_child("usages") == {LLC_WAYS: 9, LLC_CLASSES: 2}
    node.boot()
    node.delete(first)
    node.boot(**{LLC_WAYS: 4, LLC_CLASSES: 1})


def test_only_what_changed_is_written(node: ComputeNode, counted: Counted) -> None:
    done = synchronize(Placement(counted), wanted(node))
    counted.asked.clear()
    done = synchronize(Placement(counted), wanted(node, ways=8), done)
    assert done.changed and counted.writes == ["PUT inventories"]
    assert node.totals() == {LLC_WAYS: 8, LLC_CLASSES: 15}
    counted.asked.clear()
    done = synchronize(Placement(counted), replace(wanted(node, ways=8), traits=frozenset({L3_CAT, CMT})), done)
    assert counted.writes == [f"PUT {CMT}", "PUT traits"]
    assert set(node.of_child("traits")) == {L3_CAT, CMT}


def test_what_others_gave_it_is_left_to_it(placement: Server, node: ComputeNode, service: Service) -> None:
    synchronize(Placement(service), wanted(node))
    assert node.child is not None
    where = f"/resource_providers/{node.child['uuid']}"
    for path in ("/traits/CUSTOM_GOLD", "/resource_classes/CUSTOM_SPARE"):
        placement.ask("PUT", path)
    traits = [*node.of_child("traits"), "CUSTOM_GOLD"]
    body = {"resource_provider_generation": node.child["generation"], "traits": traits}
    placement.ask("PUT", f"{where}/traits", body)
    spare = {"resource_class": "CUSTOM_SPARE", "total": 3}
    placement.ask("POST", f"{where}/inventories", spare)
    synchronize(Placement(service), replace(wanted(node, ways=5), traits=frozenset({CMT})))
    assert set(node.of_child("traits")) == {CMT, "CUSTOM_GOLD"}
    assert node.totals() == {LLC_WAYS: 5, LLC_CLASSES: 15, "CUSTOM_SPARE": 3}


def test_of_a_class_that_is_listed_no_more_nothing_is_given_and_what_servers_hold_stays(
    node: ComputeNode, service: Service
) -> None:
    cap, half = "CUSTOM_LLC_SHARED_WAYS4", "CUSTOM_LLC_SHARED_MB50"
    before = replace(wanted(node), withdrawn_prefix=LLC_SHARED)
    with_classes = replace(before, inventories={**before.inventories, cap: Inventory(1000), half: Inventory(1000)})
    done = synchronize(Placement(service), with_classes)
    node.boot(**{cap: 1})
    done = synchronize(Placement(service), before, done)
    assert done.changed and node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15, cap: 0, half: 0}
    for name in (cap, half):
        with pytest.raises(LookupError):
            node.boot(**{name: 1})
    assert node.of_child("usages")[cap] == 1
    assert not synchronize(Placement(service), before).changed
    synchronize(Placement(service), with_classes)
    node.boot(**{cap: 1})


def test_what_others_took_from_it_comes_back(placement: Server, node: ComputeNode, service: Service) -> None:
    done = synchronize(Placement(service), wanted(node))
    assert node.child is not None
    placement.ask("DELETE", f"/resource_providers/{node.child['uuid']}/inventories")
    done = synchronize(Placement(service), wanted(node), done)
    assert done.changed and node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}
    placement.ask("DELETE", f"/resource_providers/{node.child['uuid']}")
    done = synchronize(Placement(service), wanted(node), done)
    assert done.changed and node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}


def test_allocations_between_look_and_change_cost_another_look(node: ComputeNode, counted: Counted) -> None:
    done = synchronize(Placement(counted), wanted(node))
    interruptions = iter(range(3))

    def boot_before(question: str) -> None:
        if question == "PUT inventories" and next(interruptions, None) is not None:
            node.boot(**{LLC_WAYS: 1, LLC_CLASSES: 1})

    counted.before = boot_before
    assert synchronize(Placement(counted), wanted(node, ways=7), done).changed
    assert counted.writes.count("PUT inventories") == 5
    assert node.totals()[LLC_WAYS] == 7
    assert node.of_child("usages")[LLC_WAYS] == 3


def test_one_that_never_gets_its_turn_gives_up_with_the_reason(node: ComputeNode, counted: Counted) -> None:
    synchronize(Placement(counted), wanted(node, classes=64))
    counted.before = lambda question: node.boot(**{LLC_CLASSES: 1}) if question == "PUT inventories" else None
    with pytest.raises(exceptions.StillConflicting, match="changed by others 6 times"):
        synchronize(Placement(counted), wanted(node, ways=7))


def test_two_that_make_it_at_once_make_one(placement: Server, node: ComputeNode, service: Service) -> None:
    rival = Placement(service)

    def make_first(question: str) -> None:
        if question == "POST resource_providers":
            rival.create(provider_name(node.hostname), node.uuid)

    mine = Counted(service._conf)
    mine.before = make_first
    assert synchronize(Placement(mine), wanted(node)).changed
    assert node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}


def test_many_agents_at_once_make_the_classes_and_traits_that_nobody_made_yet(
    workspace: Workspace, configure: Callable[..., cfg.ConfigOpts]
) -> None:
    database = MariaDb(workspace)
    server = Server(workspace, database=database.create("placement"), threads=4)
    try:
        conf = configure(placement=server.credentials)
        nodes = [ComputeNode(server, f"node-{number}") for number in range(8)]

        def tell(node: ComputeNode) -> Synced:
            return synchronize(Placement(Service(conf, "placement", "placement")), wanted(node))

        with ThreadPoolExecutor(len(nodes)) as pool:
            assert all(done.changed for done in pool.map(tell, nodes))
        assert all(node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15} for node in nodes)
    finally:
        server.stop()
        database.stop()


def test_less_than_is_allocated_is_taken_and_told(
    node: ComputeNode, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    done = synchronize(Placement(service), wanted(node))
    vm = node.boot(**{LLC_WAYS: 6, LLC_CLASSES: 1})
    with caplog.at_level(logging.WARNING, "vmqos"):
        done = synchronize(Placement(service), wanted(node, ways=4), done)
        assert (done.changed, done.overdrawn) == (True, {LLC_WAYS: 2})
        node.boot(VCPU=1)
        done = synchronize(Placement(service), wanted(node, ways=4), done)
    assert [record.message for record in caplog.records if LLC_WAYS in record.message and "by 2" in record.message]
    assert len(caplog.records) == 1, "once is enough"
    assert node.totals()[LLC_WAYS] == 4
    with pytest.raises(LookupError):
        node.boot(**{LLC_WAYS: 1})
    node.delete(vm)
    assert synchronize(Placement(service), wanted(node, ways=4), done).overdrawn == {}
    node.boot(**{LLC_WAYS: 1})


def test_an_inventory_in_use_can_come_to_nothing(node: ComputeNode, service: Service) -> None:
    done = synchronize(Placement(service), wanted(node))
    node.boot(**{LLC_WAYS: 2, LLC_CLASSES: 1})
    nothing = {name: Inventory(total=1, reserved=1) for name in (LLC_WAYS, LLC_CLASSES)}
    assert synchronize(Placement(service), replace(wanted(node), inventories=nothing), done).changed
    assert node.totals() == {LLC_WAYS: 0, LLC_CLASSES: 0}
    with pytest.raises(LookupError):
        node.boot(**{LLC_WAYS: 1})


def test_a_compute_node_that_nova_has_not_made_yet_is_no_reason_to_make_anything(
    placement: Server, service: Service
) -> None:
    stranger = ComputeNode(placement, "gone")
    placement.ask("DELETE", f"/resource_providers/{stranger.uuid}")
    with pytest.raises(exceptions.NoComputeNode, match=r"no resource provider gone.*hypervisor_hostname"):
        synchronize(Placement(service), wanted(stranger))
    assert stranger.child is None


def test_it_follows_a_compute_node_that_was_made_anew(placement: Server, node: ComputeNode, service: Service) -> None:
    done = synchronize(Placement(service), wanted(node))
    before = node.child
    placement.ask("PUT", f"/resource_providers/{node.uuid}", {"name": f"{node.hostname}-old"})
    anew = ComputeNode(placement, node.hostname)
    # Nothing of the child itself has changed; a look that trusts nothing finds it in the wrong place.
    done = synchronize(Placement(service), wanted(anew))
    assert done.changed and before is not None and anew.child is not None
    assert (anew.child["uuid"], anew.child["parent_provider_uuid"]) == (before["uuid"], anew.uuid)


def test_nova_deletes_it_with_its_compute_node(placement: Server, node: ComputeNode, service: Service) -> None:
    """As ``SchedulerReportClient.delete_resource_provider`` does: the tree from below, whatever is in it."""
    synchronize(Placement(service), wanted(node))
    tree = placement.ask("GET", f"/resource_providers?in_tree={node.uuid}")["resource_providers"]
    assert [provider["name"] for provider in tree if provider["uuid"] != node.uuid] == [provider_name(node.hostname)]
    for provider in sorted(tree, key=lambda provider: provider["uuid"] == node.uuid):
        placement.ask("DELETE", f"/resource_providers/{provider['uuid']}")
    with pytest.raises(exceptions.NoComputeNode):
        synchronize(Placement(service), wanted(node))
    anew = ComputeNode(placement, node.hostname)
    assert synchronize(Placement(service), wanted(anew)).changed
    assert anew.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}


def test_from_a_host_that_lost_resctrl_servers_can_be_moved_away(
    placement: Server, node: ComputeNode, service: Service
) -> None:
    api = Api(service)
    api.tell(Capacity(ways=9, longest=9, classes=15, traits=frozenset({L3_CAT})), node.hostname)
    vm = node.boot(**{LLC_WAYS: 4, LLC_CLASSES: 1})
    assert api.tell(NOTHING, node.hostname)
    assert not api.tell(NOTHING, node.hostname)
    assert node.totals() == {LLC_WAYS: 0, LLC_CLASSES: 0} and not node.of_child("traits")
    # Nova begins to move a server by having the migration hold what the server holds.
    found = placement.ask("GET", f"/allocations/{vm}")
    held = {uuid: {"resources": value["resources"]} for uuid, value in found["allocations"].items()}
    who = {"project_id": "p", "user_id": "u"}
    body = {
        vm: {
            "allocations": {},
            "consumer_generation": found["consumer_generation"],
            "consumer_type": "INSTANCE",
            **who,
        },
        str(uuid.uuid4()): {
            "allocations": held,
            "consumer_generation": None,
            "consumer_type": "MIGRATION",
            **who,
        },
    }
    placement.ask("POST", "/allocations", body)
    assert node.of_child("usages") == {LLC_WAYS: 4, LLC_CLASSES: 1}
    assert api.tell(Capacity(ways=9, longest=9, classes=15, traits=frozenset({L3_CAT})), node.hostname)
    assert node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}
