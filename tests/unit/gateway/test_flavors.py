# SPDX-License-Identifier: Apache-2.0
"""The thread that asks Nova, beside a Nova that is one function; the real one has its tests with real servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vmqos.conf import loader
from vmqos.daemon.backoff import Backoff
from vmqos.gateway.flavors import FlavorLookup, Found
from vmqos.hypervisor.exceptions import HypervisorUnreachable
from vmqos.hypervisor.model import NovaMetadata, Process, VirtualMachine
from vmqos.openstack.exceptions import Refused, ServerUnknown, Unreachable

SPECS = {"hw:cache_ways": "2"}


def vm(uuid: str, pid: int = 1) -> VirtualMachine:
    metadata = NovaMetadata("gold", "w2", "project", None)
    return VirtualMachine(uuid, f"instance-{uuid}", 1, Process(pid, 1), None, False, metadata)


class Nova:
    """What the questions are answered with; an exception is raised."""

    def __init__(self) -> None:
        self.listing: Any = {}
        self.servers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def extra_specs_of_host(self, hostname: str) -> Any:
        return self._answer(f"host {hostname}", self.listing)

    def extra_specs(self, uuid: str) -> Any:
        return self._answer(uuid, self.servers.get(uuid, ServerUnknown(uuid)))

    def _answer(self, question: str, answer: Any) -> Any:
        self.asked.append(question)
        assert self.gate.wait(10)
        if isinstance(answer, Exception):
            raise answer
        return answer


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def nova() -> Nova:
    return Nova()


@pytest.fixture
def told() -> list[str]:
    """UUIDs of the VMs that the loop was told of."""
    return []


@pytest.fixture
def lookup(nova: Nova, told: list[str]) -> Iterator[FlavorLookup]:
    made = FlavorLookup(nova, lambda: "node-1", told.append, Backoff(0.01, 0.05))  # type: ignore[arg-type]
    made.start()
    yield made
    nova.gate.set()
    made.stop()


def test_the_first_answer_is_that_nobody_knows_and_the_loop_is_told_once_somebody_does(
    lookup: FlavorLookup, nova: Nova, told: list[str]
) -> None:
    nova.servers["a"] = SPECS
    assert lookup.look_up([vm("a")]) == {"a": Found()}
    eventually(lambda: told == ["a"])
    assert lookup.look_up([vm("a")]) == {"a": Found(SPECS)}
    assert (nova.asked, lookup.waiting, lookup.error) == (["a"], 0, "")


def test_an_answer_is_kept_while_the_process_lives_and_no_longer(lookup: FlavorLookup, nova: Nova) -> None:
    nova.servers["a"] = SPECS
    lookup.look_up([vm("a")])
    eventually(lambda: lookup.waiting == 0)
    lookup.look_up([vm("a")])
    assert nova.asked == ["a"]
    nova.servers["a"] = {}
    assert lookup.look_up([vm("a", pid=2)]) == {"a": Found()}
    eventually(lambda: lookup.look_up([vm("a", pid=2)]) == {"a": Found({})})
    lookup.look_up([])
    assert lookup.look_up([vm("a", pid=2)]) == {"a": Found()}


def test_several_vms_take_one_question(lookup: FlavorLookup, nova: Nova, told: list[str]) -> None:
    nova.listing = {"a": SPECS, "b": {}, "c": {"x": "y"}}
    lookup.look_up([vm("a"), vm("b")])
    eventually(lambda: sorted(told) == ["a", "b"])
    assert nova.asked == ["host node-1"]
    assert lookup.look_up([vm("a"), vm("b")]) == {"a": Found(SPECS), "b": Found({})}


def test_a_vm_that_is_still_another_host_s_is_asked_for_by_itself(lookup: FlavorLookup, nova: Nova) -> None:
    nova.listing, nova.servers = {"a": SPECS}, {"migrating": SPECS}
    lookup.look_up([vm("a"), vm("migrating")])
    eventually(lambda: lookup.waiting == 0)
    assert nova.asked == ["host node-1", "migrating"]


def test_without_the_right_to_list_they_are_asked_for_one_by_one_from_then_on(lookup: FlavorLookup, nova: Nova) -> None:
    nova.listing = Refused("nova", "GET /servers/detail", 403, "policy")
    nova.servers = dict.fromkeys("abcd", SPECS)
    lookup.look_up([vm("a"), vm("b")])
    eventually(lambda: lookup.waiting == 0)
    lookup.look_up([vm("c"), vm("d")])
    eventually(lambda: lookup.waiting == 0)
    assert nova.asked == ["host node-1", "a", "b", "c", "d"]


def test_a_server_that_nova_does_not_know_keeps_no_other_waiting(
    lookup: FlavorLookup, nova: Nova, told: list[str]
) -> None:
    nova.servers["b"] = SPECS
    lookup.look_up([vm("a"), vm("b")])
    eventually(lambda: lookup.waiting == 1)
    found = lookup.look_up([vm("a"), vm("b")])
    assert found["b"] == Found(SPECS)
    eventually(lambda: "knows no server a" in lookup.look_up([vm("a"), vm("b")])["a"].error)
    assert "a" in told, "the loop is to show the reason"
    nova.servers["a"] = SPECS
    eventually(lambda: lookup.waiting == 0)


@pytest.mark.parametrize("listing", [{}, KeyError("id")], ids=["not listed", "unreadable list"])
def test_an_answer_that_is_not_understood_is_its_vm_s_alone(
    lookup: FlavorLookup, nova: Nova, caplog: pytest.LogCaptureFixture, listing: Any
) -> None:
    nova.listing = listing
    nova.servers = {"bad": TypeError("no such thing"), "good": SPECS}
    vms = [vm("bad"), vm("good")]
    lookup.look_up(vms)
    eventually(lambda: lookup.look_up(vms)["good"].extra_specs == SPECS and nova.asked.count("bad") >= 3)
    assert "no such thing" in lookup.look_up(vms)["bad"].error and not lookup.error
    told = [record for record in caplog.records if "no such thing" in record.getMessage()]
    assert len(told) == 1 and told[0].exc_info, "once, although it was asked for again and again"


@pytest.mark.parametrize(
    "error",
    [Unreachable("nova", "refused"), Refused("nova", "GET", 503, "no backend"), KeyError("servers")],
    ids=["away", "busy", "nonsense"],
)
def test_a_nova_that_does_not_answer_is_asked_again_and_the_reason_is_told(
    lookup: FlavorLookup, nova: Nova, told: list[str], error: Exception
) -> None:
    nova.listing = error
    nova.servers = {"a": error, "b": error}
    both = [vm("a"), vm("b")]
    lookup.look_up(both)
    eventually(lambda: len(nova.asked) > 2)
    assert {"a", "b"} <= set(told)
    assert all(str(error) in found.error for found in lookup.look_up(both).values())
    assert str(error) in lookup.error
    nova.listing = {"a": SPECS, "b": SPECS}
    eventually(lambda: lookup.waiting == 0)
    assert lookup.error == ""


def test_a_libvirt_that_does_not_tell_the_host_s_name_is_a_reason(nova: Nova) -> None:
    def nobody() -> str:
        raise HypervisorUnreachable(uri="qemu:///system", error="gone")

    lookup = FlavorLookup(nova, nobody, lambda uuid: None, Backoff(0.01, 0.05))  # type: ignore[arg-type]
    lookup.start()
    lookup.look_up([vm("a"), vm("b")])
    eventually(lambda: "qemu:///system" in lookup.error)
    lookup.stop()


def test_the_loop_is_never_kept_waiting(lookup: FlavorLookup, nova: Nova) -> None:
    nova.servers["a"] = SPECS
    nova.gate.clear()
    lookup.look_up([vm("a")])
    eventually(lambda: nova.asked)
    began = time.monotonic()
    for _ in range(100):
        lookup.look_up([vm("a"), vm("b")])
    assert time.monotonic() - began < 5
    nova.gate.set()
    eventually(lambda: lookup.look_up([vm("a"), vm("b")])["a"].extra_specs == SPECS)


def test_an_answer_for_a_process_that_is_gone_is_dropped(lookup: FlavorLookup, nova: Nova) -> None:
    nova.servers["a"] = {"hw:cache_ways": "4"}
    nova.gate.clear()
    lookup.look_up([vm("a")])
    eventually(lambda: nova.asked == ["a"])
    lookup.look_up([vm("a", pid=2)])
    nova.servers["a"] = SPECS
    nova.gate.set()
    eventually(lambda: lookup.waiting == 0)
    assert nova.asked == ["a", "a"]
    assert lookup.look_up([vm("a", pid=2)])["a"].extra_specs == SPECS


def test_it_is_at_rest_while_it_waits_for_a_nova_that_is_away(nova: Nova) -> None:
    lookup = FlavorLookup(nova, lambda: "n", lambda uuid: None, Backoff(60, 60))  # type: ignore[arg-type]
    lookup.start()
    nova.listing = Unreachable("nova", "refused")
    lookup.look_up([vm("a"), vm("b")])
    eventually(lambda: lookup.error)
    asked, used = len(nova.asked), time.process_time()
    time.sleep(0.3)
    assert len(nova.asked) == asked
    assert time.process_time() - used < 0.2
    lookup.stop()


def test_without_credentials_nobody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "vmqos.conf").write_text("[nova]\nregion_name = RegionOne\n")
    conf = loader.load(["--config-file", str(tmp_path / "vmqos.conf")])
    lookup = FlavorLookup.of(conf, lambda: "node-1", lambda uuid: None)
    lookup.start()
    assert not lookup.is_on
    assert lookup.look_up([replace(vm("a"), name="b")]) == {}
    lookup.stop()
