# SPDX-License-Identifier: Apache-2.0
"""``vmqos neighbours VM --confirm``, against an agent that is played; with a real one in tests/functional/insight."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.streams import Stream
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent, serving
from vmqos.cli.common import lease
from vmqos.cli.neighbours import ask, confirm
from vmqos.local_api.client import AgentClient
from vmqos.version import version

WEB, BATCH = examples.WEB, examples.BATCH
INTERVAL = 1.0
REAL = time
REAL_OFFSET = time.time() - time.monotonic()


class TrialAgent(FakeAgent):
    """An agent that makes trials: BATCH slows WEB, until it is limited.

    :ivar said: what was said of trials: method, UUID, and the query without the key.
    :ivar refusals: how a question for a trial is answered instead, by its number.
    :ivar is_thief: whether WEB fares better while BATCH is limited.
    :ivar is_limited: whether BATCH is.
    :ivar keeps_cache: whether it holds as much as ever meanwhile, where it is confined to ways.
    :ivar unit: of limits of bandwidth; ``None``: it is confined to ways.
    :ivar late: how many answers lack the samples from ``read_until`` on.
    :ivar skipped: seconds that were waited for, which pass at once.
    :ivar steps: when the clock was set, by the monotonic one, and by how many seconds.
    :ivar puts_back: whether BATCH has what it had once the trial is over.
    """

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str, dict[str, str]]] = []
        self.keys: set[str] = set()
        self.refusals: dict[int, tuple[str, str]] = {}
        self.is_thief = True
        self.is_limited = False
        self.puts_back = True
        self.unit: str | None = "%"
        self.keeps_cache = False
        self.tells_samples = True
        self.late, self.read_until = 0, 0.0
        self.skipped = 0.0
        self.steps: list[tuple[float, float]] = []
        self.answers["/v1/vms"] = lambda query: ("200 OK", json.dumps({"vms": self.vms()}).encode())
        self.answers["/v1/neighbours/samples"] = lambda query: ("200 OK", json.dumps(self.samples(query)).encode())

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
        path = environ["PATH_INFO"]
        if not path.startswith("/v1/trials/"):
            return super().__call__(environ, start_response)
        query = {name: values[-1] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
        self.keys.add(query.pop("key"))
        method, uuid = environ["REQUEST_METHOD"], path.removeprefix("/v1/trials/")
        status, body = self.refusals.get(len(self.said), ("200 OK", ""))
        self.said.append((method, uuid, query))
        if not body:
            self.is_limited = method == "PUT" or not self.puts_back
            unit, limit = (self.unit, 20) if self.unit is not None else ("ways", 2)
            running = {"uuid": uuid, "limit": limit, "unit": unit, "in_force": not query, "seconds_left": 50.0}
            answer: dict[str, Any] = {"trial": None if method == "DELETE" else running}
        else:
            answer = {"error": body}
        content = json.dumps(answer).encode()
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
        return [content]

    def vms(self) -> list[Any]:
        found = [vm | {"bandwidth_unit": self.unit, "bandwidth": {}} for vm in examples.vms()]
        if self.is_limited:
            batch = next(vm for vm in found if vm["uuid"] == BATCH)
            if self.unit is None:
                batch |= {"group": f"vmqos.{BATCH}", "masks": {"0": "600", "1": "600"}, "policy": "exclusive"}
            else:
                batch |= {"bandwidth": {"0": 20}, "group": "vmqos.shared-ways2-mb20"}
        return found

    def wait(self, until: float, each: Callable[[float], None], began: float) -> None:
        """What the command waits for is over at once."""
        self.skipped += max(0.0, until - self.monotonic())
        each(until - began)

    def monotonic(self) -> float:
        return REAL.monotonic() + self.skipped

    def time(self) -> float:
        return self.wall(self.monotonic())

    def wall(self, moment: float) -> float:
        """What the clock says, or said, at a moment of the monotonic one."""
        return moment + REAL_OFFSET + sum(step for when, step in self.steps if when <= moment)

    def samples(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """Samples of the last minutes: one in each second, as the VMs fare when they are asked for."""
        fares = self.is_limited and self.is_thief
        newest, chance = math.floor(self.monotonic() / INTERVAL), [1.0, 1.01, 0.99]
        told: dict[str, list[Any]] = {WEB: [], BATCH: []}
        for number in range(newest - 119, newest + 1):
            vary, moment = chance[number % 3], self.wall(INTERVAL * number)
            counts = {"cycles": 1e9 * vary, "instructions": (1e9 if fares else 5e8), "references": 2e7, "misses": 1e6}
            counts["references"] *= counts["instructions"] / 1e9
            is_confined = self.is_limited and self.unit is None
            moved = 8e8 if self.is_limited and not is_confined else 4e9
            held = 1e6 if is_confined and not self.keeps_cache else 8e6
            told[WEB].append({"time": moment, "occupancy": {"0": 4e6}, "bandwidth": 1e8 * vary, "counts": counts})
            told[BATCH].append({"time": moment, "occupancy": {"0": held}, "bandwidth": moved, "counts": None})
        if self.late:
            self.late -= 1
            self.read_until = self.read_until or told[WEB][-30]["time"]
            told = {uuid: [one for one in of if one["time"] < self.read_until] for uuid, of in told.items()}
        since = float(query.get("since", ["0"])[0])
        told = {uuid: [one for one in of if one["time"] > since] for uuid, of in told.items()}
        host = {"caches": {}, "vms": {}, "memory_seconds": 1e-7, "memory_cycles": 250.0}
        return {"host": host, "samples": told if self.tells_samples else {}}


@pytest.fixture
def trials(socket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrialAgent]:
    """The agent; the command waits for nothing."""
    agent = TrialAgent()
    monkeypatch.setattr(confirm, "wait", agent.wait)
    for module in (confirm, ask):
        monkeypatch.setattr(module, "time", agent)
    with serving(agent, socket):
        yield agent


BEGIN = ("PUT", BATCH, {"hw:mem_bandwidth_percent": "20"})
AGAIN, BACK = ("PUT", BATCH, {}), ("DELETE", BATCH, {})


def test_the_neighbour_is_held_back_meanwhile_and_the_verdict_is_said_with_its_figures(
    trials: TrialAgent, run: Run
) -> None:
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert (ran.status, ran.err) == (0, "before the trial ...\nbatch is limited ...\nafter the trial ...\n")
    assert trials.said == [BEGIN, AGAIN, AGAIN, BACK] and len(trials.keys) == 1
    first, why, factor, limit, _, *table = ran.out.splitlines()
    assert first == "Confirmed: batch slows web-1."
    assert why == "Cycles for an instruction: 2.00 before, 1.00 during and 2.00 after the trial."
    assert factor == "That is better by a factor of 2.0 or more."
    assert limit == "batch was limited to 20 % of memory bandwidth for 10 s, and has what it had before again."
    assert [cell.strip() for cell in table[1].split("|")[1:-1]] == ["Figure", "Before", "During", "After"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table if "|" in line][1:]
    assert ["Traffic of batch", "3815 MiB/s", "763 MiB/s", "3815 MiB/s"] in rows
    assert ["Cycles for an instruction", "2.00", "1.00", "2.00"] in rows


def test_a_neighbour_whose_victim_fares_no_better_is_not_confirmed(trials: TrialAgent, run: Run) -> None:
    trials.is_thief = False
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert ran.status == 4
    assert ran.out.startswith("Not confirmed: web-1 fared no better while batch was held back.\n")


def test_without_samples_nothing_can_be_told(trials: TrialAgent, run: Run) -> None:
    trials.tells_samples = False
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert ran.status == 5
    assert ran.out.startswith(
        "It can't be told whether batch slows web-1.\nThere are too few samples before and during and after.\n"
    )


def test_a_phase_takes_longer_where_the_agent_is_late_with_its_samples(trials: TrialAgent, run: Run) -> None:
    trials.late = 2
    assert run("neighbours", "web-1", "--confirm", "--yes").status == 0
    trials.late = 100
    assert run("neighbours", "web-1", "--confirm", "--yes").status == 5


def test_programs_get_an_object_and_scripts_a_row_for_each_figure(trials: TrialAgent, run: Run) -> None:
    ran = run("neighbours", "web-1", "--confirm", "--yes", "--seconds", "20", "-f", "json")
    told = json.loads(ran.out)
    figures = {one["figure"]: one for one in told.pop("figures")}
    assert told.pop("faster") == pytest.approx(2.0) and "2.00 before" in told.pop("reason")
    assert told == {
        "victim": WEB, "culprit": BATCH, "cause": "cache", "limit": 20, "unit": "%", "seconds": 20.0,
        "verdict": "confirmed",
    }  # fmt: skip
    assert figures["cycles_per_instruction"]["during"] == pytest.approx(1.0)
    assert json.loads(run("neighbours", "web-1", "--confirm", "--yes", "-f", "json", "-c", "verdict").out) == {
        "verdict": "confirmed"
    }
    rows = list(csv.DictReader(run("neighbours", "web-1", "--confirm", "--yes", "-f", "csv").out.splitlines()))
    assert float(next(row for row in rows if row["Figure"] == "traffic_of_culprit")["During"]) == 8e8


def test_the_operator_may_name_the_neighbour_and_the_limit(trials: TrialAgent, run: Run) -> None:
    ran = run("neighbours", "web-1", "--confirm", "--yes", "--culprit", "db-1", "--limit", "30")
    assert trials.said[0] == ("PUT", examples.DB, {"hw:mem_bandwidth_percent": "30"})
    assert ran.out.startswith("Confirmed: db-1 slows web-1.\n")
    assert "Traffic of db-1" not in ran.out, "nothing counts it"


def test_a_limit_above_100_per_cent_is_refused_before_anything_is_measured(trials: TrialAgent, run: Run) -> None:
    ran = run("neighbours", "web-1", "--confirm", "--yes", "--limit", "300")
    told = (
        "--limit 300 is more than 100, and this host limits memory bandwidth in per cent; see 'vmqos help neighbours'"
    )
    assert (ran.status, ran.out, ran.err, trials.said) == (2, "", f"vmqos: {told}\n", [])


@pytest.mark.parametrize(("options", "limit"), [((), "800"), (("--limit", "300"), "300")])
def test_where_bandwidth_is_limited_in_mbps_the_limit_is_a_part_of_what_is_moved(
    options: tuple[str, ...], limit: str, trials: TrialAgent, run: Run
) -> None:
    trials.unit = "MB/s"
    run("neighbours", "web-1", "--confirm", "--yes", *options)
    assert trials.said[0] == ("PUT", BATCH, {"hw:mem_bandwidth_mbps": limit})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--confirm",), "--confirm takes the VM that is slowed"),
        (("web-1", "--culprit", "batch"), "--culprit belongs to --confirm"),
        (("web-1", "--seconds", "5"), "--seconds belongs to --confirm"),
        (("--yes",), "--yes belongs to --confirm"),
        (("web-1", "--confirm", "--watch"), "--confirm is done once: leave --watch out"),
        (("web-1", "--confirm", "--culprit", "web-1"), "a VM is not its own neighbour"),
        (("web-1", "--confirm", "--culprit", "nobody"), "no running VM has the UUID or name 'nobody'"),
        (("db-1", "--confirm", "--yes"), "no VM is said to slow db-1, so it is not known whom to hold back"),
        (("web-1", "--confirm"), "nothing was changed: there is no terminal to ask on; say --yes"),
    ],
)
def test_what_can_not_be_asked_is_refused_before_anything_is_done(
    arguments: tuple[str, ...], text: str, trials: TrialAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    ran = run("neighbours", *arguments)
    status = 2 if "see 'vmqos help neighbours'" in ran.err else 1
    assert (ran.status, ran.out, trials.said) == (status, "", []) and text in ran.err


CONFINE = ("PUT", BATCH, {"hw:cache_ways": "2", "confine": "true"})


def test_where_bandwidth_can_not_be_limited_a_thief_of_cache_is_confined_to_a_few_ways(
    trials: TrialAgent, run: Run
) -> None:
    trials.unit = None
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert (ran.status, ran.err) == (0, "before the trial ...\nbatch is confined ...\nafter the trial ...\n")
    assert trials.said == [CONFINE, AGAIN, AGAIN, BACK]
    first, why, _, limit, _, *table = ran.out.splitlines()
    assert first == "Confirmed: batch slows web-1."
    assert why == "Cycles for an instruction: 2.00 before, 1.00 during and 2.00 after the trial."
    assert limit == "batch filled 2 ways alone, and no others, for 10 s, and has what it had before again."
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table if "|" in line]
    assert ["Held by batch", "7.6 MiB", "977 KiB", "7.6 MiB"] in rows
    assert ["Traffic of batch", "3815 MiB/s", "3815 MiB/s", "3815 MiB/s"] in rows
    told = json.loads(run("neighbours", "web-1", "--confirm", "--yes", "-f", "json").out)
    assert (told["limit"], told["unit"], told["cause"]) == (2, "ways", "cache")
    assert told["figures"][-1] == {"figure": "held_of_culprit", "before": 8e6, "during": 1e6, "after": 8e6}


def test_a_confined_neighbour_is_not_cleared_of_taking_bandwidth(trials: TrialAgent, run: Run) -> None:
    trials.unit, trials.is_thief = None, False
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert ran.status == 4 and ran.out.startswith("Not confirmed: web-1 fared no better")
    assert "\nThat is about the cache alone: whether it takes memory's bandwidth was not tried.\n" in ran.out


def test_of_a_confined_neighbour_that_holds_as_much_as_ever_nothing_can_be_said(trials: TrialAgent, run: Run) -> None:
    trials.unit, trials.keeps_cache, trials.is_thief = None, True, False
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert ran.status == 5
    assert "Few ways did not hold the neighbour back, which held 7.6 MiB before and 7.6 MiB during" in ran.out


@pytest.mark.parametrize(
    ("promised", "options", "spec"),
    [
        ({}, (), {"hw:cache_ways": "2"}),
        ({}, ("--limit", "3"), {"hw:cache_ways": "3"}),
        ({"ways_requested": 4}, (), {"hw:cache_ways": "4"}),
        ({"ways_requested": None, "policy": None, "state": "none"}, (), {"hw:cache_ways": "2"}),
        ({"ways_requested": 2, "code_ways_requested": 1, "data_ways_requested": 1}, (), {
            "hw:cache_code_ways": "1", "hw:cache_data_ways": "1",
        }),
        ({"ways_requested": 5, "code_ways_requested": 1, "data_ways_requested": 4}, (), {
            "hw:cache_code_ways": "1", "hw:cache_data_ways": "4",
        }),
    ],
)  # fmt: skip
def test_a_neighbour_is_confined_to_no_fewer_ways_than_it_shares(
    promised: dict[str, Any], options: tuple[str, ...], spec: dict[str, str], trials: TrialAgent, run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    trials.unit = None
    running = trials.vms
    monkeypatch.setattr(trials, "vms", lambda: [vm | promised if vm["uuid"] == BATCH else vm for vm in running()])
    run("neighbours", "web-1", "--confirm", "--yes", *options)
    assert trials.said[0] == ("PUT", BATCH, {**spec, "confine": "true"})


@pytest.mark.parametrize(
    ("cause", "caches", "why"),
    [
        ("memory-bandwidth", examples.caches(), "and ways do not keep a VM from memory"),
        ("cache", [], "nor can the L3 be partitioned (info/L3)"),
    ],
)
def test_a_host_on_which_the_neighbour_can_not_be_held_back_is_told_so(
    cause: str, caches: list[Any], why: str, trials: TrialAgent, run: Run
) -> None:
    trials.unit = None
    (pair,) = examples.neighbours()["pairs"]
    trials.answers["/v1/neighbours"] = examples.neighbours(interval=INTERVAL, pairs=[pair | {"cause": cause}])
    trials.answers["/v1/caches"] = {"caches": caches, "l2_caches": []}
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert (ran.status, trials.said) == (1, []) and "batch can't be held back: this host's memory bandwidth" in ran.err
    assert why in ran.err


def test_before_it_is_confined_it_is_said_what_that_is(
    trials: TrialAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials.unit = None
    monkeypatch.setattr(sys, "stdin", Stream("n\n"))
    said = run("neighbours", "web-1", "--confirm").err
    question = f"For 10 s, batch ({BATCH}) will fill 2 ways of the cache, which no other VM fills, and none besides"
    assert said.startswith(question) and not trials.said


@pytest.mark.parametrize(("interval", "text"), [(0.0, "does not read the counters regularly"), (30.0, "every 30 s")])
def test_too_few_samples_to_come_are_told_before_anything_is_done(
    interval: float, text: str, trials: TrialAgent, run: Run
) -> None:
    trials.answers["/v1/neighbours"] = examples.neighbours(interval=interval)
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert (ran.status, trials.said) == (1, []) and text in ran.err


def test_each_phase_is_long_enough_for_some_samples(trials: TrialAgent, run: Run) -> None:
    trials.answers["/v1/neighbours"] = examples.neighbours(interval=5.0)
    told = json.loads(run("neighbours", "web-1", "--confirm", "--yes", "-f", "json").out)
    assert told["seconds"] == 15.0


def test_a_trial_that_the_agent_refuses_is_told_in_its_words(trials: TrialAgent, run: Run) -> None:
    trials.refusals = {0: ("409 Conflict", "nothing is tried on VM b: its promise is degraded now"), 1: REFUSED}
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert (ran.status, ran.out) == (1, "") and "its promise is degraded now" in ran.err
    assert not trials.is_limited


REFUSED = ("409 Conflict", "there is no such trial")


def test_an_agent_that_knows_no_trials_is_told_to_be_older(trials: TrialAgent, run: Run) -> None:
    older = ("405 Method Not Allowed", "this API only answers GET")
    trials.refusals = {0: older, 1: older}
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert ran.status == 1 and "no trial can be had here: the vmqos-agent that runs is of an earlier" in ran.err


@pytest.mark.parametrize("is_other", [True, False])
def test_an_agent_of_another_version_that_takes_the_question_to_be_wrong_is_named_with_its_version(
    trials: TrialAgent, run: Run, is_other: bool
) -> None:
    wrong = "there is no parameter 'confine' here, but key"
    trials.unit, trials.refusals = None, {0: ("400 Bad Request", wrong)}
    trials.answers["/v1/health"] |= {"version": "0.9\x1b" if is_other else version()}
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert (ran.status, ran.out, trials.is_limited) == (1, "", False)
    assert wrong in ran.err and "\x1b" not in ran.err
    assert ("is of version 0.9\\x1b, this command is of version" in ran.err) == is_other
    assert ("systemctl restart vmqos-agent" in ran.err) == is_other


def test_a_trial_that_ends_before_its_time_says_nothing_of_the_neighbour(trials: TrialAgent, run: Run) -> None:
    trials.refusals = {2: ("409 Conflict", "this trial is over: VM x needs a CLOSID"), 3: REFUSED}
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert (ran.status, ran.out) == (1, "") and trials.said[-1] == BACK
    assert "the trial ended before its time, and nothing can be said: this trial is over: VM x" in ran.err


@pytest.mark.parametrize(
    ("ended_at", "said", "state"),
    [("before", [], "nothing was tried"), ("after", [BEGIN, AGAIN, AGAIN, BACK], "batch has what it had before again")],
)
@pytest.mark.parametrize(("again", "what"), [(False, "has ended"), (True, "was started again")])
def test_a_victim_that_ends_meanwhile_is_told(
    trials: TrialAgent,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    ended_at: str,
    said: list[Any],
    state: str,
    again: bool,
    what: str,
) -> None:
    running = trials.vms

    def after_the_end() -> list[Any]:
        return [*others(running(), WEB), *([one_of(running(), WEB) | {"pid": 99}] if again else [])]

    def end(until: float, each: Callable[[float], None], began: float) -> None:
        trials.wait(until, each, began)
        if ended_at == "before" or trials.is_limited:
            monkeypatch.setattr(trials, "vms", after_the_end)

    monkeypatch.setattr(confirm, "wait", end)
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert (ran.status, ran.out) == (1, "") and trials.said == said
    assert f"nothing can be said: web-1 {what}; {state}\n" in ran.err


def one_of(vms: list[Any], uuid: str) -> Any:
    return next(vm for vm in vms if vm["uuid"] == uuid)


def others(vms: list[Any], uuid: str) -> list[Any]:
    return [vm for vm in vms if vm["uuid"] != uuid]


def test_a_neighbour_that_is_started_again_meanwhile_has_nothing_to_get_back(
    trials: TrialAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = trials.vms

    def resized() -> list[Any]:
        if trials.said[-1:] != [BACK]:
            return running()
        return [*others(running(), BATCH), one_of(running(), BATCH) | {"pid": 99, "group": f"vmqos.{BATCH}"}]

    monkeypatch.setattr(trials, "vms", resized)
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert (ran.status, "does not have yet" in ran.err) == (1, False)
    assert "nothing can be said: batch was started again; nothing of the trial is left\n" in ran.err


def test_ctrl_c_gives_the_trial_back_at_once(trials: TrialAgent, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(until: float, each: Callable[[float], None], began: float) -> None:
        each(until - began)
        if trials.is_limited:
            raise KeyboardInterrupt

    monkeypatch.setattr(confirm, "wait", wait)
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert ran.status == 130 and trials.said[-1] == BACK and not trials.is_limited


def test_a_neighbour_that_does_not_have_again_what_it_had_is_told(
    trials: TrialAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "PATIENCE", 0.3)
    trials.puts_back = False
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert (ran.status, ran.out) == (1, "")
    assert "batch does not have yet what it had before the trial (its control group is vmqos.shared-ways2-" in ran.err


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_clock_that_is_set_meanwhile_makes_no_phase_longer_or_shorter(
    monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    clock, began, passed = time.time, time.monotonic(), list[float]()

    def set_clock(seconds: float) -> None:
        passed.append(seconds)
        monkeypatch.setattr(time, "time", lambda: clock() + step)
        assert time.monotonic() - began < 5, "it waits for the clock"

    # Without samples it takes longer, too.
    monkeypatch.setattr(ask, "samples", lambda *_: {"samples": {}})
    web, batch = (one_of(examples.vms(), uuid) for uuid in (WEB, BATCH))
    parties = confirm.Parties(web, batch, None, -math.inf, "", "%")
    confirm._measure(AgentClient("/nowhere"), parties, 0.0, 0.4, set_clock)
    assert time.monotonic() - began >= 0.8 and passed == sorted(passed) and passed[-1] == pytest.approx(0.8)


@pytest.mark.parametrize("step", [-3600.0, -20.3, -4.3, 3600.3])
@pytest.mark.parametrize("phase", ["before", "during", "after"])
def test_a_clock_that_is_set_in_a_phase_does_not_keep_its_samples_from_being_seen(
    trials: TrialAgent, run: Run, monkeypatch: pytest.MonkeyPatch, phase: str, step: float
) -> None:
    def wait(until: float, each: Callable[[float], None], began: float) -> None:
        now = "during" if trials.is_limited else "after" if trials.said else "before"
        if now == phase and not trials.steps:
            # Early, so that before it there are too few samples to judge by.
            trials.steps.append((trials.monotonic() + 1.5 * INTERVAL, step))
        trials.wait(until, each, began)

    monkeypatch.setattr(confirm, "wait", wait)
    # The neighbour began just now, so that there are no samples before that.
    (pair,) = examples.neighbours()["pairs"]
    trials.answers["/v1/neighbours"] = examples.neighbours(interval=INTERVAL, pairs=[pair | {"since": trials.time()}])
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert len(trials.steps) == 1 and (ran.status, ran.out.splitlines()[0]) == (0, "Confirmed: batch slows web-1.")
    assert trials.skipped < 3 * confirm.SECONDS + 5 * INTERVAL, "no phase takes longer than it has to"


def test_a_moment_is_waited_for_with_the_seconds_that_have_passed() -> None:
    passed, now = list[float](), time.monotonic()
    confirm.wait(now + 0.2, passed.append, now - 1.0)
    assert 0.2 <= time.monotonic() - now < 5 and passed[-1] == pytest.approx(1.2)


def test_a_neighbour_that_began_in_the_future_as_the_clock_says_is_not_waited_for(
    trials: TrialAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()
    monkeypatch.setattr(confirm, "wait", lambda until, each, began: waits.append(until - time.monotonic()))
    (pair,) = examples.neighbours()["pairs"]
    later = time.time() + 3600.0
    trials.answers["/v1/neighbours"] = examples.neighbours(interval=INTERVAL, pairs=[pair | {"since": later}])
    run("neighbours", "web-1", "--confirm", "--yes")
    assert waits and max(waits) < 2 * (confirm.SECONDS + INTERVAL) + INTERVAL


def test_ways_of_the_neighbour_that_lie_elsewhere_after_the_trial_are_as_many_as_before(
    trials: TrialAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = trials.vms

    def moved() -> list[Any]:
        is_over = trials.said[-1:] == [BACK]
        masks = {"masks": {"0": "60"} if is_over else {"0": "3"}}
        return [vm | masks if vm["uuid"] == BATCH else vm for vm in running()]

    monkeypatch.setattr(trials, "vms", moved)
    ran = run("neighbours", "web-1", "--confirm", "--yes")
    assert ran.status == 0 and ran.out.startswith("Confirmed: batch slows web-1.\n")


@pytest.mark.parametrize(("said", "status"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_on_a_terminal_it_says_what_it_will_do_and_asks(
    said: str, status: int, trials: TrialAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Stream(said))
    ran = run("neighbours", "web-1", "--confirm")
    assert ran.status == status and bool(trials.said) == (status == 0)
    question = f"For 10 s, the memory bandwidth of batch ({BATCH}) will be limited to 20 %. web-1 is measured"
    assert ran.err.startswith(question) and "Continue? [y/N] " in ran.err
    assert ("you did not say yes" in ran.err) == (status == 1)
