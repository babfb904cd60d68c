# SPDX-License-Identifier: Apache-2.0
"""Who may have something tried on which VM, over real connections: the kernel says who they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from tests.unit.agent.serve.test_vms import UUID, snapshot, with_record
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.observe.told_flavors import ToldFlavors
from vmqos.agent.serve.api import Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.agent.snapshot import Health, Snapshot
from vmqos.agent.trial import LONGEST, Trials
from vmqos.allocation import Allocation, Group, Layout, Policy, PromiseState, Request
from vmqos.daemon.unix_server import UnixServer
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.group_names import Owner, vm_group
from vmqos.hypervisor.model import NovaMetadata
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentRefused
from vmqos.reason import Code, Reason
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthResource, BandwidthUnit

LIMIT = "hw:mem_bandwidth_percent=20"


def with_bandwidth(found: Snapshot, unit: BandwidthUnit = BandwidthUnit.PERCENT, closids: int = 8) -> Snapshot:
    """A host that can limit memory bandwidth."""
    assert found.resctrl is not None
    known = found.resctrl.capabilities
    resource = BandwidthResource("MB", closids, 10, 10, True, (0, 1), unit)
    caches = {name: replace(cache, num_closids=closids) for name, cache in known.caches.items()}
    able = replace(known, bandwidths={"MB": resource}, caches=caches)
    return replace(found, resctrl=replace(found.resctrl, capabilities=able))


class Played:
    """What the API asks of an agent, and the API on a socket."""

    def __init__(self, folder: Path, host: Snapshot, triers: set[int], gateways: set[int] | None = None) -> None:
        self.trials = Trials(lambda: None)
        self.agent = SimpleNamespace(
            health=Health(looked=True),
            snapshot=host,
            trials=self.trials,
            flavors=ToldFlavors(False, lambda uuid: None),
            hostname="compute-1",
        )
        self.path = folder / "agent.sock"
        api = Api(self.agent, None, LiveReads(), gateways or frozenset(), triers=triers)  # type: ignore[arg-type]
        self.server = UnixServer(api, "[api] socket", str(self.path), mode="600")
        self.server.start()
        self.client = AgentClient(str(self.path))

    def send(self, method: str, path: str) -> httpx.Response:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.path)), base_url="http://vmqos-agent") as http:
            return http.request(method, path)


Play = Callable[..., Played]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    made: list[Played] = []

    def make(host: Snapshot, triers: set[int] | None = None, gateways: set[int] | None = None) -> Played:
        made.append(Played(tmp_path, host, {os.geteuid()} if triers is None else triers, gateways))
        return made[-1]

    yield make
    for played in made:
        played.server.stop()


def test_a_trial_is_begun_asked_for_again_and_given_back(play: Play) -> None:
    played = play(with_bandwidth(snapshot()))
    begun = played.client.begin_trial(UUID, "key", LIMIT)["trial"]
    assert begun is not None
    assert (begun["uuid"], begun["limit"], begun["unit"], begun["in_force"]) == (UUID, 20, "%", False)
    assert played.client.renew_trial(UUID, "key")["trial"] is not None
    running = played.trials.running
    assert running is not None and (running.percent, running.mbps) == (20, None)
    assert played.client.end_trial(UUID, "key")["trial"] is None
    with pytest.raises(AgentRefused, match="this trial is over: its client gave it back"):
        played.client.renew_trial(UUID, "key")


def test_another_user_is_refused_by_what_the_kernel_says_of_him(play: Play) -> None:
    played = play(with_bandwidth(snapshot()), {os.geteuid() + 1})
    for say in (
        lambda: played.client.begin_trial(UUID, "key", LIMIT),
        lambda: played.client.renew_trial(UUID, "key"),
        lambda: played.client.end_trial(UUID, "key"),
    ):
        with pytest.raises(AgentRefused, match=f"only root may .* user {os.geteuid()} is not root"):
            say()
    assert played.trials.running is None


def test_the_gateways_socket_takes_no_trial(play: Play) -> None:
    played = play(with_bandwidth(snapshot()), set(), {os.geteuid()})
    for method in ("PUT", "DELETE", "POST"):
        assert played.send(method, f"/v1/trials/{UUID}?key=k&{LIMIT}").status_code == 405
    assert played.send("GET", f"/v1/trials/{UUID}?key=k").status_code == 404
    assert played.trials.running is None


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        (f"{LIMIT}", 400, "key is to be this client's name"),
        (f"key={'k' * 65}&{LIMIT}", 400, "key is to be this client's name"),
        ("key=k&hw:mem_bandwidth_percent=0", 400, "an integer from 1 to 100 is allowed"),
        ("key=k&hw:mem_bandwidth_percent=1e1", 400, "an integer from 1 to 100 is allowed"),
        ("key=k&hw:mem_bandwidth_mbps=-1", 400, "an integer from 1 up is allowed"),
        (f"key=k&{LIMIT}&hw:mem_bandwidth_mbps=5", 400, "name one of these alone"),
        (f"key=k&{LIMIT}&hw:cache_ways=5", 400, "name one of these alone"),
        ("key=k&hw:cache_code_ways=1", 400, "hw:cache_code_ways alone can't be: name hw:cache_code_ways and hw:cache"),
        ("key=k&hw:cache_code_ways=1&hw:cache_data_ways=x", 400, "hw:cache_data_ways='x' can't be"),
        ("key=k&hw:cache_code_ways=1&hw:cache_data_ways=1&hw:cache_ways=2", 400, "name one of these alone"),
        ("key=k&hw:cache_code_ways=1&hw:cache_data_ways=1", 409, "no ways for code and for data apart"),
        ("key=k&hw:cache_ways=0", 400, "an integer from 1 up is allowed"),
        ("key=k&hw:cache_ways=", 400, "hw:cache_ways='' can't be: an integer from 1 up is allowed"),
        ("key=k&hw:cache_ways=5&may_fill_fewer=", 400, "may_fill_fewer='' can't be: true or false is allowed"),
        ("key=", 400, "key is to be this client's name"),
        ("key=k&hw:cache_ways=five", 400, "an integer from 1 up is allowed"),
        ("key=k&hw:cache_ways=5&may_fill_fewer=yes", 400, "may_fill_fewer='yes' can't be: true or false is allowed"),
        (f"key=k&{LIMIT}&may_fill_fewer=true", 400, "may_fill_fewer belongs to hw:cache_ways"),
        (f"key=k&{LIMIT}&confine=true", 400, "confine belongs to hw:cache_ways"),
        ("key=k&hw:cache_ways=2&confine=1", 400, "confine='1' can't be: true or false is allowed"),
        ("key=k&hw:cache_ways=2&confine=true", 409, "its flavor gives it ways of its own, and it fills no others"),
        ("key=k&hw:cache_ways=12", 409, "L3 cache 0 has 9 ways to give in one piece and 12 are asked for"),
        ("key=k&hw:mem_bandwidth_percent=100", 409, "no limit on this host"),
        ("key=k&hw:mem_bandwidth_percent=95", 409, "no limit on this host"),
        ("key=k&hw:mem_bandwidth_mbps=5000", 409, "limits memory bandwidth in per cent"),
        ("key=k", 409, "there is no such trial"),
        ("key=k&may_fill_fever=true", 400, "there is no parameter 'may_fill_fever' here, but key, hw:cache_ways, "),
    ],
)
def test_a_question_that_can_not_be_is_refused_with_what_is_allowed(
    query: str, status: int, text: str, play: Play
) -> None:
    played = play(with_bandwidth(snapshot()))
    answer = played.send("PUT", f"/v1/trials/{UUID}?{query}")
    assert answer.status_code == status and text in answer.json()["error"]
    assert played.trials.running is None


def test_another_method_and_a_vm_that_is_not_there_are_refused(play: Play) -> None:
    played = play(with_bandwidth(snapshot()))
    for method in ("POST", "GET", "PATCH"):
        assert played.send(method, f"/v1/trials/{UUID}?key=k").status_code == 405
    assert played.send("PUT", f"/v1/trials/other?key=k&{LIMIT}").status_code == 404
    assert played.send("PUT", "/v1/vms?key=k").status_code == 405


@pytest.mark.parametrize(
    ("unit", "asked", "limit", "told"),
    [
        (BandwidthUnit.PERCENT, "hw:mem_bandwidth_percent=15", (20, None), (20, "%")),
        (BandwidthUnit.MBPS, "hw:mem_bandwidth_mbps=1234", (None, 1234), (1234, "MB/s")),
        (BandwidthUnit.EIGHTH_GBPS, "hw:mem_bandwidth_mbps=1300", (None, 2500), (2500, "MB/s")),
    ],
)
def test_a_limit_is_rounded_up_to_what_the_hardware_can_do(
    unit: BandwidthUnit, asked: str, limit: tuple[int | None, int | None], told: tuple[int, str], play: Play
) -> None:
    played = play(with_bandwidth(snapshot(), unit))
    found = played.client.begin_trial(UUID, "key", asked)["trial"]
    assert found is not None and (found["limit"], found["unit"]) == told
    running = played.trials.running
    assert running is not None and (running.percent, running.mbps) == limit


@pytest.mark.parametrize(
    ("host", "text"),
    [
        (snapshot(), r"can't be throttled by resctrl: a trial needs MBA in the CPU and in the kernel \(info/MB"),
        (replace(with_bandwidth(snapshot()), resctrl=None), "resctrl can't be read now"),
        (
            with_record(
                with_bandwidth(snapshot()), request=FlavorRequest(asked=CacheRequest(ways=4, bandwidth_percent=50))
            ),
            "its flavor gives it 50 % of memory bandwidth, and a trial never takes a VM below its promise",
        ),
        (
            with_record(
                with_bandwidth(snapshot()),
                allocation=Allocation(PromiseState.DEGRADED, reason=Reason(Code.NO_WAYS, "too few ways")),
            ),
            "its promise is degraded now: too few ways",
        ),
    ],
    ids=["no MBA", "no resctrl", "below its promise", "not kept"],
)
def test_what_can_not_be_tried_is_refused_with_the_reason(host: Snapshot, text: str, play: Play) -> None:
    played = play(host)
    with pytest.raises(AgentRefused, match=text):
        played.client.begin_trial(UUID, "key", LIMIT)
    assert played.trials.running is None


OTHER = "22222222-2222-4222-8222-222222222222"


def with_a_plain_vm(known: Snapshot) -> Snapshot:
    """The host with one more VM, which is promised nothing."""
    record = known.vms[UUID]
    observed = replace(record.observed, vm=replace(record.observed.vm, uuid=OTHER))
    plain = replace(
        record, observed=observed, request=FlavorRequest(), allocation=Allocation(PromiseState.NONE), tasks=None
    )
    return replace(known, vms={UUID: record, OTHER: plain})


def test_a_host_without_a_free_closid_is_left_as_it_is(play: Play) -> None:
    played = play(with_a_plain_vm(with_bandwidth(snapshot(), closids=2)))
    with pytest.raises(AgentRefused, match=rf"nothing is tried on VM {OTHER}: no class of service \(CLOSID\) is left"):
        played.client.begin_trial(OTHER, "key", LIMIT)
    assert played.client.begin_trial(UUID, "key", LIMIT)["trial"] is not None, "this one has its own"


def test_a_vm_whose_flavor_nova_alone_tells_is_left_as_it_is(play: Play) -> None:
    known = with_bandwidth(snapshot())
    observed = known.vms[UUID].observed
    without = replace(observed, vm=replace(observed.vm, metadata=NovaMetadata("gold", "c4", "p", None)))
    played = play(with_record(known, observed=without))
    played.agent.flavors = ToldFlavors(True, lambda uuid: None)
    with pytest.raises(AgentRefused, match="its flavor is known from Nova's API alone"):
        played.client.begin_trial(UUID, "key", LIMIT)


def test_a_host_without_a_free_rmid_takes_none_from_a_vm_that_is_counted(play: Play) -> None:
    known = with_bandwidth(snapshot())
    assert known.resctrl is not None and known.resctrl.capabilities.monitoring is not None
    few = replace(known.resctrl.capabilities.monitoring, num_rmids=2)
    able = replace(known.resctrl, capabilities=replace(known.resctrl.capabilities, monitoring=few))
    with pytest.raises(AgentRefused, match="no RMID is free"):
        play(with_a_plain_vm(replace(known, resctrl=able))).client.begin_trial(OTHER, "key", LIMIT)


# Of ways.


def test_ways_are_tried_step_by_step_and_given_back(play: Play) -> None:
    played = play(snapshot())
    for ways in (4, 5, 6):
        told = played.client.begin_trial(UUID, "key", f"hw:cache_ways={ways}")["trial"]
        assert told is not None
        assert (told["uuid"], told["limit"], told["unit"], told["in_force"]) == (UUID, ways, "ways", False)
        assert 60 < told["seconds_left"] <= 900
        running = played.trials.running
        assert running is not None and (running.ways, running.percent, running.mbps) == (ways, None, None)
    assert played.client.renew_trial(UUID, "key")["trial"] is not None
    with pytest.raises(AgentRefused, match="this trial is at 6 ways, and goes up only"):
        played.client.begin_trial(UUID, "key", "hw:cache_ways=5")
    with pytest.raises(AgentRefused, match="runs already: one is possible at a time"):
        played.client.begin_trial(UUID, "another", "hw:cache_ways=7")
    assert played.client.end_trial(UUID, "key")["trial"] is None


def with_a_vm_beside(known: Snapshot, ways: int) -> Snapshot:
    """The host with one more VM, which has the uppermost ways of cache 0 for itself."""
    record, wants = known.vms[UUID], CacheRequest(ways=ways)
    theirs, mask = vm_group(OTHER), CapacityBitmask(((1 << ways) - 1) << (11 - ways))
    observed = replace(record.observed, vm=replace(record.observed.vm, uuid=OTHER))
    given = Allocation(PromiseState.KEPT, theirs, {0: mask})
    other = replace(record, observed=observed, request=FlavorRequest(wants, wants), allocation=given)
    assert known.resctrl is not None
    default, own = known.resctrl.layout.groups
    left = replace(default, masks={**default.masks, 0: CapacityBitmask(0x7FF & ~0xF & ~mask.bits)})
    groups = (left, own, Group(theirs, Owner.VM, {0: mask, 1: CapacityBitmask(0x7FF)}))
    return replace(
        known,
        resctrl=replace(known.resctrl, layout=Layout(groups)),
        policy=Policy(use_shareable_ways=True),
        vms={**known.vms, OTHER: other},
        requests=(*known.requests, Request(OTHER, wants, frozenset({0}), 6)),
    )


def test_ways_are_tried_from_those_that_are_free_alone(play: Play) -> None:
    played = play(with_a_vm_beside(snapshot(), 4))
    assert played.client.begin_trial(UUID, "key", "hw:cache_ways=5")["trial"] is not None
    text = rf"nothing is tried on VM {UUID}: has 4 of 6 ways on L3 cache 0: L3 cache 0 has 5 ways to give in one piece"
    with pytest.raises(AgentRefused, match=text):
        played.client.begin_trial(UUID, "key", "hw:cache_ways=6")
    running = played.trials.running
    assert running is not None and running.ways == 5, "the step before goes on"


def test_a_vm_without_ways_is_tried_with_some_only_if_the_request_says_that_it_may_fill_fewer(play: Play) -> None:
    played = play(with_a_plain_vm(snapshot()))
    for said in ("", "&may_fill_fewer=false"):
        answer = played.send("PUT", f"/v1/trials/{OTHER}?key=key&hw:cache_ways=3{said}")
        assert answer.status_code == 409 and played.trials.running is None
        assert f"nothing is tried on VM {OTHER}: its flavor promises it no ways" in answer.json()["error"]
    assert played.client.begin_trial(OTHER, "key", "hw:cache_ways=3", may_fill_fewer=True)["trial"] is not None
    # Each step has to say so: a client that does not know what it asks for gets no further.
    with pytest.raises(AgentRefused, match="its flavor promises it no ways"):
        played.client.begin_trial(OTHER, "key", "hw:cache_ways=4")
    running = played.trials.running
    assert running is not None and (running.uuid, running.ways, running.may_fill_fewer) == (OTHER, 3, True)


def test_a_vm_without_ways_is_confined_to_a_few_for_as_long_as_a_limit_lasts(play: Play) -> None:
    played = play(with_a_plain_vm(snapshot()))
    told = played.client.begin_trial(OTHER, "key", "hw:cache_ways=2", confine=True)["trial"]
    assert told is not None and (told["limit"], told["unit"]) == (2, "ways")
    assert 0 < told["seconds_left"] <= LONGEST
    running = played.trials.running
    assert running is not None and running.confines
    # It has no further steps.
    with pytest.raises(AgentRefused, match="one is possible at a time"):
        played.client.begin_trial(OTHER, "key", "hw:cache_ways=3", confine=True)


def test_a_vm_without_ways_leaves_the_others_the_floor(play: Play) -> None:
    played = play(with_a_plain_vm(snapshot()))
    with pytest.raises(AgentRefused, match=rf"nothing is tried on VM {OTHER}: .* ways to give in one piece"):
        played.client.begin_trial(OTHER, "key", "hw:cache_ways=7", may_fill_fewer=True)
    assert played.trials.running is None


def test_a_vm_in_a_class_is_tried_with_ways_of_its_own_without_a_further_word(play: Play) -> None:
    known, shared = with_a_plain_vm(snapshot()), CacheRequest(ways=2, policy=CachePolicy.SHARED)
    member = replace(known.vms[OTHER], request=FlavorRequest(shared, shared))
    played = play(replace(known, vms={**known.vms, OTHER: member}))
    assert played.client.begin_trial(OTHER, "key", "hw:cache_ways=1")["trial"] is not None


def test_ways_that_are_only_tried_are_not_told_to_openstack(play: Play) -> None:
    known = snapshot()
    played = play(known, gateways={os.geteuid()})
    held = played.client.openstack()["capacity"]
    wants = CacheRequest(ways=7)
    tried = replace(known.vms[UUID].request, wants=wants, trial=Reason(Code.TRIAL, "tried"))
    played.agent.snapshot = replace(
        with_record(known, request=tried), requests=(replace(known.requests[0], wants=wants),)
    )
    assert played.client.openstack()["capacity"] == held
    assert held is not None and held["held"] == 4
