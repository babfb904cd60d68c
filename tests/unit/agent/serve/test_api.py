# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.unit.telemetry.values import snapshot, vm
from vmqos.agent.remember.changes import Seen, between
from vmqos.agent.remember.event_log import EventLog
from vmqos.agent.sample import minutes_file
from vmqos.agent.sample.history import EXECUTED, SERIES, History
from vmqos.agent.sample.minutes import MinuteHistory, Minutes
from vmqos.agent.sample.piece import PieceFile
from vmqos.agent.serve.api import MOST_NAMED, WAITERS, Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.agent.snapshot import Health, Snapshot
from vmqos.local_api import contract
from vmqos.resctrl.exceptions import NotMounted
from vmqos.telemetry import rates

NOT_READ = "resctrl was not read yet"


def plan(*specs: str) -> tuple[str, dict[str, Any]]:
    """What the API answers to the question for a plan, on a host whose resctrl was not read yet: status and body."""
    agent = SimpleNamespace(snapshot=Snapshot(), health=SimpleNamespace(resctrl_error=NOT_READ))
    api = Api(agent, None, LiveReads())  # type: ignore[arg-type]
    query = urlencode([("spec", spec) for spec in specs])
    told: list[str] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/plan", "QUERY_STRING": query}
    (content,) = api(environ, lambda status, headers: told.append(status))
    return told[0], json.loads(content)


@pytest.mark.parametrize("second", ["hw:cache_ways=3", "hw:cache_ways=2", "hw:cache_ways="])
def test_a_plan_with_one_key_twice_is_refused_and_the_key_is_named(second: str) -> None:
    text = f"'hw:cache_ways' is given twice, as 'hw:cache_ways=2' and as {second!r}: a flavor has one value for a key"
    assert plan("hw:cache_ways=2", "hw:cache_policy=shared", second) == ("400 Bad Request", {"error": text})


@pytest.mark.parametrize(
    ("path", "query", "text"),
    [
        ("/v1/vms", "state=kept", "there is no parameter 'state' here, but none at all"),
        ("/v1/vms/", "state", "there is no parameter 'state' here, but none at all"),
        ("/v1/vms/some", "tasks=", "there is no parameter 'tasks' here, but none at all"),
        ("/v1/plan", "specs=hw:cache_ways%3D2", "there is no parameter 'specs' here, but spec"),
        ("/v1/events", "after=1&since=2", "there is no parameter 'since' here, but after, epoch, wait"),
        ("/v1/telemetry", f"newest=1&{'n' * 99}", f"there is no parameter {'n' * 40!r} here, but newest"),
        (
            "/v1/telemetry/history",
            "second=60&vm=a",
            "there is no parameter 'second' here, but seconds, resolution, vm, series",
        ),
    ],
)
def test_a_parameter_that_would_be_ignored_is_refused_and_named_with_those_that_are_known(
    path: str, query: str, text: str
) -> None:
    api = Api(SimpleNamespace(snapshot=Snapshot()), None, LiveReads())  # type: ignore[arg-type]
    told: list[str] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query}
    (content,) = api(environ, lambda status, headers: told.append(status))
    assert (told, json.loads(content)) == (["400 Bad Request"], {"error": text})


def test_all_that_has_parameters_is_asked_for_by_a_path_that_is_there() -> None:
    agent = SimpleNamespace()
    neighbours = SimpleNamespace(samples=None, verdicts=None)
    api = Api(agent, None, LiveReads(), neighbours=neighbours)  # type: ignore[arg-type]
    assert contract.TAKEN_BY.keys() <= api._routes.keys()


def test_a_plan_with_several_keys_is_understood() -> None:
    assert plan("hw:cache_ways=2", "hw:cache_policy=shared") == ("503 Service Unavailable", {"error": NOT_READ})


@pytest.mark.parametrize(
    ("health", "text"),
    [
        (Health(looked=True), "no VM u runs on this host"),
        (Health(), "whether VM u runs on this host is not known yet"),
        (Health(looked=True, unserved={"v": "no PID file"}), "no VM u runs on this host"),
        (Health(looked=True, unserved={"u": "no PID file"}), "VM u runs, and is not served: no PID file"),
    ],
)
def test_a_vm_of_which_nothing_is_known_is_told_not_to_run_only_where_that_is_known(health: Health, text: str) -> None:
    agent = SimpleNamespace(snapshot=Snapshot(), health=health)
    told: list[str] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/vms/u", "QUERY_STRING": ""}
    (content,) = Api(agent, None, LiveReads())(environ, lambda status, headers: told.append(status))  # type: ignore[arg-type]
    assert (told, json.loads(content)) == (["404 Not Found"], {"error": text})


def test_a_name_that_is_no_utf_8_is_told_as_it_is() -> None:
    agent = SimpleNamespace(filesystem=SimpleNamespace())
    live = SimpleNamespace(read=lambda read: [{"name": "g\udcff\N{SNOWMAN}"}])
    (content,) = Api(agent, None, live)(  # type: ignore[arg-type]
        {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/groups"}, lambda status, headers: None
    )
    assert json.loads(content) == {"groups": [{"name": "g\udcff\N{SNOWMAN}"}]}


class Counters:
    """What a regular look at the counters found a while ago, and what a look finds now."""

    interval = 2.0

    def __init__(self) -> None:
        now = time.monotonic()
        first = snapshot(vm((0, 100, 60)), monotonic=now - 4)
        self.regular = snapshot(vm((4096, 300, 80), read_at=12.0), monotonic=now - 2)
        self.rates = rates(first, self.regular)
        self.now = replace(snapshot(vm((8192, 500, 90), read_at=13.0)), monotonic=now)

    def sampled(self) -> Any:
        return self.regular, self.rates

    def newest(self) -> Any:
        return self.now

    def measured(self) -> Any:
        return {}


def telemetry(query: str, counters: Any) -> tuple[str, dict[str, Any]]:
    """What the API answers to the question for the counters: status and body."""
    api = Api(None, counters, LiveReads())  # type: ignore[arg-type]
    told: list[str] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/telemetry", "QUERY_STRING": query}
    (content,) = api(environ, lambda status, headers: told.append(status))
    return told[0], json.loads(content)


@pytest.mark.parametrize("query", ["", "newest=0", "newest="])
def test_the_counters_of_the_last_regular_look_are_told_with_bandwidths(query: str) -> None:
    _, told = telemetry(query, Counters())
    assert told["vms"]["u"]["totals"]["llc_occupancy"] == 4096
    assert told["vms"]["u"]["rates"] == {"total": 100.0, "local": 10.0, "remote": 90.0}
    assert 2 <= told["age_seconds"] < 60


def test_the_newest_counters_are_told_without_bandwidths() -> None:
    _, told = telemetry("newest=1", Counters())
    assert told["vms"]["u"]["totals"]["llc_occupancy"] == 8192
    assert set(told["vms"]["u"]["rates"].values()) == {None}
    assert set(told["vms"]["u"]["rates_missing"].values()) == {"no-previous"}
    assert (told["interval"], told["vms"]["u"]["generation"]) == (2.0, "1")
    assert 0 <= told["age_seconds"] < 2


def test_newest_counters_that_can_not_be_read_are_an_error() -> None:
    def newest() -> Any:
        raise NotMounted(path="/sys/fs/resctrl", mend="mount it")

    status, told = telemetry("newest=1", SimpleNamespace(newest=newest))
    assert status == "503 Service Unavailable"
    assert "/sys/fs/resctrl" in told["error"]


def events(api: Api, query: str) -> tuple[str, dict[str, Any]]:
    """What the API answers to the question for events: status and body."""
    told: list[str] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/events", "QUERY_STRING": query}
    (content,) = api(environ, lambda status, headers: told.append(status))
    return told[0], json.loads(content)


def logging_api() -> tuple[Api, EventLog]:
    log = EventLog()
    agent = SimpleNamespace(events=log)
    return Api(agent, None, LiveReads()), log  # type: ignore[arg-type]


def test_events_after_a_number_are_told() -> None:
    api, log = logging_api()
    log.add(between(Seen({}, {}), Seen({}, {"resctrl": "gone", "libvirt": "gone, too"})))
    status, told = events(api, "after=1")
    assert (status, told["epoch"], [event["name"] for event in told["events"]]) == ("200 OK", log.epoch, ["libvirt"])
    assert len(events(api, f"after=2&epoch={log.epoch}")[1]["events"]) == 0
    assert len(events(api, "after=2&epoch=other&wait=30")[1]["events"]) == 2, "there is something to tell at once"


@pytest.mark.parametrize(
    "query",
    [
        "after=-1",
        "after=x",
        "wait=nan",
        "wait=inf",
        "wait=-1",
        "wait=1e999",
        "after=1_0",
        "after=%201",
        "after=%D9%A1",
        "after=%2B1",
        f"after={'1' * 5000}",
    ],
)
def test_a_number_of_events_or_seconds_that_can_not_be_is_refused(query: str) -> None:
    status, told = events(logging_api()[0], query)
    assert status == "400 Bad Request" and "can't be" in told["error"]


def test_only_some_clients_wait_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmqos.agent.serve.api.LONGEST_WAIT", 120.0)
    api, log = logging_api()
    waiting = [threading.Thread(target=events, args=(api, "wait=1e9")) for _ in range(WAITERS)]
    for thread in waiting:
        thread.start()
    try:
        while api._waits.acquire(blocking=False):
            api._waits.release()
            time.sleep(0.01)
        assert events(api, "wait=1e9") == events(api, "")
        assert all(thread.is_alive() for thread in waiting), "one more client does not wait"
    finally:
        log.close()
        for thread in waiting:
            thread.join(60)


def test_a_client_waits_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmqos.agent.serve.api.LONGEST_WAIT", 0.5)
    began = time.monotonic()
    assert events(logging_api()[0], "wait=1e9")[1]["events"] == []
    assert 0.5 <= time.monotonic() - began < 60


def past(query: str, vms: int = 3) -> tuple[str, dict[str, Any]]:
    """What the API answers to the question for the past of VMs that ran for the last two hours: status and body."""
    minutes, now = MinuteHistory(1440), time.time()
    for minute in range(120, -1, -1):
        minutes.add(now - 60 * minute, {f"vm{number}": (4096.0, None, 1.0, 2.0) for number in range(vms)})
    ring = History(4, SERIES + EXECUTED)
    ring.add(now, {f"vm{number}": (4096.0, 7.0, None, 2.0, 1.5, 2e9, 3.0, 1.0) for number in range(vms)})
    history = SimpleNamespace(
        interval=2.0, past=lambda seconds, *wanted: ring.columns(now - seconds, *wanted), minutes=minutes
    )
    told: list[str] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/telemetry/history", "QUERY_STRING": query}
    (content,) = Api(None, history, LiveReads())(environ, lambda status, _: told.append(status))  # type: ignore[arg-type]
    return told[0], json.loads(content)


def test_the_last_seconds_are_told_in_the_series_that_are_named() -> None:
    status, told = past("series=total&series=instructions_per_cycle&series=core_watts&vm=vm1")
    assert (status, told["vms"]) == ("200 OK", {"vm1": {"total": [7], "instructions_per_cycle": [1.5]}})
    assert set(past("seconds=60")[1]["vms"]["vm2"]) == {*SERIES, *EXECUTED}


def test_a_series_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    status, told = past("series=total&series=bandwidth")
    assert status == "400 Bad Request"
    assert told["error"].startswith("series='bandwidth' can't be: write one of llc_occupancy, total, local")


def test_an_hour_of_minutes_is_told_of_all_vms() -> None:
    status, told = past("resolution=60")
    assert (status, told["resolution"], set(told["vms"])) == ("200 OK", 60, {"vm0", "vm1", "vm2"})
    assert 59 <= len(told["times"]) <= 60
    assert told["vms"]["vm0"]["llc_occupancy"]["greatest"] == [4096] * len(told["times"])
    assert told["vms"]["vm0"]["total"]["mean"] == [None] * len(told["times"])


def test_more_than_an_hour_is_told_of_vms_that_are_named() -> None:
    status, told = past("resolution=60&seconds=86400&vm=vm1&vm=other")
    assert (status, set(told["vms"]), len(told["times"])) == ("200 OK", {"vm1"}, 120)
    named = "&".join(f"vm=vm{number}" for number in range(MOST_NAMED))
    assert len(past(f"resolution=60&seconds=86400&{named}", vms=20)[1]["vms"]) == MOST_NAMED


@pytest.mark.parametrize(
    "query", ["seconds=3601", "seconds=86400&" + "&".join(f"vm=vm{number}" for number in range(MOST_NAMED + 1))]
)
def test_more_than_an_hour_of_too_many_vms_is_refused(query: str) -> None:
    status, told = past(f"resolution=60&{query}")
    assert status == "400 Bad Request"
    assert told["error"] == "more than 3600 seconds are told of 8 VMs at most: name them with vm=UUID"


@pytest.mark.parametrize("resolution", ["1", "60.5", "sixty", "nan", "-60", "0"])
def test_another_resolution_is_refused(resolution: str) -> None:
    status, told = past(f"resolution={resolution}")
    assert status == "400 Bad Request"
    assert told["error"].startswith(f"resolution={resolution}") or repr(resolution) in told["error"]


def test_without_a_resolution_each_look_is_told() -> None:
    assert past("seconds=600")[1].keys() == past("resolution=")[1].keys() == {"interval", "times", "vms"}


def test_a_disk_that_does_not_answer_is_told_and_the_last_hour_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = minutes_file.write, MinuteHistory.packed

    def hanging(*arguments: int) -> bytes:
        raise TimeoutError(errno.ETIMEDOUT, "the disk does not answer")

    def stored(history: MinuteHistory, *wanted: Any) -> Minutes:
        write(str(tmp_path / "minutes"), read(history))
        return copy(history, *wanted)

    copy = MinuteHistory.copy
    monkeypatch.setattr(MinuteHistory, "copy", stored)
    monkeypatch.setattr(PieceFile, "read", hanging)
    status, told = past("resolution=60&seconds=86400&vm=vm1")
    assert (status, told) == (
        "503 Service Unavailable",
        {"error": "what is older than an hour or two can't be told: the disk does not answer"},
    )
    assert past("resolution=60")[0] == "200 OK"
