# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import json
import math
import threading
import time
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.unit.agent.serve.test_caches import full
from tests.unit.agent.serve.test_vms import GROUP, UUID, snapshot, with_record
from tests.unit.telemetry.values import HOST
from tests.unit.telemetry.values import snapshot as sweep
from tests.unit.telemetry.values import vm as reading
from vmqos import insight
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.remember.event_log import EventLog
from vmqos.agent.remember.neighbour_events import NeighbourEvents
from vmqos.agent.sample.recent import MOST, RecentSamples
from vmqos.agent.sample.swept import swept
from vmqos.agent.serve import neighbours
from vmqos.agent.serve.api import Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.agent.serve.neighbours import Neighbours, host_of
from vmqos.agent.snapshot import Snapshot
from vmqos.allocation import Allocation, PromiseState
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.hypervisor.model import Process
from vmqos.resctrl.capabilities import BandwidthResource, BandwidthUnit
from vmqos.telemetry import Missing, Rates, Reading

OTHER = "22222222-2222-4222-8222-222222222222"
LATE = "33333333-3333-4333-8333-333333333333"
MIB = 1 << 20


def two() -> Snapshot:
    """A VM with four ways of its own, and one in the default group; both run on cache 0."""
    known = snapshot()
    first = known.vms[UUID]
    vm = replace(first.observed.vm, uuid=OTHER, metadata=None)
    other = replace(first, observed=replace(first.observed, vm=vm), allocation=Allocation(PromiseState.NONE, "", {}))
    return replace(known, vms={**known.vms, OTHER: other})


def sharing() -> Snapshot:
    """Both in the default group."""
    known = two()
    alone = replace(known.vms[UUID], allocation=Allocation(PromiseState.NONE, "", {}))
    return replace(known, vms={**known.vms, UUID: alone})


def limiting(known: Snapshot, unit: BandwidthUnit | None, least: int = 1, gran: int = 1) -> Snapshot:
    """A host that limits memory bandwidth in this unit; ``None``: it can't limit it."""
    assert known.resctrl is not None
    capabilities = known.resctrl.capabilities
    bandwidths = {"MB": BandwidthResource("MB", 8, least, gran, True, (0,), unit)} if unit else {}
    return replace(known, resctrl=replace(known.resctrl, capabilities=replace(capabilities, bandwidths=bandwidths)))


def filled(
    thief_from: int = 60,
    samples: int = 100,
    counted: bool = True,
    thief_until: int | None = None,
    moved: bool = True,
) -> RecentSamples:
    """UUID has 6 MiB and is fast, until OTHER fills the cache and moves two hundred times as much."""
    recent = RecentSamples(2.0, counted=counted)
    for number in range(samples):
        robbed = thief_from <= number < (thief_until or samples)
        wobble = 1 + 0.01 * (number % 3)
        vms = {UUID: (2 if robbed else 6) * MIB, OTHER: (8 if robbed else 1) * MIB}
        moves = {UUID: (600e6 if robbed else 60e6) * wobble, OTHER: (4e9 if robbed else 20e6) * wobble}
        own = (2e9, (1e9 if robbed else 2e9), (2e7 if robbed else 4e7), (9e6 if robbed else 1e6))
        counts = {UUID: tuple(value * wobble for value in own), OTHER: (2e9, 2e9, 5e7, 4e7)}
        now = sweep(
            *(reading((held, 1, 1), uuid=uuid) for uuid, held in vms.items()), host=replace(HOST, caches={0: {}})
        )
        rates = {
            uuid: Rates(Reading(bytes_ if moved else None), Reading(None), Reading(None), 2.0)
            for uuid, bytes_ in moves.items()
        }
        recent.add(swept(replace(now, wall=1000.0 + 2 * number), rates), counts)
    return recent


def test_a_vm_fills_the_ways_of_its_group_on_the_caches_on_which_it_runs() -> None:
    host = host_of(two())
    assert host.caches == {0: insight.Cache(11 * MIB, 11), 1: insight.Cache(11 * MIB, 11)}
    asked = insight.Promise(ways=4)
    assert host.vms == {UUID: insight.Vm("c4", {0: 0xF}, asked), OTHER: insight.Vm("", {0: 0x7F0}, asked)}


@pytest.mark.parametrize(
    ("asked", "promise"),
    [
        (None, insight.Promise()),
        (CacheRequest(ways=2, policy=CachePolicy.SHARED), insight.Promise(ways=2, is_shared=True)),
        (
            CacheRequest(code_ways=1, data_ways=3, bandwidth_percent=20),
            insight.Promise(code_ways=1, data_ways=3, percent=20),
        ),
        (CacheRequest(bandwidth_mbps=4000), insight.Promise(mbps=4000)),
    ],
)
def test_what_a_flavor_asks_for_is_known_of_its_vm(asked: CacheRequest | None, promise: insight.Promise) -> None:
    known = with_record(snapshot(), request=FlavorRequest(asked, asked))
    assert host_of(known).vms[UUID].promise == promise


@pytest.mark.parametrize(
    ("throttle", "unit"),
    [
        (BandwidthUnit.PERCENT, insight.LimitedIn.PERCENT),
        (BandwidthUnit.MBPS, insight.LimitedIn.MBPS),
        (BandwidthUnit.EIGHTH_GBPS, insight.LimitedIn.MBPS),
        (None, insight.LimitedIn.NOTHING),
    ],
)
def test_the_unit_of_limits_is_that_of_resctrl(throttle: BandwidthUnit | None, unit: insight.LimitedIn) -> None:
    assert host_of(limiting(snapshot(), throttle)).limited_in is unit


def test_the_unit_of_limits_is_not_known_while_resctrl_can_not_be_read() -> None:
    assert host_of(Snapshot()).limited_in is insight.LimitedIn.UNKNOWN
    assert host_of(Snapshot()).percent_steps is None


@pytest.mark.parametrize(
    ("least", "gran", "steps"),
    [
        (10, 10, insight.PercentSteps(10, 10)),
        (20, 20, insight.PercentSteps(20, 20)),
        (1, 1, insight.PercentSteps(1, 1)),
        (0, 0, insight.PercentSteps(1, 1)),
        (5, 10, insight.PercentSteps(10, 10)),
    ],
)
def test_the_steps_of_percentages_are_those_of_resctrl(least: int, gran: int, steps: insight.PercentSteps) -> None:
    assert host_of(limiting(snapshot(), BandwidthUnit.PERCENT, least, gran)).percent_steps == steps
    assert host_of(limiting(snapshot(), BandwidthUnit.MBPS, least, gran)).percent_steps is None


def test_it_is_known_how_many_vcpus_a_vm_has() -> None:
    known = two()
    record = known.vms[OTHER]
    other = replace(record, observed=replace(record.observed, vm=replace(record.observed.vm, vcpus=40)))
    vms = host_of(replace(known, vms={**known.vms, OTHER: other})).vms
    assert (vms[UUID].vcpus, vms[OTHER].vcpus) == (0, 40)


def test_a_vm_that_may_run_anywhere_fills_all_caches() -> None:
    known = two()
    record = known.vms[UUID]
    roaming = replace(record, observed=replace(record.observed, cpus=frozenset({1, 2})))
    assert host_of(replace(known, vms={UUID: roaming})).vms[UUID].masks == {0: 0xF, 1: 0x7FF}


def test_ways_for_code_and_data_count_together_and_l2_is_left_out() -> None:
    assert host_of(full()).vms[UUID].masks == {0: 0xF}


def test_a_cache_that_can_not_be_partitioned_is_one_way() -> None:
    known = two()
    assert known.resctrl is not None
    monitored = replace(known.resctrl, capabilities=replace(known.resctrl.capabilities, caches={}))
    host = host_of(replace(known, resctrl=monitored))
    assert host.caches[0].ways == 1
    assert {vm.masks[0] for vm in host.vms.values()} == {1}


def test_a_vm_with_ways_of_its_own_is_robbed_of_no_cache_while_resctrl_can_not_be_read() -> None:
    known = two()
    asked = Neighbours(lambda: known, filled())
    before, host = asked.verdicts()["pairs"], asked.samples()["host"]
    assert "cache" not in {pair["cause"] for pair in before}
    known, asked._due = replace(known, resctrl=None), -math.inf
    assert asked.verdicts()["pairs"] == before and asked.samples()["host"] == host


@pytest.mark.parametrize("known", [Snapshot(), replace(two(), topology=Snapshot().topology)])
def test_nothing_is_said_while_the_caches_are_not_known(known: Snapshot) -> None:
    told = Neighbours(lambda: known, filled()).verdicts()
    assert (told["vms"], told["pairs"], told["samples"]) == ([], [], 0)


def test_the_host_is_known_from_the_last_judgement_until_a_pass_finds_something_else() -> None:
    known = [sharing(), replace(sharing()), two()]
    asked = Neighbours(lambda: known[0], filled())
    hosts = []
    while known:
        hosts.append(asked.samples()["host"])
        del known[0]
    assert hosts[0] == hosts[1] != hosts[2]


@pytest.mark.parametrize("counted", [True, False])
def test_a_thief_is_named_with_what_it_took(counted: bool) -> None:
    told = Neighbours(sharing, filled(counted=counted)).verdicts()
    (pair,) = told["pairs"]
    assert (pair["culprit"], pair["victim"], pair["cause"]) == (OTHER, UUID, "cache")
    assert pair["since"] == 1000.0 + 2 * 60
    assert pair["taken"] == pytest.approx(4 * MIB)
    assert (told["time"], told["interval"], told["samples"], told["counted"]) == (1198.0, 2.0, 100, counted)
    assert {vm["uuid"] for vm in told["vms"]} == {UUID, OTHER} and told["traffic_counted"]
    json.dumps(told)


@pytest.mark.parametrize("restarted", [UUID, OTHER])
@pytest.mark.parametrize("is_back", [True, False])
def test_nothing_is_told_of_a_run_that_is_over(restarted: str, is_back: bool) -> None:
    known = sharing()
    asked = Neighbours(lambda: known, filled())
    assert len(asked.verdicts()["pairs"]) == 1
    record = known.vms[restarted]
    vm = replace(record.observed.vm, process=Process(99, 99))
    others = {uuid: other for uuid, other in known.vms.items() if uuid != restarted}
    again = {restarted: replace(record, observed=replace(record.observed, vm=vm))}
    known = replace(known, vms={**others, **again} if is_back else others)
    told = asked.verdicts()
    assert (told["pairs"], {one["uuid"] for one in told["vms"]}) == ([], others.keys())


def test_where_no_traffic_is_counted_nobody_is_accused_and_it_is_told() -> None:
    told = Neighbours(sharing, filled(moved=False)).verdicts()
    assert (told["pairs"], told["counted"], told["traffic_counted"], told["samples"]) == ([], True, False, 100)


@pytest.mark.parametrize("counted", [True, False])
def test_columns_are_the_samples_in_another_form(counted: bool) -> None:
    recent = filled(samples=4, counted=counted)
    # Then one VM comes, of another nothing can be read, and the third one has no rate yet.
    for wall, rates in ((1010.0, {}), (1012.0, {UUID: 7.0, OTHER: 8.0})):
        vms = [reading((5 * MIB, 1, 1), uuid=uuid) for uuid in (UUID, OTHER, LATE)]
        found = {
            uuid: Rates(Reading(rates.get(uuid)), Reading(None), Reading(None), 2.0) for uuid in (UUID, OTHER, LATE)
        }
        now = replace(sweep(*vms, host=replace(HOST, caches={0: {}})), wall=wall)
        recent.add(swept(now, found), {UUID: (2e9, 1e9, 2e7, 1e6), OTHER: (0.0, 0.0, 0.0, 0.0)})
    read, caches = recent.columns()
    host = insight.Host({0: insight.Cache(11 * MIB, 11)}, dict.fromkeys((UUID, OTHER, LATE), insight.Vm("", {0: 1})))
    times, series = insight.align(dict(neighbours.samples_of(read, caches, host)))
    made = neighbours.series_of(read, caches, host)
    assert (list(read.times), list(made)) == (times, list(series))
    for uuid, of in series.items():
        assert made[uuid].begins == of.begins
        # Samples are told as whole numbers.
        for column, told in zip(every_column(made[uuid]), every_column(of), strict=True):
            assert column == pytest.approx(told, abs=1e-3, nan_ok=True)


def test_what_is_judged_by_takes_a_few_bytes_for_each_number() -> None:
    recent, vms = filled(samples=MOST), 40
    host = insight.Host({0: insight.Cache(11 * MIB, 11)}, {UUID: insight.Vm("", {0: 1})})
    series = []
    tracemalloc.start()
    try:
        for _ in range(vms):
            series.append(neighbours.series_of(*recent.columns(), host)[UUID])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    numbers = sum(map(len, every_column(series[0])))
    assert numbers == 5 * MOST
    # In a list of them each would take 32.
    assert taken / vms / numbers < 12


def every_column(series: insight.Series) -> list[list[float]]:
    others = series.bandwidth, series.cycles, series.references, series.misses
    return [list(column) for column in (*series.held.values(), *others)]


def test_who_has_no_way_in_common_is_not_accused() -> None:
    assert Neighbours(two, filled()).verdicts()["pairs"] == []


def test_the_samples_lead_to_the_same_verdict_and_newer_ones_are_told_alone() -> None:
    asked = Neighbours(sharing, filled())
    told = asked.samples()
    assert told["host"]["vms"][UUID] == {"flavor": "c4", "masks": {"0": "7f0"}, "promise": {"ways": 4}}
    assert told["host"]["caches"]["0"] == {"size": 11 * MIB, "ways": 11, "bandwidth": None}
    assert len(told["samples"][UUID]) == len(told["samples"][OTHER]) == 100
    newest = asked.samples(1196.0)["samples"]
    assert newest == {uuid: of[-1:] for uuid, of in told["samples"].items()}
    assert newest[UUID][0]["counts"] == {
        "cycles": 2e9, "instructions": 1e9, "references": 2e7, "misses": 9e6
    }  # fmt: skip
    assert asked.samples(1198.0)["samples"] == {}


def test_the_cpu_time_of_a_vm_is_among_its_samples_once_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    recent = RecentSamples(2.0, counted=False, vms=lambda: sharing().vms)
    times = iter((3_000_000_000, 5_500_000_000))
    monkeypatch.setattr("vmqos.agent.sample.recent.processes.cpu_time_of_all", lambda pid: next(times))
    clock = iter((10.0, 12.0))
    monkeypatch.setattr("vmqos.agent.sample.recent.time", SimpleNamespace(monotonic=lambda: next(clock)))
    for wall in (1000.0, 1002.0):
        one = sweep(reading((6 * MIB, 1, 1), uuid=UUID), host=replace(HOST, caches={0: {}}))
        rates = {UUID: Rates(Reading(1e6), Reading(None), Reading(None), 2.0)}
        recent.add(swept(replace(one, wall=wall), rates), {})
    first, second = Neighbours(sharing, recent).samples()["samples"][UUID]
    assert "cpu_time" not in first and second["cpu_time"] == 1.25
    judged_by = neighbours.series_of(*recent.columns(), host_of(sharing()))[UUID]
    assert math.isnan(judged_by.cpu_time[0]) and judged_by.cpu_time[1] == 1.25


def test_a_vm_of_which_the_cpu_time_alone_is_known_has_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    recent = RecentSamples(2.0, counted=False, vms=lambda: sharing().vms)
    monkeypatch.setattr("vmqos.agent.sample.recent.processes.cpu_time_of_all", lambda pid: time.monotonic_ns())
    for wall in (1000.0, 1002.0):
        one = sweep(reading((Missing.UNAVAILABLE, 1, 1), uuid=UUID), host=replace(HOST, caches={0: {}}))
        rates = {UUID: Rates(Reading.none(Missing.UNASSIGNED), Reading(None), Reading(None), 2.0)}
        recent.add(swept(replace(one, wall=wall), rates), {})
    assert recent.columns()[0].vms[UUID]["cpu_time"][-1] > 0
    asked = Neighbours(sharing, recent)
    assert (asked.samples()["samples"], asked.verdicts()["samples"]) == ({}, 0)


def test_a_vm_whose_events_are_not_counted_has_none() -> None:
    sample = Neighbours(sharing, filled(counted=False)).samples()["samples"][UUID][0]
    assert (sample["counts"], sample["occupancy"]) == (None, {"0": 6 * MIB})


@pytest.mark.parametrize("latest, share", [(5.0, neighbours.USUAL_SHARE), (0.0, neighbours.SHARE)])
def test_judging_takes_a_share_of_a_cpu_however_often_clients_ask(
    latest: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = list[tuple[float, float]]()

    def judge(*judged_by: object) -> insight.Insight:
        began = time.monotonic()
        time.sleep(0.001 if share < neighbours.SHARE else 0.02)
        judged.append((began, time.monotonic()))
        return insight.Insight({}, [])

    monkeypatch.setattr(neighbours.insight, "judge_series", judge)
    monkeypatch.setattr(neighbours, "LATEST", latest)
    asked = Neighbours(sharing, RecentSamples(0.0, counted=False))
    until = time.monotonic() + 60.0
    while len(judged) < 4 and time.monotonic() < until:
        asked.verdicts()
        time.sleep(0.001)
    assert len(judged) == 4
    for (began, ended), (next_began, _) in itertools.pairwise(judged):
        # A judgement that a busy machine holds up is put off until the latest moment alone.
        assert next_began - began >= min((ended - began) / share, latest or math.inf)


@pytest.mark.parametrize("interval, latest", [(0.0, 15.0), (30.0, 15.0), (600.0, 15.0), (5.0, 4.0)])
def test_a_judgement_that_takes_long_is_put_off_and_none_that_the_agent_asks_for_is(
    interval: float, latest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(*judged_by: object) -> insight.Insight:
        time.sleep(0.1)
        return insight.Insight({}, [])

    monkeypatch.setattr(neighbours.insight, "judge_series", judge)
    asked = Neighbours(sharing, filled(), interval=interval)
    began = time.monotonic()
    asked.verdicts()
    took = time.monotonic() - began
    # It began and ended meanwhile, and takes longer where this machine has no CPU for it.
    assert latest <= asked._due - began <= took + max(latest, took / neighbours.SHARE)


def test_a_client_does_not_wait_long_for_a_judgement_and_gets_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, goes_on = Neighbours(sharing, filled()), threading.Event()
    first = asked.verdicts()

    def judge(*judged_by: object) -> insight.Insight:
        goes_on.wait(60)
        return insight.Insight({}, [])

    monkeypatch.setattr(neighbours.insight, "judge_series", judge)
    monkeypatch.setattr(neighbours, "PATIENCE", 0.05)
    asked._due = 0.0
    assert asked.verdicts() is first
    goes_on.set()
    monkeypatch.setattr(neighbours, "PATIENCE", 30)
    assert asked.verdicts()["vms"] == []


def test_judging_gives_way_before_it_and_between_two_vms_but_not_for_long() -> None:
    waited = list[float]()
    asked = Neighbours(sharing, filled(), give_way=waited.append)
    assert asked.verdicts()["pairs"]
    assert len(waited) == 1 + len(sharing().vms)
    assert neighbours.COURTESY >= waited[0] >= waited[-1]


def test_a_fault_while_judging_is_logged_and_leaves_the_last_verdict(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Neighbours(sharing, filled())
    first = asked.verdicts()

    def judge(*judged_by: object) -> insight.Insight:
        raise ZeroDivisionError("a level of 0")

    monkeypatch.setattr(neighbours.insight, "judge_series", judge)
    asked._due = 0.0
    assert asked.verdicts() is first
    assert "a level of 0" in caplog.text


def test_where_no_thread_can_be_had_the_next_client_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Neighbours(sharing, filled())

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", start)
        without_threads.setattr(neighbours, "PATIENCE", 30.0)
        began = time.monotonic()
        assert asked.verdicts()["pairs"] == []
        assert time.monotonic() - began < neighbours.PATIENCE, "nothing is waited for"
    assert "can't start new thread" in caplog.text
    assert len(asked.verdicts()["pairs"]) == 1


@pytest.mark.parametrize(
    ("samples", "until", "found", "states"),
    [(100, None, 1, ["slowed"]), (100, 90, 1, []), (62, None, 0, [])],
    ids=["goes on", "is over", "has just begun"],
)
def test_each_judgement_is_heard_of_by_those_who_make_events(
    samples: int, until: int | None, found: int, states: list[str]
) -> None:
    known, log = sharing(), EventLog()
    events = NeighbourEvents(log, lambda: known.vms)
    asked = Neighbours(lambda: known, filled(samples=samples, thief_until=until), events)
    assert len(asked.verdicts()["pairs"]) == found
    assert [event["state"] for event in log.after(0)["events"]] == states
    asked._due = 0.0
    asked.verdicts()
    assert len(log.after(0)["events"]) == len(states)


def test_the_api_has_both_and_refuses_a_time_that_is_none() -> None:
    api = Api(None, None, LiveReads(), neighbours=Neighbours(sharing, filled()))  # type: ignore[arg-type]

    def ask(path: str, query: str = "") -> tuple[str, dict[str, object]]:
        told: list[str] = []
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query}
        (content,) = api(environ, lambda status, headers: told.append(status))
        return told[0], json.loads(content)

    assert len(ask("/v1/neighbours")[1]["pairs"]) == 1  # type: ignore[arg-type]
    assert len(ask("/v1/neighbours/samples", "since=1190")[1]["samples"][UUID]) == 4  # type: ignore[index, call-overload]
    status, body = ask("/v1/neighbours/samples", "since=yesterday")
    assert status.startswith("400") and "since='yesterday'" in str(body)
    assert GROUP not in json.dumps(body)
