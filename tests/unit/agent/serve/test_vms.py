# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from vmqos.agent.act.move_tasks import TaskGroup, TaskPlacement
from vmqos.agent.act.outside_time import OutsideTime
from vmqos.agent.observe.cache_vcpus import CacheVcpus
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.remember.promise_time import PromiseTime
from vmqos.agent.serve import vms
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, Group, Layout, Policy, PromiseState, Request
from vmqos.daemon.backoff import Backoff
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.group_names import Owner
from vmqos.host.resctrl_state import ResctrlState
from vmqos.hypervisor.model import NovaMetadata, Process, VirtualMachine
from vmqos.reason import Code, Reason
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthResource, BandwidthUnit, CacheResource, Capabilities, Monitoring
from vmqos.resctrl.topology import CacheTopology

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
        resctrl=ResctrlState(
            (1, 1, 1), capabilities, Layout(groups), {"": "shareable", GROUP: "shareable"}, {"": (), GROUP: ()}
        ),
        topology=CacheTopology({0: frozenset({0, 1, 4}), 1: frozenset({2})}, {0: 11 << 20, 1: 11 << 20}),
        policy=Policy(),
        vms={
            UUID: VmRecord(
                ObservedVm(vm, frozenset({1})),
                FlavorRequest(wants=wants, asked=wants),
                tasks=TaskPlacement(TaskGroup(GROUP), frozenset({100, 101}), frozenset({100})),
                allocation=Allocation(PromiseState.KEPT, GROUP, {0: ways}, since=1000.0),
            )
        },
        requests=(Request(UUID, wants, frozenset({0}), 5),),
    )


def with_record(known: Snapshot, **changes: Any) -> Snapshot:
    """The snapshot with other values of its one VM."""
    return replace(known, vms={UUID: replace(known.vms[UUID], **changes)})


def told_vm(known: Snapshot) -> dict[str, Any]:
    return dict(vms.vm(known, known.vms[UUID]))


def test_a_vm_is_told_with_all_that_the_contract_names() -> None:
    backoff = Backoff(1.0, 10.0)
    backoff.fail(UUID, Reason(Code.REFUSED, "refused"))
    told = told_vm(with_record(snapshot(), failure=backoff.get(UUID)))
    assert 0 < told.pop("retry_in") <= 1.0
    assert told == {
        "uuid": UUID, "name": "instance-1", "instance_name": "gold", "flavor": "c4", "project": "p",
        "state": "kept", "reason": "", "reason_code": "", "policy": "exclusive", "ways_requested": 4,
        "masks": {"0": "f"},
        "code_masks": {}, "data_masks": {}, "l2_masks": {}, "l2_ways_requested": None,
        "code_ways_requested": None, "data_ways_requested": None,
        "bandwidth": {}, "bandwidth_requested": None, "bandwidth_requested_unit": None, "bandwidth_unit": None,
        "vcpus": None, "vcpus_requested": None, "rest_monitoring_group": None,
        "group": GROUP, "monitoring_group": None, "unmonitored_reason": "", "tasks": 2, "tasks_in_place": 1,
        "pid": 100, "caches": [0], "outside_at_start": None, "outside_later": None,
        "since": 1000.0, "state_changes": None, "promised_seconds": None, "kept_seconds": None, "last_error": "refused",
    }  # fmt: skip


def test_of_all_vms_only_what_a_pass_changed_is_told_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = snapshot(), "22222222-2222-4222-8222-222222222222"
    observed = first.vms[UUID].observed
    earlier = replace(observed.vm, uuid=other, process=Process(90, 3))
    spent = PromiseTime(PromiseState.KEPT, time.monotonic() - 60, changes=3, promised=40.0, kept=20.0)
    first = replace(with_record(first, time=spent), vms={**with_record(first, time=spent).vms})
    first.vms[other] = VmRecord(replace(observed, vm=earlier))  # type: ignore[index]
    made: list[str] = []
    same = vms._same

    def noted(known: Snapshot, record: VmRecord) -> dict[str, Any]:
        made.append(record.uuid)
        return same(known, record)

    monkeypatch.setattr(vms, "_same", noted)
    all_vms = vms.Vms()
    told = all_vms.told(first)
    assert [one["uuid"] for one in told] == [other, UUID], "the one that was started first comes first"
    assert [*told[1]] == [*vms.vm(first, first.vms[UUID])]
    made.clear()
    later = all_vms.told(first)[1]
    assert later["promised_seconds"] > told[1]["promised_seconds"] and not made  # type: ignore[operator]
    renamed = replace(first.vms[other], unmonitored="no RMID is left")
    second = replace(first, vms={**first.vms, other: renamed})
    assert [one["unmonitored_reason"] for one in all_vms.told(second)] == ["no RMID is left", ""]
    assert made == [other]
    gone = replace(second, vms={UUID: second.vms[UUID]})
    assert [one["uuid"] for one in all_vms.told(gone)] == [UUID] and made == [other]
    all_vms.told(replace(gone, resctrl=None))
    assert made == [other, UUID], "what is told of masks and limits may follow from what resctrl has"
    assert all_vms.told(replace(gone, vms={})) == []


@pytest.mark.parametrize(("at_start", "told"), [(400_000, 0.0004), (0, 0.0), (None, None)])
def test_the_time_outside_of_its_group_is_told_as_far_as_it_is_known(at_start: int | None, told: float | None) -> None:
    found = told_vm(with_record(snapshot(), outside=OutsideTime(Process(100, 1), at_start, later=2_000_000)))
    assert (found["outside_at_start"], found["outside_later"]) == (told, 0.002)


def test_how_long_a_promise_was_kept_is_told_up_to_now() -> None:
    now = time.monotonic()
    spent = PromiseTime(PromiseState.KEPT, now - 60, changes=3, promised=40.0, kept=20.0)
    told = told_vm(with_record(snapshot(), time=spent))
    assert told["state_changes"] == 3
    assert 100 <= told["promised_seconds"] < 110 and 80 <= told["kept_seconds"] < 90
    assert told["promised_seconds"] - told["kept_seconds"] == pytest.approx(20)


@pytest.mark.parametrize(
    ("unit", "value", "told"),
    [
        (BandwidthUnit.PERCENT, 50, ({"0": 50}, "%")),
        (BandwidthUnit.PERCENT, 100, ({}, "%")),
        (BandwidthUnit.MBPS, 1234, ({"0": 1234}, "MB/s")),
        (BandwidthUnit.EIGHTH_GBPS, 10, ({"0": 1250}, "MB/s")),
    ],
)
def test_a_limit_of_bandwidth_is_told_in_per_cent_or_in_mbps(
    unit: BandwidthUnit, value: int, told: tuple[dict[str, int], str]
) -> None:
    before = snapshot()
    assert before.resctrl is not None
    mb = BandwidthResource("MB", 8, 10, 10, True, (0, 1), unit)
    view = replace(before.resctrl, capabilities=replace(before.resctrl.capabilities, bandwidths={"MB": mb}))
    limited = replace(before.vms[UUID].allocation, throttles={0: value})
    found = told_vm(with_record(replace(before, resctrl=view), allocation=limited))
    assert (found["bandwidth"], found["bandwidth_unit"]) == told


FOR_SOME = FlavorRequest(asked=CacheRequest(ways=4, vcpus=frozenset({0, 1, 2, 5})))


def test_the_vcpus_that_a_flavor_names_are_told_while_it_is_not_known_which_of_them_there_are() -> None:
    # As of a VM whose groups are gone with resctrl, and of one that libvirt placed itself.
    told = told_vm(with_record(snapshot(), request=FOR_SOME))
    assert (told["vcpus_requested"], told["vcpus"]) == ("0-2,5", None)


def test_a_vm_some_of_whose_vcpus_have_the_ways_is_told_with_them() -> None:
    target, rest = TaskGroup(GROUP), TaskGroup("", GROUP)
    placed = TaskPlacement(target, frozenset({100, 101}), frozenset({100, 101}), frozenset(), frozenset({101}), rest)
    limit = CacheVcpus(frozenset({0, 1, 2, 5}), frozenset({0, 1}), (frozenset({2}), frozenset({2})))
    told = told_vm(with_record(snapshot(), tasks=placed, vcpus=limit, request=FOR_SOME))
    assert (told["vcpus_requested"], told["vcpus"]) == ("0-2,5", "0-1")
    assert (told["group"], told["rest_monitoring_group"]) == (GROUP, f"mon_groups/{GROUP}")
    assert told["caches"] == [1], "it pays where these vCPUs can run"
    assert [placed.control_of(tid) for tid in (100, 101)] == ["", GROUP]


def test_nothing_is_planned_while_resctrl_can_not_be_read() -> None:
    with pytest.raises(LookupError):
        vms.what_if(Snapshot(), CacheRequest(ways=2))


@pytest.mark.parametrize(
    ("wants", "told"),
    [
        (CacheRequest(code_ways=1, data_ways=3), (4, 1, 3, None, None)),
        (CacheRequest(bandwidth_percent=55), (None, None, None, 55, "%")),
        (CacheRequest(ways=2, bandwidth_mbps=4000), (2, None, None, 4000, "MB/s")),
    ],
)
def test_what_a_flavor_asks_for_is_told_in_its_own_unit(wants: CacheRequest, told: tuple[object, ...]) -> None:
    found = told_vm(with_record(snapshot(), request=FlavorRequest(wants=wants, asked=wants)))
    names = ("ways_requested", "code_ways_requested", "data_ways_requested")
    assert tuple(found[name] for name in (*names, "bandwidth_requested", "bandwidth_requested_unit")) == told


def test_a_group_that_follows_the_default_group_is_no_vm_that_moves() -> None:
    told = vms.what_if(snapshot(), CacheRequest(ways=2))
    assert told["verdict"]["state"] == "kept"
    assert told["moves"] == []
    assert any(GROUP in step for step in told["steps"]), "on cache 1 the VM's group makes room"


def test_a_vm_whose_class_makes_room_is_one_that_moves() -> None:
    before, wants = snapshot(), CacheRequest(ways=2, policy=CachePolicy.SHARED)
    capped = {cache: CapacityBitmask(0x180) for cache in (0, 1)}
    shared = "vmqos.shared-ways2"
    assert before.resctrl is not None
    everything = {cache: CapacityBitmask(0x7FF) for cache in (0, 1)}
    groups = (Group("", Owner.DEFAULT, everything), Group(shared, Owner.CLASS, capped))
    now = replace(
        with_record(before, allocation=Allocation(PromiseState.KEPT, shared, capped)),
        resctrl=replace(before.resctrl, layout=Layout(groups)),
        requests=(Request(UUID, wants, frozenset({0, 1}), 5),),
    )
    told = vms.what_if(now, CacheRequest(ways=9))
    assert f"give {shared} the L3 ways 0=600;1=600" in told["steps"]
    assert told["moves"] == [UUID]


def test_the_counts_name_every_state() -> None:
    assert vms.counts(snapshot()) == {"kept": 1, "pending": 0, "degraded": 0, "none": 0}
