# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.agent import report
from vmqos.agent.backoff import Backoff
from vmqos.agent.inventory import ObservedVm
from vmqos.agent.outcome import Outcome
from vmqos.agent.placement import Placed, Target
from vmqos.agent.snapshot import CacheTopology, Snapshot
from vmqos.agent.view import ResctrlView
from vmqos.agent.wish import Wish
from vmqos.allocation import Group, Layout, Owner, Policy, PromiseState, Request
from vmqos.hypervisor.model import NovaMetadata, Process, VirtualMachine
from vmqos.openstack.extra_specs import CacheRequest
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities, Monitoring

UUID = "11111111-1111-4111-8111-111111111111"
GROUP = f"vmqos.{UUID}"
L3 = CacheResource("L3", 16, CapacityBitmask(0x7FF), 1, CapacityBitmask(0x600), False, (0, 1))


def snapshot() -> Snapshot:
    ways = CapacityBitmask(0xF)
    rest = CapacityBitmask(0x7F0)
    groups = (
        Group("", Owner.DEFAULT, {0: rest, 1: CapacityBitmask(0x7FF)}),
        Group(GROUP, Owner.VM, {0: ways, 1: CapacityBitmask(0x7FF)}),
    )
    capabilities = Capabilities({"L3": L3}, {}, Monitoring(32, ("llc_occupancy",), 65536))
    vm = VirtualMachine(UUID, "instance-1", 7, Process(100, 5), None, False, NovaMetadata("gold", "c4", "p", {}))
    wants = CacheRequest(ways=4)
    return Snapshot(
        view=ResctrlView(
            (1, 1), capabilities, Layout(groups), {"": "shareable", GROUP: "shareable"}, {"": (), GROUP: ()}
        ),
        topology=CacheTopology({0: frozenset({0, 1, 4}), 1: frozenset({2})}, {0: 11 << 20, 1: 11 << 20}),
        policy=Policy(),
        vms={UUID: ObservedVm(vm, frozenset({1}))},
        wishes={UUID: Wish(request=wants, asked=wants)},
        outcomes={UUID: Outcome(PromiseState.KEPT, "", GROUP, {0: ways}, 1000.0)},
        placed={UUID: Placed(Target(GROUP), frozenset({100, 101}), frozenset({100}))},
        requests=(Request(UUID, wants, frozenset({0}), 5),),
    )


def test_a_vm_is_told_with_all_that_the_contract_names() -> None:
    backoff = Backoff(1.0, 10.0)
    backoff.fail(UUID, "refused")
    told = report.vm(snapshot(), backoff, UUID)
    assert 0 < told.pop("retry_in") <= 1.0
    assert told == {
        "uuid": UUID, "name": "instance-1", "instance_name": "gold", "flavor": "c4", "project": "p",
        "state": "kept", "reason": "", "policy": "exclusive", "ways_requested": 4, "masks": {"0": "f"},
        "group": GROUP, "monitoring_group": None, "unmonitored_reason": "", "tasks": 2, "tasks_in_place": 1,
        "pid": 100, "caches": [0], "since": 1000.0, "last_error": "refused",
    }  # fmt: skip


def test_a_vm_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        report.vm(snapshot(), Backoff(1.0, 10.0), "other")


def test_caches_are_told_with_every_group_and_the_room_that_is_left() -> None:
    first, second = report.caches(snapshot())
    assert (first["id"], first["ways"], first["way_bytes"], first["cpus"]) == (0, 11, 1 << 20, "0-1,4")
    assert first["shareable_bits"] == "600" and first["cbm_mask"] == "7ff"
    assert [(group["owner"], group["mask"], group["vm_name"]) for group in first["groups"]] == [
        ("default", "7f0", None),
        ("vm", "f", "gold"),
    ]
    assert (first["free_ways"], second["free_ways"]) == (5, 9)


def test_nothing_is_told_of_caches_while_resctrl_can_not_be_read() -> None:
    assert report.caches(Snapshot()) == []
    with pytest.raises(LookupError):
        report.what_if(Snapshot(), CacheRequest(ways=2))


def test_a_group_that_follows_the_default_group_is_no_vm_that_moves() -> None:
    told = report.what_if(snapshot(), CacheRequest(ways=2))
    assert told["verdict"]["state"] == "kept"
    assert told["moves"] == []
    assert any(GROUP in step for step in told["steps"]), "on cache 1 the VM's group makes room"


def test_the_counts_name_every_state() -> None:
    assert report.counts(snapshot()) == {"kept": 1, "pending": 0, "degraded": 0, "none": 0}


def test_capabilities_are_told_as_they_were_read() -> None:
    told = report.capabilities(snapshot().view.capabilities)  # type: ignore[union-attr]
    assert told["num_closids"] == 16 and told["caches"]["L3"]["cache_ids"] == [0, 1]
    assert told["monitoring"]["events"] == ["llc_occupancy"] and told["bandwidths"] == {}
    assert report.capabilities(Capabilities())["monitoring"] is None
