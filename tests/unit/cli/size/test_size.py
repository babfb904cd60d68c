# SPDX-License-Identifier: Apache-2.0
"""``vmqos size VM``, against an agent that is played; with a real one in tests/functional/insight."""

from __future__ import annotations

import io
import itertools
import json
import logging
import re
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
from vmqos.cli.size import leaving, stepping, view

WEB, BATCH, PLAIN = examples.WEB, examples.BATCH, examples.PLAIN
BASE = 2


class SizeAgent(FakeAgent):
    """An agent that lets WEB have more ways than its two.

    :ivar uuid: the VM that it lets have ways instead of WEB.
    :ivar spec: which ways it lets the VM have.
    :ivar said: what was said of trials: method, UUID, and the query without the key.
    :ivar refusals: how a question for a trial is answered instead, by its number.
    :ivar missed: the share of its references that WEB misses, by ways.
    :ivar work: its references in 1000 instructions, by ways.
    :ivar is_counted: whether there is a PMU, and ``is_read`` whether there are samples.
    :ivar ways: how many WEB has now, and ``held`` how many bytes it holds for each of them.
    :ivar left: bytes that a VM has left in other ways, by ways; with ``goes`` half as much with each look.
    :ivar sees_left: whether anything counts that; it does not of VMs with ways of their ``own``.
    :ivar told: what it was told to remember: each time the UUID and the query, if it ``remembers`` anything.
    :ivar puts_back: whether WEB has what it had once the trial is over.
    """

    def __init__(self) -> None:
        super().__init__()
        self.uuid, self.spec = WEB, "hw:cache_ways"
        self.said: list[tuple[str, str, dict[str, str]]] = []
        self.keys: set[str] = set()
        self.refusals: dict[int, tuple[str, str]] = {}
        self.told: list[tuple[str, dict[str, str]]] = []
        self.remembers = True
        self.missed = {2: 0.9, 3: 0.5, 4: 0.2, 5: 0.18}
        self.work: dict[int, float] = {}
        self.is_counted = self.is_read = self.has_traffic = self.puts_back = True
        self.ways, self.held = BASE, 1e6
        self.left: dict[int, float] = {}
        self.goes, self.sees_left, self.own = False, True, {WEB}
        self.answers["/v1/vms"] = lambda query: ("200 OK", json.dumps({"vms": self.vms()}).encode())
        self.answers["/v1/neighbours/samples"] = lambda query: ("200 OK", json.dumps(self.samples(query)).encode())

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
        path = environ["PATH_INFO"]
        query = {name: values[-1] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
        if path.startswith("/v1/sizes/") and self.remembers:
            uuid = path.removeprefix("/v1/sizes/")
            self.told.append((uuid, query))
            self.answers[path] = {"uuid": uuid}
        if not path.startswith("/v1/trials/"):
            return super().__call__(environ, start_response)
        self.keys.add(query.pop("key"))
        method, uuid = environ["REQUEST_METHOD"], path.removeprefix("/v1/trials/")
        status, error = self.refusals.get(len(self.said), ("200 OK", ""))
        self.said.append((method, uuid, query))
        if error:
            answer: dict[str, Any] = {"error": error}
        elif method == "DELETE":
            self.ways = BASE if self.puts_back else self.ways
            answer = {"trial": None}
        else:
            self.ways = int(query.get(self.spec, self.ways))
            running = {"limit": self.ways, "unit": "ways", "in_force": not query, "seconds_left": 800.0}
            left = self.left.get(self.ways, 0.0)
            self.left[self.ways] = left / 2 if self.goes and not query else left
            has_left = self.sees_left and uuid not in self.own
            answer = {"trial": {"uuid": uuid, **running}, "left_bytes": int(left) if has_left else None}
        content = json.dumps(answer).encode()
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
        return [content]

    @property
    def steps(self) -> list[int]:
        """The ways that were asked for, in this order."""
        return [int(query[self.spec]) for method, _, query in self.said if query]

    def vms(self) -> list[Any]:
        found = examples.vms()
        is_on_trial = bool(self.said) and (self.said[-1][0] != "DELETE" or not self.puts_back)
        if self.uuid == WEB or is_on_trial:
            one = next(vm for vm in found if vm["uuid"] == self.uuid)
            one |= {"masks": dict.fromkeys("01", f"{(1 << self.ways) - 1:x}"), "group": f"vmqos.{self.uuid}"}
        return found

    def samples(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """Some samples since a moment, so that nobody waits for them; the first is of the time before."""
        since, told = float(query.get("since", ["0"])[0]), []
        for number in range(12 if self.is_read else 0):
            references = self.work.get(self.ways, 20.0) * 1e6
            missed = self.missed[self.ways] if number else 1.0
            counts = {
                "cycles": 1e9 * (1 + missed), "instructions": 1e9, "references": references,
                "misses": missed * references,
            }  # fmt: skip
            told.append(
                {
                    "time": since + number + 1,
                    "occupancy": {"0": self.held * self.ways},
                    "bandwidth": missed * 1e9 if self.has_traffic else None,
                    "counts": counts if self.is_counted else None,
                }
            )
        host = {"caches": {}, "vms": {}, "memory_seconds": 1e-7, "memory_cycles": 250.0}
        return {"host": host, "samples": {self.uuid: told}}


@pytest.fixture
def sizes(socket: str) -> Iterator[SizeAgent]:
    agent = SizeAgent()
    with serving(agent, socket):
        yield agent


def test_a_vm_gets_one_way_after_the_other_and_the_curve_is_drawn_with_what_it_needs(
    sizes: SizeAgent, run: Run
) -> None:
    ran = run("size", "web-1", "--yes")
    assert (ran.status, ran.err) == (0, "".join(f"web-1 with {ways} ways ...\n" for ways in (2, 3, 4, 5)))
    assert sizes.steps == [2, 3, 4, 5] and len(sizes.keys) == 1 and {uuid for _, uuid, _ in sizes.said} == {WEB}
    assert sizes.said[-1] == ("DELETE", WEB, {}) and sizes.ways == BASE
    needs, shares, _, titles, *bars, _, costs, gets, command, _ = ran.out.splitlines()
    assert needs == "web-1 needs 4 ways."
    assert shares == "With 4 ways it misses 20.0 % of its references, and 18.0 % with 5."
    assert titles.split() == ["Ways", "Misses"]
    assert [line.split()[0] for line in bars] == ["2", "3", "4", "5"]
    lengths = [line.count("#") for line in bars]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > 2 * lengths[2] > 0
    assert bars[0].endswith("90.0 %, 1.61 x as long") and bars[2].endswith("20.0 %, 1.02 x as long <")
    assert costs == "That costs 2 more ways on each L3 cache that it runs on, of 3 that are free now."
    assert command == "  vmqos flavor set m1.cache-NEW --cache-ways 4", "Nova resizes no VM to the flavor that it has"
    assert gets == "It gets them once it is resized to a copy of its flavor with them:"


CURVE = "2:0.9000:1.6102,3:0.5000:1.2712,4:0.2000:1.0169,5:0.1800:1.0000"


def test_the_agent_is_told_the_curve_to_remember_it(sizes: SizeAgent, run: Run) -> None:
    assert run("size", "web-1", "--yes").status == 0
    sure = {"pid": "4321", "ways": "4", "at_least": "false", "counted": "true", "steady": "true", "curve": CURVE}
    assert sizes.told == [(WEB, sure)]
    run("size", "web-1", "--yes", "--most", "3")
    part = CURVE.partition(",4:")[0].replace("1.6102", "1.2667").replace("1.2712", "1.0000")
    assert sizes.told[1:] == [(WEB, sure | {"ways": "3", "at_least": "true", "curve": part})]
    sizes.work = {4: 40.0}
    run("size", "web-1", "--yes")
    assert sizes.told[2:] == [(WEB, sure | {"steady": "false"})]
    sizes.is_counted = False
    run("size", "web-1", "--yes")
    guess = {"counted": "false", "curve": "2:1.0000,3:0.5556,4:0.2222,5:0.2000"}
    assert sizes.told[3:] == [(WEB, sure | guess)]


def test_an_agent_that_does_not_remember_it_is_a_warning_and_no_fault(sizes: SizeAgent, run: Run) -> None:
    sizes.remembers = False
    ran = run("size", "web-1", "--yes", "-f", "json")
    assert (ran.status, json.loads(ran.out)["ways"], sizes.ways) == (0, 4, BASE)
    warning = f"the agent does not remember the curve of web-1, so its page can't show it: there is no /v1/sizes/{WEB}"
    assert ran.err.splitlines()[4:] == [f"vmqos: {warning} here"]


def test_programs_get_an_object(sizes: SizeAgent, run: Run) -> None:
    told = json.loads(run("size", "web-1", "--yes", "-f", "json").out)
    curve = told.pop("curve")
    assert told.pop("seconds") >= 0 and told.pop("held_before") is None
    assert told == {
        "vm": WEB, "ways": 4, "at_least": False, "has": 2, "first": 2, "more": 2, "free": 3, "tried": 5, "ended": "",
        "counted": True, "steady": True, "part": "", "other_ways": None, "not_counted": [],
        "extra_spec": "hw:cache_ways=4",
        "command": "vmqos flavor set m1.cache-NEW --cache-ways 4",
    }  # fmt: skip
    assert [one["ways"] for one in curve] == [2, 3, 4, 5]
    assert [one["missed"] for one in curve] == pytest.approx([0.9, 0.5, 0.2, 0.18])
    assert curve[0]["slower"] == pytest.approx(1.9 / 1.18) and curve[0]["traffic_part"] is None
    assert (curve[3]["held"], curve[3]["traffic"]) == (5e6, pytest.approx(1.8e8))
    assert run("size", "web-1", "--yes", "-f", "value", "-c", "ways", "-c", "curve").out.split("\n")[:2] == [
        "4", "2=0.9000 3=0.5000 4=0.2000 5=0.1800",
    ]  # fmt: skip


def test_the_operator_may_say_how_far_to_go_and_is_told_that_it_may_need_more(sizes: SizeAgent, run: Run) -> None:
    ran = run("size", "web-1", "--yes", "--most", "3")
    assert sizes.steps == [2, 3] and ran.status == 0
    assert ran.out.startswith(
        "web-1 needs 3 ways at least.\nWith 3 ways it misses 50.0 % of its references.\n"
        "The last way spared it more than 5 of 100, and no further one was tried.\n"
    )
    assert "That costs 1 more way on each L3 cache" in ran.out
    run("size", "web-1", "--yes", "--most", "9")
    assert sizes.steps == [2, 3, 2, 3, 4, 5], "there are no more free ways"


def test_a_vm_that_gains_nothing_keeps_what_it_has_and_the_free_ways_are_told(
    sizes: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes.missed = dict.fromkeys(range(2, 6), 0.97)
    ran = run("size", "web-1", "--yes")
    assert ran.out.startswith("web-1 needs no more than the 2 ways that it has.\n")
    assert "More would bring it little: 3 ways stay free for others. Whether fewer would do is not known" in ran.out
    assert ran.out.splitlines()[-3:-1] == ["The extra spec that it needs, and has:", "  hw:cache_ways=2"]
    assert "But it held 1.9 MiB of the 6 MiB that fit in its 2 ways, so fewer may do.\n" in ran.out
    monkeypatch.setattr(sizes, "held", 2e6)
    assert "so fewer may do" not in run("size", "web-1", "--yes").out, "it holds more than fits in one way"
    told = json.loads(run("size", "web-1", "--yes", "-f", "json").out)
    assert (told["more"], told["command"], told["extra_spec"]) == (0, "", "hw:cache_ways=2")


def test_a_vm_that_misses_nothing_any_more_is_tried_with_no_further_way(sizes: SizeAgent, run: Run) -> None:
    sizes.missed = {2: 0.5, 3: 0.001}
    ran = run("size", "web-1", "--yes")
    assert sizes.steps == [2, 3] and ran.out.startswith("web-1 needs 3 ways.\n")
    assert "No more than 3 ways were tried: with 3 ways it misses next to nothing.\n" in ran.out


def test_without_a_pmu_the_number_is_called_a_guess(sizes: SizeAgent, run: Run) -> None:
    sizes.is_counted = False
    ran = run("size", "web-1", "--yes")
    assert ran.status == 5
    assert ran.out.startswith("A guess: web-1 needs 4 ways.\nNothing counts misses of the L3 here, so the traffic")
    assert "With 4 ways it moves 22.2 % of its traffic with 2 ways, and 20.0 % with 5." in ran.out
    told = json.loads(run("size", "web-1", "--yes", "-f", "json").out)
    assert not told["counted"] and told["curve"][0] | {"held": 0, "traffic": 0} == {
        "ways": 2, "missed": None, "traffic": 0, "traffic_part": 1.0, "slower": None, "held": 0,
    }  # fmt: skip


def test_a_vm_that_does_other_work_meanwhile_is_not_to_be_trusted(sizes: SizeAgent, run: Run) -> None:
    sizes.work = {4: 40.0}
    ran = run("size", "web-1", "--yes")
    assert ran.status == 4 and "\nDo not trust this: the VM did other work meanwhile." in ran.out


def test_where_nothing_is_counted_nothing_is_told(sizes: SizeAgent, run: Run) -> None:
    sizes.is_counted = sizes.has_traffic = False
    ran = run("size", "web-1", "--yes")
    assert (ran.status, ran.out, sizes.ways, sizes.told) == (1, "", BASE, [])
    assert "how many ways web-1 needs can't be told: traffic with 2 ways is nan" in ran.err


def test_an_agent_that_reads_no_counter_any_more_is_not_waited_for_for_ever(
    sizes: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LATE", 0), ("PATIENCE", 0.1), ("SPARE", 1000.0), ("FEWEST", 0.01)):
        monkeypatch.setattr(stepping, name, value)
    monkeypatch.setattr(stepping, "check", lambda room, interval: None)
    sizes.is_read = False
    ran = run("size", "web-1", "--yes")
    assert (ran.status, ran.out, sizes.said[-1][0]) == (1, "", "DELETE")
    assert "how many ways web-1 needs can't be told: the agent does not read its counters" in ran.err


OVER = ("409 Conflict", "this trial is over: VM x would have less for it")
REFUSED = ("409 Conflict", "nothing is tried on VM w: L3 cache 0 has no ways to give in one piece")


@pytest.mark.parametrize("number", [6, 7, 8], ids=["the step", "until it is in force", "while it is watched"])
def test_what_was_counted_before_a_step_could_not_be_had_is_told(number: int, sizes: SizeAgent, run: Run) -> None:
    sizes.refusals = {number: OVER}
    ran = run("size", "web-1", "--yes")
    assert (ran.status, sizes.steps, sizes.ways) == (0, [2, 3, 4], BASE)
    assert ran.out.startswith("web-1 needs 3 ways at least.\n")
    assert "No more than 3 ways were tried: " in ran.out and "VM x would have less for it." in ran.out


def test_no_sample_is_asked_for_twice(sizes: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "PAUSE", 0.01)
    told = dict[int, list[tuple[float, list[float]]]]()
    answers = sizes.samples

    def samples(query: dict[str, list[str]]) -> tuple[str, bytes]:
        """Three at a time."""
        found = answers(query)
        del found["samples"][WEB][3:]
        times = [one["time"] for one in found["samples"][WEB]]
        told.setdefault(sizes.ways, []).append((float(query.get("since", ["0"])[0]), times))
        return "200 OK", json.dumps(found).encode()

    sizes.answers["/v1/neighbours/samples"] = samples
    assert run("size", "web-1", "--yes", "--most", "3").status == 0
    assert told.keys() == {2, 3}
    for asked in told.values():
        assert len(asked) > 1
        for (_, times), (since, _) in itertools.pairwise(asked):
            assert since == times[-1]


@pytest.mark.parametrize("step", [-3600.3, -4.3, 3600.3])
def test_a_clock_that_is_set_meanwhile_does_not_keep_what_was_counted_from_being_seen(
    step: float, sizes: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in [("PAUSE", 0.01), ("FEWEST", 0.01), ("SPARE", 790.0), ("PATIENCE", 1.0), ("LATE", 0)]:
        monkeypatch.setattr(stepping, name, value)
    clock, began, answers = time.time, time.time(), sizes.samples
    taken = list[tuple[float, Any]]()

    def samples(query: dict[str, list[str]]) -> tuple[str, bytes]:
        """One more each time, with the time that the clock says, which is set in the middle of each step."""
        found = answers({})
        number, since = len(taken), float(query.get("since", ["0"])[0])
        if number % 7 == 3:
            before = time.time
            monkeypatch.setattr(time, "time", lambda: before() + step)
        moment = time.time() - clock() + began + number
        taken.append((moment, found["samples"][WEB][1] | {"time": moment}))
        found["samples"][WEB] = [one for when, one in taken if when > since]
        return "200 OK", json.dumps(found).encode()

    sizes.answers["/v1/neighbours/samples"] = samples
    told = json.loads(run("size", "web-1", "--yes", "-f", "json").out)
    assert (told["ways"], told["ended"]) == (4, "")
    assert [one["missed"] for one in told["curve"]] == pytest.approx([0.9, 0.5, 0.2, 0.18])


@pytest.mark.parametrize("failure", ["502 Bad Gateway", ""], ids=["it fails", "it reads no counter any more"])
def test_what_was_counted_before_the_agent_told_no_more_samples_is_told(
    failure: str, sizes: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping, "LATE", 0)
    monkeypatch.setattr(stepping, "PATIENCE", 0.1)
    monkeypatch.setattr(stepping, "FEWEST", 0.01)
    answers = sizes.samples

    def samples(query: dict[str, list[str]]) -> tuple[str, bytes]:
        # The next step is to be watched for no time.
        monkeypatch.setattr(stepping, "SPARE", 1000.0)
        sizes.is_read = sizes.ways < 4
        return (failure if failure and not sizes.is_read else "200 OK"), json.dumps(answers(query)).encode()

    sizes.answers["/v1/neighbours/samples"] = samples
    ran = run("size", "web-1", "--yes")
    assert (ran.status, sizes.ways) == (0, BASE)
    assert ran.out.startswith("web-1 needs 3 ways at least.\n") and "No more than 3 ways were tried: " in ran.out


@pytest.mark.parametrize(("number", "refusal"), [(0, REFUSED), (3, REFUSED), (2, OVER), (5, OVER)])
def test_what_the_agent_refuses_before_there_is_anything_to_compare_is_told_in_its_words(
    number: int, refusal: tuple[str, str], sizes: SizeAgent, run: Run
) -> None:
    sizes.refusals = {number: refusal}
    ran = run("size", "web-1", "--yes")
    assert (ran.status, ran.out, sizes.ways) == (1, "", BASE) and refusal[1] in ran.err
    assert sizes.said[-1][0] == "DELETE"


def test_an_agent_that_knows_no_trials_is_told_to_be_older(sizes: SizeAgent, run: Run) -> None:
    sizes.refusals = {0: ("405 Method Not Allowed", "this API only answers GET")}
    ran = run("size", "web-1", "--yes")
    assert ran.status == 1 and "no trial can be had here: the vmqos-agent that runs is of an earlier" in ran.err


def test_ctrl_c_gives_the_ways_back_at_once(sizes: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(samples: object) -> bool:
        if sizes.ways == 4:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(stepping.law, "is_enough", interrupted)
    ran = run("size", "web-1", "--yes")
    assert ran.status == 130 and sizes.said[-1] == ("DELETE", WEB, {}) and sizes.ways == BASE


def test_a_vm_that_does_not_have_again_what_it_had_is_told(
    sizes: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "PATIENCE", 0.3)
    sizes.puts_back = False
    ran = run("size", "web-1", "--yes")
    assert (ran.status, ran.out) == (1, "")
    assert "web-1 does not have yet what it had before the trial (its ways are 5)" in ran.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("nobody",), "no running VM has the UUID or name 'nobody'"),
        (
            ("plain", "--yes"),
            "plain can't be sized: its flavor promises it no ways (hw:cache_ways), so it fills all that",
        ),
        (("plain", "--yes"), "If it may be, say with how many to begin, such as --from 1"),
        (
            ("batch", "--yes", "--from", "1"),
            "--from 1 is below the 2 ways that batch is promised; see 'vmqos help size'",
        ),
        (
            ("web-1", "--yes", "--from", "1"),
            "--from 1 is below the 2 ways that web-1 is promised; see 'vmqos help size'",
        ),
        (("plain", "--yes", "--from", "0"), "argument --from"),
        (
            ("plain", "--yes", "--from", "2", "--most", "2"),
            "--most 2 is not above the 2 ways with which it begins; see 'vmqos help size'",
        ),
        (
            ("plain", "--yes", "--from", "3"),
            "3 ways in one piece are free on L3 cache 0, and more than the 3 with which",
        ),
        (
            ("web-1", "--yes", "--from", "9"),
            "--from 9 leaves nothing to try: web-1 has 2 ways, 3 more are free on L3 cache 0",
        ),
        (("huge", "--yes"), "huge can't be sized: its promise is pending now: needs 8 free ways on cache 0"),
        (("web-1", "--yes", "--most", "2"), "--most 2 is not above the 2 ways that it has; see 'vmqos help size'"),
        (("web-1",), "nothing was changed: there is no terminal to ask on; say --yes"),
    ],
)
def test_what_can_not_be_asked_is_refused_before_anything_is_done(
    arguments: tuple[str, ...], text: str, sizes: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    ran = run("size", *arguments)
    status = 2 if text.startswith("argument") or "see 'vmqos help size'" in text else 1
    assert (ran.status, ran.out, sizes.said) == (status, "", []) and text in ran.err


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"reason_code": "cachetune", "reason": "libvirt placed this VM"}, "libvirt placed this VM"),
        ({"vcpus_requested": "0-1"}, "its flavor has ways for some of its vCPUs (hw:cache_vcpus). Its counters are"),
        ({"vcpus_requested": "0", "code_ways_requested": 1}, "its flavor has ways for some of its vCPUs"),
        ({"state": "degraded", "reason": "it has too few"}, "its promise is degraded now: it has too few"),
    ],
)
@pytest.mark.parametrize("name", ["web-1", "batch", "plain"])
def test_a_vm_whose_ways_are_not_all_of_its_tasks_alone_is_refused_with_the_reason(
    name: str, changes: dict[str, Any], text: str, sizes: SizeAgent, run: Run
) -> None:
    there = [vm | changes if vm["instance_name"] == name else vm for vm in examples.vms()]
    sizes.answers["/v1/vms"] = {"vms": there}
    ran = run("size", name, "--from", "2", "--yes")
    assert (ran.status, ran.out, sizes.said) == (1, "", []) and f"{name} can't be sized: {text}" in ran.err


class ApartAgent(SizeAgent):
    """An agent whose WEB has two ways for code and two for data.

    :ivar moves: whether a further way has the ways for code lie elsewhere.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spec, self.moves = "hw:cache_data_ways", False

    def vms(self) -> list[Any]:
        found = super().vms()
        web = next(vm for vm in found if vm["uuid"] == WEB)
        ways = {"code": BASE, "data": BASE} | {self.spec.split("_")[1]: self.ways}
        between = 12 - self.ways if self.moves else 8
        masks = {
            "code": ((1 << ways["code"]) - 1) << between - ways["code"],
            "data": ((1 << ways["data"]) - 1) << between,
        }
        web |= {"code_ways_requested": 2, "data_ways_requested": 2, "ways_requested": 4, "flavor": "m1.apart"}
        web |= {f"{part}_masks": dict.fromkeys("01", f"{mask:x}") for part, mask in masks.items()}
        web |= {"masks": dict.fromkeys("01", f"{masks['code'] | masks['data']:x}")}
        return found


@pytest.fixture
def apart(socket: str) -> Iterator[ApartAgent]:
    agent = ApartAgent()
    with serving(agent, socket):
        yield agent


@pytest.mark.parametrize(
    ("words", "part", "other"), [((), "data", "code"), (("--part", "code"), "code", "data")], ids=["data", "code"]
)
def test_ways_for_data_or_for_code_are_tried_while_the_others_stay(
    words: tuple[str, ...], part: str, other: str, apart: ApartAgent, run: Run
) -> None:
    apart.spec = f"hw:cache_{part}_ways"
    ran = run("size", "web-1", *words, "--yes")
    assert (ran.status, apart.steps, apart.ways) == (0, [2, 3, 4, 5], BASE), ran.err
    assert {query[f"hw:cache_{other}_ways"] for _, _, query in apart.said if query} == {"2"}
    assert ran.err.splitlines()[0] == f"web-1 with 2 ways for {part} ..."
    assert ran.out.startswith(f"web-1 needs 4 ways for {part}, beside 2 ways for {other}.\nWith 4 ways for {part} it ")
    told = " ".join(ran.out.split())
    assert f"Misses of {other} are in it, too, and the same with each. '--part {other}' tries ways" in told
    assert "That costs 2 more ways on each L3 cache" in ran.out and view.LEFT_BEHIND not in ran.out
    assert f"  vmqos flavor set m1.apart-NEW --{part}-ways 4\n" in ran.out
    assert f"it has its 2 ways for {part} again." in ran.out
    assert apart.told[-1][1]["part"] == part


def test_programs_are_told_what_the_ways_are_for(apart: ApartAgent, run: Run) -> None:
    found = json.loads(run("size", "web-1", "--yes", "-f", "json").out)
    assert (found["part"], found["other_ways"], found["has"], found["more"]) == ("data", 2, 2, 2)
    assert found["extra_spec"] == "hw:cache_data_ways=4"
    of_flavor = json.loads(run("size", "--flavor", "m1.apart", "--yes", "-f", "json").out)
    assert (of_flavor["part"], of_flavor["other_ways"], of_flavor["ways"]) == ("data", 2, 4)
    assert set(of_flavor["cost"].values()) == {2} and of_flavor["extra_spec"] == "hw:cache_data_ways=4"


def test_where_a_further_way_has_others_lie_elsewhere_what_they_left_is_waited_for_and_told(
    apart: ApartAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(stepping, "_wait_until_gone", lambda held, fits, report: waited.append(apart.ways))
    apart.moves = True
    ran = run("size", "web-1", "--yes")
    assert ran.status == 0 and ran.out.startswith("web-1 needs 4 ways for data, beside 2 ways for code.\n")
    assert waited == [3, 4, 5] and view.LEFT_BEHIND in " ".join(ran.out.split())


def test_a_part_belongs_to_vms_with_ways_for_code_and_data_apart(sizes: SizeAgent, run: Run) -> None:
    ran = run("size", "web-1", "--part", "code", "--yes")
    assert (ran.status, sizes.said) == (1, []) and "no ways for code and for data apart" in ran.err


def test_a_host_without_a_free_way_is_told_before_anything_is_done(sizes: SizeAgent, run: Run) -> None:
    caches = examples.caches()
    caches[1]["free_ways"] = 0
    sizes.answers["/v1/caches"] = {"caches": caches}
    ran = run("size", "web-1", "--yes")
    assert (ran.status, sizes.said) == (1, []) and "no way is free on L3 cache 1 beside the 2 of web-1" in ran.err


def test_free_ways_of_an_l2_are_none_of_the_l3(sizes: SizeAgent, run: Run) -> None:
    l2 = [examples.cache(number, [], resource="L2", free_ways=0) for number in (0, 1)]
    sizes.answers["/v1/caches"] = {"caches": examples.caches(), "l2_caches": l2}
    assert run("size", "web-1", "--yes").status == 0


@pytest.mark.parametrize(("interval", "text"), [(0.0, "does not read the counters regularly"), (60.0, "every 60 s")])
def test_too_few_samples_to_come_are_told_before_anything_is_done(
    interval: float, text: str, sizes: SizeAgent, run: Run
) -> None:
    sizes.answers["/v1/neighbours"] = examples.neighbours(interval=interval)
    ran = run("size", "web-1", "--yes")
    assert (ran.status, sizes.said) == (1, []) and text in ran.err


@pytest.mark.parametrize(("said", "status"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_on_a_terminal_it_says_what_it_will_do_and_asks(
    said: str, status: int, sizes: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Stream(said))
    ran = run("size", "web-1")
    assert ran.status == status and bool(sizes.said) == (status == 0)
    question = f"web-1 ({WEB}) will have more than its 2 ways: up to 5, one way after the other, for 15 minutes at most"
    assert ran.err.startswith(question) and "Continue? [y/N] " in ran.err
    assert ("you did not say yes" in ran.err) == (status == 1)


def test_a_question_is_broken_between_words_where_it_is_longer_than_the_terminal_is_wide(
    sizes: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Stream("n\n"))
    elsewhere = run("size", "web-1").err
    screen = Stream()
    monkeypatch.setattr(sys, "stdin", Stream("n\n"))
    monkeypatch.setattr(sys, "stderr", screen)
    assert run("size", "web-1").status == 1
    told, _, _ = screen.getvalue().partition("Continue? [y/N] ")
    assert max(map(len, told.splitlines())) <= 80 and len(told.splitlines()) > 3
    assert told.split() == elsewhere.partition("Continue? [y/N] ")[0].split()


@pytest.mark.parametrize(("said", "status"), [("y\n", 0), ("\n", 1)])
def test_before_vms_of_a_flavor_are_sized_it_names_them_and_asks_once(
    said: str, status: int, sizes: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Stream(said))
    ran = run("size", "--flavor", "m1.cache", "--vms", "1")
    assert ran.status == status and bool(sizes.said) == (status == 0) and ran.err.count("Continue? [y/N] ") == 1
    question = "VMs of flavor m1.cache will have more ways than they have, one VM after the other, for 15 min at most"
    assert ran.err.startswith(f"{question} in all: web-1. The ways are taken from those that are free.")


def test_a_warning_has_a_line_of_its_own_above_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    logs = logging.StreamHandler(stream)
    monkeypatch.setattr(logging.getLogger(), "handlers", [logs])
    with view.Progress(stream, stepping.Room(examples.vms()[0], BASE, BASE, 5, 3)) as progress:
        progress.report(BASE, 0.5)
        logging.getLogger("vmqos").warning("it is late")
    assert re.search(r"(\x1b\[2K|\n)it is late\n", stream.getvalue()), stream.getvalue()
    assert logs.stream is stream


# VMs without ways of their own.


@pytest.fixture
def others(sizes: SizeAgent, monkeypatch: pytest.MonkeyPatch) -> SizeAgent:
    """An agent on a host with five free ways in one piece, and VMs that leave nothing behind."""
    monkeypatch.setattr(leaving, "LONGEST", 0.0)
    caches = [one | {"free_ways": 6, "largest_free_run": 5} for one in examples.caches()]
    sizes.answers["/v1/caches"] = {"caches": caches}
    sizes.missed |= {1: 0.95, 6: 0.18, 7: 0.18, 8: 0.18}
    return sizes


def test_a_vm_without_ways_begins_with_as_many_as_the_operator_says(others: SizeAgent, run: Run) -> None:
    others.uuid = PLAIN
    ran = run("size", "plain", "--from", "1", "--yes")
    assert (ran.status, ran.err) == (0, "".join(f"plain with {count} ...\n" for count in WAYS))
    assert others.steps == [1, 2, 3, 4, 5] and others.said[-1] == ("DELETE", PLAIN, {})
    assert {query.get("may_fill_fewer") for _, _, query in others.said if query} == {"true"}
    assert ran.out.startswith(
        "plain needs 4 ways.\nWith 4 ways it misses 20.0 % of its references, and 18.0 % with 5.\n"
    )
    assert "It held 1.9 MiB before, and 3.8 MiB with 4 ways.\n" in ran.out and view.LEFT_BEHIND not in ran.out
    assert "\nThat costs 4 ways on each L3 cache that it runs on, of 5 that are free now.\n" in ran.out
    assert "\n  vmqos flavor set m1.cache-NEW --cache-ways 4\n" in ran.out
    assert ran.out.splitlines()[-1].endswith(", it fills all that no VM has alone again.")


WAYS = ["1 way", "2 ways", "3 ways", "4 ways", "5 ways"]


def test_a_vm_in_a_class_begins_with_as_many_ways_for_itself_as_its_class_has(others: SizeAgent, run: Run) -> None:
    others.uuid = BATCH
    ran = run("size", "batch", "--yes")
    assert ran.status == 0 and others.steps == [2, 3, 4, 5] and others.said[-1] == ("DELETE", BATCH, {})
    assert not any("may_fill_fewer" in query for _, _, query in others.said)
    assert ran.out.startswith("batch needs 4 ways.\n")
    assert "\nThat costs 4 ways on each L3 cache that it runs on, of 5 that are free now.\n" in ran.out
    command = "vmqos flavor set m1.cache-NEW --cache-ways 4 --policy exclusive"
    assert f"\n  {command}\n" in ran.out, "with its own policy, four ways would be shared again"
    assert ran.out.splitlines()[-1].endswith(", it is in its class again.")


@pytest.mark.parametrize(
    ("uuid", "arguments", "first", "spec"),
    [
        (PLAIN, ("plain", "--from", "3"), 3, "hw:cache_ways=4"),
        (BATCH, ("batch",), 2, "hw:cache_ways=4 hw:cache_policy=exclusive"),
        (BATCH, ("batch", "--from", "3"), 3, "hw:cache_ways=4 hw:cache_policy=exclusive"),
    ],
)
def test_programs_get_what_the_ways_cost_a_flavor_that_has_none(
    uuid: str, arguments: tuple[str, ...], first: int, spec: str, others: SizeAgent, run: Run
) -> None:
    others.uuid = uuid
    told = json.loads(run("size", *arguments, "--yes", "-f", "json").out)
    assert (told["vm"], told["ways"], told["has"], told["first"], told["more"]) == (uuid, 4, 0, first, 4)
    assert (told["free"], told["extra_spec"], told["curve"][0]["ways"]) == (5, spec, first)
    assert told["held_before"] == 2e6
    options = spec.replace("hw:cache_ways=", "--cache-ways ").replace("hw:cache_policy=", "--policy ")
    assert told["command"] == f"vmqos flavor set m1.cache-NEW {options}"
    assert others.told[-1][0] == uuid and others.told[-1][1]["curve"].startswith(f"{first}:")


def test_it_may_begin_with_more_than_a_vm_is_promised(others: SizeAgent, run: Run) -> None:
    ran = run("size", "web-1", "--from", "4", "--yes")
    assert others.steps == [4, 5, 6, 7, 8] and not any("may_fill_fewer" in query for _, _, query in others.said)
    assert ran.out.startswith("web-1 needs no more than the 4 ways that it began with.\n")
    assert "\nThat costs 2 more ways on each L3 cache that it runs on, of 6 that are free now.\n" in ran.out
    assert "\nWhether fewer would do is not known: none was tried with fewer than 4.\n" in ran.out


def test_a_vm_that_had_no_ways_may_do_with_fewer_than_it_began_with(others: SizeAgent, run: Run) -> None:
    others.uuid, others.missed = PLAIN, dict.fromkeys(range(1, 6), 0.3)
    ran = run("size", "plain", "--from", "2", "--yes")
    assert ran.out.startswith("plain needs no more than the 2 ways that it began with.\n")
    assert "\nWhether fewer would do is not known: none was tried with fewer than 2.\n" in ran.out
    assert "not known" not in run("size", "plain", "--from", "1", "--yes").out


def test_what_a_vm_misses_first_that_left_ways_behind_ends_nothing(others: SizeAgent, run: Run) -> None:
    others.uuid, others.missed = PLAIN, {1: 0.0, 2: 0.0, 3: 0.0}
    ran = run("size", "plain", "--from", "1", "--yes")
    assert others.steps == [1, 2] and "with 2 ways it misses next to nothing" in ran.out
    assert ran.out.startswith("plain needs no more than the 1 way that it began with.\n")


def test_numbers_of_ways_do_not_count_with_which_a_vm_finds_what_it_left(others: SizeAgent, run: Run) -> None:
    others.uuid, others.left = PLAIN, {1: 9e6, 2: 8e6, 3: 2e5}
    others.missed = {1: 0.0, 2: 0.0, 3: 0.3, 4: 0.2, 5: 0.18}
    ran = run("size", "plain", "--from", "1", "--yes")
    assert others.steps == [1, 2, 3, 4, 5], "what is missed with ways that do not count ends nothing"
    assert ran.out.startswith("plain needs 4 ways.\n")
    said = " ".join(ran.out.split())
    assert "With 1 to 2 ways it went on finding what it had left in others. They do not count." in said
    bars = ran.out.partition("Ways  Misses\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in bars.splitlines()] == ["3", "4", "5"]
    told = json.loads(run("size", "plain", "--from", "1", "--yes", "-f", "json").out)
    assert (told["not_counted"], told["first"], told["curve"][0]["ways"]) == ([1, 2], 3, 3)
    assert others.told[-1][1]["curve"].startswith("3:")


@pytest.mark.parametrize("missed", [0.0, 0.3])
def test_a_vm_that_lives_on_what_it_left_with_all_ways_is_not_told_to_need_any(
    missed: float, others: SizeAgent, run: Run
) -> None:
    others.uuid, others.left, others.missed = BATCH, dict.fromkeys(range(5), 3e7), dict.fromkeys(range(6), missed)
    ran = run("size", "batch", "--yes")
    if missed:
        assert (ran.status, ran.out, others.told) == (1, "", [])
        assert "can't be told: with 4 ways, in which 12 MiB fit, it still finds 28.6 MiB in ways that it" in ran.err
    else:
        assert ran.status == 0 and ran.out.startswith("batch needs no more than 5 ways, the fewest that count.\n")
        assert "Whether fewer would do is not known: with fewer, what was left" in ran.out


def test_where_nothing_counts_what_a_vm_left_a_line_says_that_it_may_need_more(others: SizeAgent, run: Run) -> None:
    others.uuid, others.left, others.sees_left = PLAIN, {1: 9e9}, False
    ran = run("size", "plain", "--from", "1", "--yes")
    assert ran.out.startswith("plain needs 4 ways.\n") and view.LEFT_BEHIND in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("uuid", "name", "left", "goes", "looks"),
    [
        (PLAIN, "plain", 0.0, False, 1),
        (PLAIN, "plain", 9e7, False, 5),
        (BATCH, "batch", 9e7, True, 9),
        (WEB, "web-1", 0.0, False, 0),
    ],
    ids=["nothing is left", "it stays", "it goes", "ways of its own"],
)
def test_what_a_vm_left_is_waited_for_while_it_goes_and_no_longer(
    uuid: str,
    name: str,
    left: float,
    goes: bool,
    looks: int,
    others: SizeAgent,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, real = [0], leaving.is_gone
    monkeypatch.setattr(leaving, "is_gone", lambda found, fits: seen.append(len(found)) or real(found, fits))
    monkeypatch.setattr(leaving, "LONGEST", 60.0)
    monkeypatch.setattr(leaving, "LOOK", 0.01)
    others.uuid, others.left, others.goes = uuid, {2: left}, goes
    assert run("size", name, "--from", "2", "--yes").status == 0
    assert max(seen) == looks


@pytest.mark.parametrize(
    ("uuid", "arguments", "will", "meanwhile"),
    [
        (
            PLAIN,
            ("plain", "--from", "2"),
            "will have 2 ways for itself, and up to 5, one way after the other, for 15 minutes at most in all.",
            "It may fill more than 2 ways now, so it may be slower then. "
            "The other VMs without ways of their own have 2 to 5 ways fewer to fill meanwhile. ",
        ),
        (
            BATCH,
            ("batch",),
            "will leave its class and have 2 ways for itself, and up to 5, one way after the other, for 15 minutes",
            "The other VMs of its class keep theirs. "
            "The other VMs without ways of their own have 2 to 5 ways fewer to fill meanwhile. ",
        ),
    ],
)
@pytest.mark.parametrize(("said", "status"), [("y\n", 0), ("\n", 1)])
def test_before_a_vm_without_ways_of_its_own_is_tried_it_is_told_who_may_be_slower(
    uuid: str,
    arguments: tuple[str, ...],
    will: str,
    meanwhile: str,
    said: str,
    status: int,
    others: SizeAgent,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others.uuid = uuid
    monkeypatch.setattr(sys, "stdin", Stream(said))
    ran = run("size", *arguments)
    assert ran.status == status and bool(others.said) == (status == 0)
    assert ran.err.startswith(f"{arguments[0]} ({uuid}) {will}")
    assert f"{meanwhile}No VM gets less than its flavor promises, and" in ran.err


def test_a_vm_that_is_not_in_its_class_again_is_told(
    others: SizeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "PATIENCE", 0.3)
    others.uuid, others.puts_back, others.missed = BATCH, False, dict.fromkeys(range(6), 0.001)
    ran = run("size", "batch", "--yes")
    # It has as many ways as before, and for itself.
    assert (ran.status, ran.out) == (1, "") and "batch does not have yet what it had before the trial" in ran.err
