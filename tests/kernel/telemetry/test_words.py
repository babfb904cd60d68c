# SPDX-License-Identifier: Apache-2.0
"""A counter that the hardware can't give is a reason, in all that is made of it, and comes back without a leap."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from ceilometer_pollster import metadata, meters, reasons
from tests.functional.telemetry.scraped import Scrape
from tests.kernel.limits import processor
from tests.kernel.telemetry.conftest import BUSY, IDLE, SPIKE, Pair, numbers, until_more
from tests.unit.gateway import answers
from vmqos.gateway.metrics.agent_answers import Answers
from vmqos.gateway.metrics.exposition import HostCollector
from vmqos.local_api import contract
from vmqos.resctrl.filesystem import Filesystem
from vmqos.telemetry import EVENTS, Missing, Reading, Snapshot, Sweeper, rates

pytestmark = pytest.mark.guest(machines=("cascade-lake", "milan"))

Fault = Callable[[int, int], AbstractContextManager[None]]
COUNTED = [meter for meter in meters.METERS if meter.name not in ("cpu_l3_cache.ways", "cpu_l3_cache.allocated")]
SERIES = ("vmqos_vm_llc_occupancy_bytes", "vmqos_vm_memory_bytes_total")


@dataclass
class Instance:
    """An instance as Ceilometer's discovery hands it over, as far as it matters."""

    id: str
    status: str = "active"


INSTANCES = [Instance(BUSY), Instance(IDLE)]


class Exposition:
    """What Prometheus would be told of each sweep."""

    def __init__(self) -> None:
        self._newest: contract.Telemetry | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(HostCollector(self._ask))

    def of(self, snapshot: Snapshot) -> Scrape:
        """The scrape after this sweep."""
        self._newest = answers.telemetry(snapshot)
        return Scrape(generate_latest(self._registry).decode())

    def _ask(self) -> Answers:
        vms: list[contract.Vm] = [
            {**answers.KEPT, "uuid": uuid, "instance_name": uuid[-1], "flavor": "", "project": ""}
            for uuid in (BUSY, IDLE)
        ]
        return Answers(answers.HEALTH, vms, [], self._newest)


def volumes(before: Snapshot, after: Snapshot, uuid: str) -> dict[str, int | float | None]:
    """What the pollsters would make samples of; ``None`` is no sample."""
    found = rates(before, after)[uuid]
    return {meter.name: meter.volume(after.vms[uuid], found) for meter in COUNTED}


@pytest.mark.parametrize(
    ("fault", "word"),
    [(processor.unavailable, Missing.UNAVAILABLE), (processor.error, Missing.ERROR)],
    ids=["unavailable", "error"],
)
def test_an_injected_word_is_neither_0_nor_a_rate_nor_a_spike(
    fs: Filesystem, pair: Pair, sweeper: Sweeper, fault: Fault, word: Missing
) -> None:
    prometheus = Exposition()
    first = sweeper.sweep()
    before = until_more(sweeper, first)
    told_before = prometheus.of(before)
    assert None not in volumes(first, before, BUSY).values()
    with fault(0, pair.rmid):
        during = [sweeper.sweep()]
        # The kernel reads the counters by itself once a second, lest one goes round unseen.
        time.sleep(1.2)
        during.append(sweeper.sweep())
        with Sweeper(fs.root, keep_open=False) as opener:
            during.append(opener.sweep())
    now = sweeper.sweep()
    after = until_more(sweeper, now)

    previous = before
    for snapshot in during:
        assert_word_everywhere(previous, snapshot, word)
        assert_word_exposed(prometheus.of(snapshot), word)
        previous = snapshot
    why = reasons.find(during[-1], INSTANCES)
    assert set(why) == {(BUSY, event) for event in EVENTS}
    assert len(set(why.values())) == 1

    assert rates(during[-1], now)[BUSY].total == Reading(None, Missing.NO_PREVIOUS)
    assert None not in numbers(now.vms[BUSY]).values()
    assert {volumes(during[-1], now, BUSY)[f"memory.bandwidth.{name}"] for name in ("total", "local", "remote")} == {
        None
    }
    assert reasons.find(now, INSTANCES) == {}
    over = reasons.tell(why, {}, INSTANCES)
    assert [line.text.partition(" again")[1] for line in over] == [" again"] * len(EVENTS)
    assert None not in volumes(now, after, BUSY).values()
    # From before the fault to any time after it, no counter went back or leapt.
    told_after = [prometheus.of(now), prometheus.of(after)]
    for earlier, later in ((before, now), (before, after), (now, after)):
        found = rates(earlier, later)[BUSY]
        for reading in (found.total, found.local):
            assert reading.value is not None and 0 <= reading.value * found.seconds < SPIKE
    for scope in ("total", "local", "remote"):
        shown = [
            told.value("vmqos_vm_memory_bytes_total", uuid=BUSY, cache="0", scope=scope)
            for told in (told_before, *told_after)
        ]
        assert shown == sorted(shown)
        assert shown[-1] - shown[0] < SPIKE
    assert not any(told.find("vmqos_vm_counter_missing") for told in (told_before, *told_after))


def assert_word_everywhere(previous: Snapshot, snapshot: Snapshot, word: Missing) -> None:
    """Of the one VM and cache; of the other cache and the other VM all is there."""
    vm = snapshot.vms[BUSY]
    missing = Reading(None, word)
    for event in EVENTS:
        assert vm.totals[event] == vm.caches[0][event] == missing
    assert None not in numbers(vm, cache=1).values()
    assert None not in numbers(snapshot.vms[IDLE]).values()
    found = rates(previous, snapshot)
    assert found[BUSY].total == found[BUSY].local == found[BUSY].remote == missing
    assert found[IDLE].total == Reading(0.0)
    assert set(volumes(previous, snapshot, BUSY).values()) == {None}
    assert volumes(previous, snapshot, IDLE)["memory.traffic.total"] is not None
    told = metadata.of_vm(vm)["caches"]
    assert isinstance(told, dict)
    assert {told["0"][event] for event in EVENTS} == {str(word)}
    assert all(isinstance(told["1"][event], int) for event in EVENTS)


def assert_word_exposed(told: Scrape, word: Missing) -> None:
    """No sample of that VM and cache, and a sample that says why."""
    for series in SERIES:
        assert not told.find(series, uuid=BUSY, cache="0")
        assert told.find(series, uuid=BUSY, cache="1")
        assert told.find(series, uuid=IDLE, cache="0")
    said = [one.labels for one in told.find("vmqos_vm_counter_missing")]
    assert {(one["uuid"], one["event"], one["reason"]) for one in said} == {
        (BUSY, event, str(word)) for event in EVENTS
    }
