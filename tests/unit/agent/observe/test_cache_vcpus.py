# SPDX-License-Identifier: Apache-2.0
"""What is said of a flavor that names vCPUs; the threads themselves are looked at among the functional tests."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest

from vmqos.agent.observe import cache_vcpus
from vmqos.agent.observe.cache_vcpus import UNNAMED, CacheVcpus, Vcpus, VcpuWatch, problem
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.daemon.backoff import Backoff
from vmqos.daemon.log_once import LogOnce
from vmqos.extra_specs import CacheRequest
from vmqos.hypervisor import vm_tasks
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.reason import NO_REASON, Code, Reason

ASKED = frozenset({0, 1})


def looked(
    vms: Mapping[str, ObservedVm], requests: Mapping[str, FlavorRequest], before: Mapping[str, CacheVcpus]
) -> Vcpus:
    watch = VcpuWatch(Backoff(1.0, 2.0), LogOnce(logging.getLogger(__name__)))
    watch._vcpus = Vcpus(before)
    return watch.look(vms, requests, vms.keys())[0]


GONE = ObservedVm(VirtualMachine("a", "a", 1, Process(99999999, 1), None, False, None), frozenset({0}))


@pytest.mark.parametrize("there", [{0, 1}, {0, 1, 2}])
def test_vcpus_that_are_there_are_no_problem(there: set[int]) -> None:
    assert not problem(ASKED, there)


def test_vcpus_that_are_not_there_are_named_with_those_that_are() -> None:
    told = problem(frozenset({0, 4, 5}), {0, 1}).text
    assert "names 0,4-5" in told and "no vCPU 4-5" in told and "its vCPUs are 0-1" in told


def test_a_vm_none_of_whose_threads_bears_a_vcpus_name_says_so() -> None:
    assert problem(ASKED, ()) == UNNAMED


def test_vms_whose_flavors_name_no_vcpus_are_not_looked_at() -> None:
    requests = {
        "a": FlavorRequest(wants=CacheRequest(ways=2)),
        "b": FlavorRequest(),
        "c": FlavorRequest(wants=CacheRequest(ways=2, vcpus=ASKED), hands_off=True),
    }
    assert looked({}, requests, {}) == Vcpus()


def test_a_vm_that_can_not_be_looked_at_keeps_what_was_known_of_it() -> None:
    requests = {"a": FlavorRequest(wants=CacheRequest(ways=2, vcpus=ASKED))}
    known = CacheVcpus(ASKED, ASKED, (frozenset({3}),))
    found = looked({"a": GONE}, requests, {"a": known})
    assert "has ended" in found.limits["a"].problem.text
    assert replace(found.limits["a"], problem=NO_REASON) == known and not found.unknown
    unknown = looked({"a": GONE}, requests, {})
    assert not unknown.limits and "has ended" in unknown.unknown["a"].text


@pytest.mark.parametrize("asked", [CacheRequest(ways=2, vcpus=ASKED), CacheRequest(l2_ways=2)])
def test_a_fault_in_looking_at_one_vm_is_its_reason_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: CacheRequest
) -> None:
    def fail(*_: object) -> list[frozenset[int]]:
        raise RuntimeError("a fault of ours")

    requests = {"a": FlavorRequest(wants=asked), "b": FlavorRequest(wants=CacheRequest(ways=1))}
    monkeypatch.setattr(cache_vcpus, "look", fail)
    monkeypatch.setattr(vm_tasks, "vcpu_affinities", fail)
    backoff = Backoff(1.0, 2.0)
    watch = VcpuWatch(backoff, LogOnce(logging.getLogger(__name__)))
    for _ in range(3):
        found, _ = watch.look({"a": GONE, "b": GONE}, requests, {"a", "b"})
        assert found.unknown.keys() == {"a"} and "a fault of ours" in found.unknown["a"].text
    assert backoff.get(("vcpus", "a")) is not None, "it is tried again"
    assert len(caplog.records) == 1 and caplog.records[0].exc_info


ONE, TWO = Reason(Code.BAD_FLAVOR, "one"), Reason(Code.NO_VCPU, "two")


def test_a_problem_is_put_behind_those_that_are_there() -> None:
    assert FlavorRequest(problem=ONE).but(TWO).problem.text == "one; two"
    request = FlavorRequest(problem=ONE)
    assert request.but(NO_REASON) is request


class Watched:
    """A watch whose looks take a tenth of a second each, by its own clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *uuids: str) -> None:
        self.now = 0.0
        self.looks: list[str] = []
        self.outdated: set[str] = set()
        self.vms = {uuid: replace(GONE, vm=replace(GONE.vm, uuid=uuid)) for uuid in uuids}
        self.requests = {uuid: FlavorRequest(wants=CacheRequest(ways=2, vcpus=ASKED)) for uuid in uuids}
        self.watch = VcpuWatch(Backoff(1.0, 2.0), LogOnce(logging.getLogger(__name__)), lambda: self.now)
        monkeypatch.setattr(cache_vcpus, "look", self._look)
        monkeypatch.setattr(CacheVcpus, "is_outdated", lambda limit, vm: vm.uuid in self.outdated)

    def _look(self, vm: VirtualMachine, asked: frozenset[int]) -> CacheVcpus:
        self.now += 0.1
        self.looks.append(vm.uuid)
        return CacheVcpus(asked, asked, ())

    def look(self, *changed: str) -> list[str]:
        """The VMs that are looked at."""
        self.looks = []
        found, _ = self.watch.look(self.vms, self.requests, set(changed))
        assert found.limits.keys() == self.vms.keys() and not found.unknown
        return sorted(self.looks)


def test_only_a_vm_that_changed_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, "a", "b")
    assert watched.look() == ["a", "b"]
    assert watched.look() == []
    assert watched.look("b") == ["b"]
    asks_otherwise = FlavorRequest(wants=CacheRequest(ways=2, vcpus=frozenset({0})))
    watched.requests = {**watched.requests, "a": asks_otherwise}
    assert watched.look() == ["a"]


def test_a_vm_with_new_threads_is_looked_at_once_more_because_they_get_their_names_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, "a", "b")
    watched.look()
    watched.outdated = {"a"}
    assert watched.look() == ["a"]
    watched.outdated = set()
    assert watched.look() == ["a"]
    assert watched.look() == []


def test_vms_that_the_time_does_not_suffice_for_keep_what_was_found_and_come_first_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uuids = ("a", "b", "c", "d", "e")
    watched = Watched(monkeypatch, *uuids)
    assert watched.look() == [*uuids], "VMs of which nothing is known do not wait"
    first = watched.look(*uuids)
    second = watched.look(*uuids)
    assert len(first) < len(uuids)
    assert set(first).isdisjoint(second)
    assert {*first, *second, *watched.look(*uuids)} == set(uuids)
