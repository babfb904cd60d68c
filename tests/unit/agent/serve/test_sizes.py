# SPDX-License-Identifier: Apache-2.0
"""The curves that the agent remembers: who may tell them, what is none, and when they are forgotten."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.unit.agent.serve.test_vms import UUID, snapshot, with_record
from tests.unit.local_api import examples
from vmqos.agent.serve import sizes
from vmqos.agent.serve.api import Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.agent.serve.sizes import BadSize, Sizes
from vmqos.agent.snapshot import Health
from vmqos.daemon.unix_server import UnixServer
from vmqos.hypervisor.model import Process
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentRefused

PID = 100
CURVE = "2:0.9:1.61,3:0.5:1"
GOOD = {"pid": "100", "ways": "3", "at_least": "false", "counted": "true", "steady": "true", "curve": CURVE}


class Played:
    """What the API asks of an agent, and its two sockets.

    :ivar client: asks on the agent's own socket, ``gateway`` on the gateway's.
    """

    def __init__(self, folder: Path, triers: set[int]) -> None:
        self.agent = SimpleNamespace(snapshot=snapshot(), health=Health(looked=True))
        remembered = Sizes(lambda: self.agent.snapshot)
        live, own = LiveReads(), {os.geteuid()}
        self.paths = [str(folder / name) for name in ("agent.sock", "gateway.sock")]
        apis = (
            Api(self.agent, None, live, triers=triers, sizes=remembered),  # type: ignore[arg-type]
            Api(self.agent, None, live, own, sizes=remembered),  # type: ignore[arg-type]
        )
        self.servers = [
            UnixServer(api, "[api] socket", path, mode="600") for api, path in zip(apis, self.paths, strict=True)
        ]
        for server in self.servers:
            server.start()
        self.client, self.gateway = map(AgentClient, self.paths)

    def put(self, uuid: str = UUID, socket: int = 0, /, **changes: str | None) -> tuple[int, str]:
        """The status, and the error, of an answer to a curve that is good but for the changes."""
        query = {name: value for name, value in (GOOD | changes).items() if value is not None}
        transport = httpx.HTTPTransport(uds=self.paths[socket])
        with httpx.Client(transport=transport, base_url="http://vmqos-agent") as http:
            answer = http.put(f"/v1/sizes/{uuid}", params=query)
        return answer.status_code, str(answer.json().get("error", ""))

    def run_again(self, process: Process) -> None:
        """Another run of the VM has begun."""
        observed = self.agent.snapshot.vms[UUID].observed
        again = replace(observed, vm=replace(observed.vm, process=process))
        self.agent.snapshot = with_record(self.agent.snapshot, observed=again)


Play = Callable[..., Played]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    made: list[Played] = []

    def make(triers: set[int] | None = None) -> Played:
        made.append(Played(tmp_path, {os.geteuid()} if triers is None else triers))
        return made[-1]

    yield make
    for server in (server for played in made for server in played.servers):
        server.stop()


def test_what_is_told_is_remembered_and_told_on_both_sockets(play: Play) -> None:
    played = play()
    assert played.client.sizes() == []
    began = time.time()
    played.client.tell_size(UUID, PID, examples.found_size())
    (told,) = played.client.sizes()
    assert began <= told["found_at"] <= time.time()
    assert told == {"uuid": UUID, "found_at": told["found_at"], **examples.found_size()}
    assert played.gateway.sizes() == [told]


def test_without_a_pmu_the_parts_are_of_the_traffic(play: Play) -> None:
    played = play()
    assert played.put(counted="false", curve="2:1,3:0.25")[0] == 200
    assert played.client.sizes()[0]["curve"] == [
        {"ways": 2, "missed": None, "traffic_part": 1.0, "slower": None},
        {"ways": 3, "missed": None, "traffic_part": 0.25, "slower": None},
    ]


@pytest.mark.parametrize("part", [None, "code", "data"])
def test_what_the_ways_are_for_is_remembered(part: str | None, play: Play) -> None:
    played = play()
    assert played.put(part=part) == (200, "")
    assert [one.get("part") for one in played.client.sizes()] == [part or ""]
    assert played.put(part="both")[0] == 400


def test_of_a_vm_the_last_one_is_remembered_alone(play: Play) -> None:
    played = play()
    for ways in ("2", "3"):
        assert played.put(ways=ways) == (200, "")
    (told,) = played.client.sizes()
    assert told["ways"] == 3


def test_it_is_forgotten_with_the_vm(play: Play) -> None:
    played = play()
    played.put()
    running = played.agent.snapshot
    played.agent.snapshot = replace(running, vms={})
    assert played.client.sizes() == []
    assert played.put() == (404, f"no VM {UUID} runs on this host")
    played.agent.snapshot = running
    assert played.client.sizes() == [], "it is not only left out"


@pytest.mark.parametrize("process", [Process(101, 9), Process(PID, 9)], ids=["another PID", "the PID of before"])
def test_it_is_forgotten_when_another_run_of_the_vm_begins(process: Process, play: Play) -> None:
    played = play()
    played.put()
    played.run_again(process)
    assert played.client.sizes() == []


def test_a_curve_of_an_earlier_run_is_refused(play: Play) -> None:
    played = play()
    played.run_again(Process(101, 9))
    assert played.put() == (404, f"VM {UUID} runs as process 101, and not as 100: it was started again")
    assert played.client.sizes() == []


@pytest.mark.parametrize(
    ("health", "error"),
    [
        (Health(looked=True, unserved={UUID: "no PID file"}), f"VM {UUID} runs, and is not served: no PID file"),
        (Health(looked=False), f"whether VM {UUID} runs on this host is not known yet"),
    ],
)
def test_a_vm_of_which_nothing_is_known_is_not_said_to_have_ended(health: Health, error: str, play: Play) -> None:
    played = play()
    played.agent.snapshot, played.agent.health = replace(played.agent.snapshot, vms={}), health
    assert played.put() == (404, error)


def test_another_user_is_refused_by_what_the_kernel_says_of_him(play: Play) -> None:
    played = play({os.geteuid() + 1})
    with pytest.raises(AgentRefused, match=f"only root may tell .* user {os.geteuid()} is not root"):
        played.client.tell_size(UUID, PID, examples.found_size())
    assert played.client.sizes() == []


def test_the_gateways_socket_takes_none(play: Play) -> None:
    played = play()
    assert played.put(UUID, 1)[0] == 405
    assert played.client.sizes() == []


@pytest.mark.parametrize("uuid", ["other", "x" * 500, "", "a/b"])
def test_a_vm_that_does_not_run_has_none(uuid: str, play: Play) -> None:
    played = play()
    status, error = played.put(uuid)
    # Without a UUID, it is the path that everybody may only read.
    assert status == (404 if uuid else 405) and len(error) < 200
    assert played.client.sizes() == []


TRUTHS = [(name, text, "true or false is allowed") for name in ("at_least", "counted", "steady") for text in ("", "1")]
PARTS = ["2", "2:", "2:0.9:1:1", ":0.9", "0:0.9", "-2:0.9", "65:0.9", "1e1:0.9", "2:0.9,", ",2:0.9", "\u0662:0.9"]
NUMBERS = [
    "2:x",
    "2:-1",
    "2:nan",
    "2:inf",
    "2:1e-3",
    "2:1_0",
    "2:1000.1",
    "2:0.1234567890",
    "2:.5",
    "2:1:x",
    "2:\u0662",
]


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        *TRUTHS,
        *(("pid", text, "an integer from 1 up") for text in ("", "0", "-1", "1.0", "x", "9" * 11)),
        *(("ways", text, "an integer from 1 up") for text in ("", "0", "3.0", "\u0663")),
        *(("ways", text, "one of those in curve is allowed") for text in ("4", "9999999999")),
        *(("curve", text, "1 to 64 ways|decimal numbers") for text in (*PARTS, *NUMBERS)),
        *(("curve", text, "more ways than in the point before") for text in ("3:1,3:1", "3:1,2:1")),
        ("curve", ",".join(f"{ways}:1" for ways in range(1, 66)), "64 points at most"),
        ("curve", "2:0.9" + 5_000 * ",", "1 to 64 ways"),
    ],
)
def test_a_value_that_can_not_be_is_named_with_what_is_allowed(name: str, text: str, allowed: str, play: Play) -> None:
    played = play()
    status, error = played.put(**{name: text})
    assert status == 400 and error.startswith(f"{name}=") and len(error) < 200
    assert any(one in error for one in allowed.split("|")), error
    assert played.client.sizes() == []


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_value_that_is_missing_is_named(name: str, play: Play) -> None:
    assert play().put(**{name: None}) == (400, f"{name} is missing")


def test_the_longest_curve_is_taken(play: Play) -> None:
    played = play()
    curve: list[contract.SizePoint] = [
        {"ways": ways, "missed": 999.1234, "traffic_part": None, "slower": 1000.0}
        for ways in range(1, sizes.MOST_WAYS + 1)
    ]
    size: Any = examples.found_size() | {"curve": curve}
    played.client.tell_size(UUID, PID, size)
    assert played.client.sizes()[0]["curve"] == curve


def test_a_number_that_is_none_is_not_told() -> None:
    with pytest.raises(BadSize, match="curve='nan' can't be"):
        sizes.parsed({name: [text] for name, text in (GOOD | {"curve": "2:nan,3:0.5"}).items()})
