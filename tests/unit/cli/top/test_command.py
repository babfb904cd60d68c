# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import csv
import errno
import io
import itertools
import json
import os
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from tests.unit.telemetry import fake_perf
from vmqos.cli.top import command
from vmqos.cli.top.data import Frame
from vmqos.conf.exceptions import NotReadable

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eevil\nsecond line"


@pytest.fixture(autouse=True)
def no_resctrl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine whose resctrl is not mounted, whatever the test's machine has."""
    configuration = tmp_path / "vmqos.conf"
    configuration.write_text(f"[resctrl]\npath = {tmp_path}/resctrl\n")
    monkeypatch.setattr("vmqos.cli.common.settings.configuration", lambda options: _load(configuration))


def _load(path: Path):
    from vmqos.conf import loader

    return loader.load([f"--config-file={path}"])


def test_every_vm_is_a_line_with_the_greatest_on_top(agent: FakeAgent, run: Run) -> None:
    ran = run("top")
    assert (ran.status, ran.err) == (0, "")
    names = [
        line[2:].split()[0]
        for line in ran.out.splitlines()
        if line[2:].startswith(("web", "db", "batch", "huge", "plain"))
    ]
    assert names == ["db-1", "batch", "web-1", "huge", "plain"]
    assert "? pending huge: needs 8 free ways on cache 0, only 3 are free" in ran.out
    assert "\x1b" not in ran.out


def test_who_may_ask_the_agent_needs_no_right_to_read_the_configuration(
    agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(options: argparse.Namespace) -> None:
        raise NotReadable(["/etc/vmqos/vmqos.conf"])

    monkeypatch.setattr("vmqos.cli.common.settings.configuration", unreadable)
    ran = run("top", "--once", "-f", "json")
    assert (ran.status, ran.err) == (0, "")
    assert json.loads(ran.out)["source"] == "agent"


def test_a_counter_without_a_number_is_a_word(agent: FakeAgent, run: Run) -> None:
    lines = {line[2:].split()[0]: line for line in run("top").out.splitlines() if len(line) > 2 and line[2] != " "}
    assert lines["batch"].count("unassigned") == 3
    assert lines["plain"].count("no group") == 4


@pytest.mark.parametrize(("key", "first"), [("total", "db-1"), ("name", "batch"), ("state", "huge"), ("ways", "db-1")])
def test_a_key_sorts(key: str, first: str, agent: FakeAgent, run: Run) -> None:
    assert json.loads(run("top", "--sort", key, "-f", "json").out)["vms"][0]["instance_name"] == first


def test_it_can_be_turned_round(agent: FakeAgent, run: Run) -> None:
    names = [
        vm["instance_name"] for vm in json.loads(run("top", "--sort", "name", "--reverse", "-f", "json").out)["vms"]
    ]
    assert names == ["web-1", "plain", "huge", "db-1", "batch"]


def test_json_is_an_object_a_look_on_a_line_of_its_own(agent: FakeAgent, run: Run) -> None:
    lines = run("top", "-f", "json", "-n", "3", "-d", "0.1").out.splitlines()
    assert len(lines) == 3
    shown = json.loads(lines[0])
    assert (shown["source"], shown["taken_at"], shown["interval"]) == ("agent", 1794000000.25, 2.0)
    web = next(vm for vm in shown["vms"] if vm["instance_name"] == "web-1")
    assert (web["uuid"], web["name"]) == (examples.WEB, "instance-4f2c1a9e")
    assert web["ways"] == {"0": 2, "1": 2}
    assert (web["allocated_bytes"], web["occupancy_bytes"]) == (6291456, 3145728)
    assert web["remote_bytes_per_second"] == 1048576.5


def test_csv_has_one_heading_and_a_line_for_each_vm_and_look(agent: FakeAgent, run: Run) -> None:
    ran = run("top", "-f", "csv", "-n", "2", "-d", "0.1", "web-1", "7d01")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [row["instance_name"] for row in rows] == ["db-1", "web-1"] * 2
    assert rows[1]["total_bytes_per_second"] == "4194304.5"


@pytest.mark.parametrize("output", ["table", "csv"])
@pytest.mark.parametrize("colour", ["", "1"])
def test_a_hostile_name_reaches_no_terminal(
    agent: FakeAgent, run: Run, output: str, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = examples.vms()[0] | {"instance_name": HOSTILE, "reason": HOSTILE, "state": "degraded"}
    agent.answers["/v1/vms"] = {"vms": [vm]}
    monkeypatch.setenv("FORCE_COLOR", colour)
    shown = run("top", "-f", output).out
    assert "\\x1b[2J" in shown
    for character in ("\x1b[2J", "\x1b]", "\x07", "\u202e"):
        assert character not in shown


def test_no_color_is_obeyed(agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("top").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("top").out


def test_a_vm_that_is_not_there_is_an_error(agent: FakeAgent, run: Run) -> None:
    ran = run("top", "nobody")
    assert (ran.status, ran.out) == (1, "")
    assert "no running VM has the UUID or name 'nobody'" in ran.err


def test_an_agent_without_counters_still_tells_states(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/telemetry"] = lambda query: ("503 Service Unavailable", b'{"error": "resctrl is not mounted"}')
    shown = run("top").out
    assert "? pending huge" in shown
    assert "No counters: vmqos-agent can't answer (HTTP 503): resctrl is not mounted" in shown
    assert " 0 " not in next(line for line in shown.splitlines() if line.startswith("  web-1"))


def test_a_reason_of_a_later_agent_is_an_error_and_no_crash(agent: FakeAgent, run: Run) -> None:
    odd = examples.counters(totals={"llc_occupancy": None}, missing={"llc_occupancy": "moon-phase"})
    agent.answers["/v1/telemetry"] = examples.telemetry() | {"vms": {examples.WEB: odd}}
    (web,) = json.loads(run("top", "-f", "json", "web-1").out)["vms"]
    assert web["missing"]["occupancy_bytes"] == "error"


def test_an_agent_that_fails_is_told_in_one_line(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"] = lambda query: ("200 OK", b"no JSON")
    ran = run("top")
    assert (ran.status, ran.out) == (1, "")
    assert "is not the API of this version" in ran.err


def test_without_agent_and_resctrl_it_is_told_what_to_mend(run: Run) -> None:
    ran = run("top")
    assert (ran.status, ran.out) == (1, "")
    assert "mount" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-d", "0"), "0.1"),
        (("-d", "nan"), "0.1"),
        (("-d", "soon"), "argument -d/--delay: 'soon' is no number: a number of seconds from 0.1 to 86400 is allowed"),
        (("-n", "-1"), "less than 0"),
        (("-n", "many"), "argument -n/--count: 'many' is no whole number"),
        (("--once", "-n", "2"), "not allowed"),
        (("--sort", "colour"), "invalid choice"),
        (("-f", "xml"), "invalid choice"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...], said: str, agent: FakeAgent, run: Run) -> None:
    ran = run("top", *arguments)
    assert ran.status == 2
    assert said in ran.err


def test_what_a_vm_was_granted_beside_l3_ways_is_the_agents(agent: FakeAgent, run: Run) -> None:
    granted = {
        "code_masks": {"0": "1"}, "data_masks": {"0": "6"}, "l2_masks": {"5": "f"}, "l2_ways_requested": 4,
        "bandwidth": {"0": 60}, "bandwidth_unit": "%", "bandwidth_requested": 55, "bandwidth_requested_unit": "%",
    }  # fmt: skip
    agent.answers["/v1/vms"] = {"vms": [examples.vm(examples.WEB, "web-1", masks={"0": "7"}, **granted)]}
    (vm,) = json.loads(run("top", "-f", "json").out)["vms"]
    assert (vm["ways"], vm["code_ways"], vm["data_ways"], vm["l2_ways"]) == ({"0": 3}, {"0": 1}, {"0": 2}, {"5": 4})
    assert (vm["bandwidth_limit"], vm["bandwidth_limit_unit"], vm["l2_ways_requested"]) == ({"0": 60}, "%", 4)
    assert "60 %" in run("top").out


def test_what_packages_count_is_shown_as_power_and_as_a_share_of_the_cycles(agent: FakeAgent, run: Run) -> None:
    told = examples.telemetry()
    rates = {"core_energy": 2.5, "unhalted_core_cycles": 4e9, "stalls_llc_miss": 1e9}
    told["vms"][examples.WEB]["package_rates"] = rates
    told["vms"][examples.DB]["package_rates"] = dict.fromkeys(rates, 0.0)
    told["vms"][examples.BATCH]["package_rates"] = dict.fromkeys(rates)
    agent.answers["/v1/telemetry"] = told
    found = {vm["instance_name"]: vm for vm in json.loads(run("top", "--sort", "watts", "-f", "json").out)["vms"]}
    assert list(found)[:2] == ["web-1", "db-1"]
    assert [(found[name]["core_watts"], found[name]["llc_miss_stalls"]) for name in ("web-1", "db-1")] == [
        (2.5, 0.25),
        (0.0, None),
    ]
    assert found["db-1"]["missing"]["llc_miss_stalls"] == "unavailable"
    assert found["batch"]["missing"]["core_watts"] == "no-previous"
    assert found["plain"]["missing"]["core_watts"] == "not-monitored"


HARDWARE = "/v1/telemetry/hardware-events"


def executed(run: Run) -> tuple[Any, dict[str, Any]]:
    """What is told of what each VM executes, and the whole look."""
    shown = json.loads(run("top", "-f", "json", "-d", "0.1").out)
    fields = ("instructions_per_cycle", "llc_misses_per_second")
    return shown, {vm["instance_name"]: tuple(vm[name] for name in fields) for vm in shown["vms"]}


def test_what_vms_execute_is_the_agents_and_nothing_is_counted_here(
    agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.answers[HARDWARE] = examples.hardware_events()
    monkeypatch.setattr("vmqos.telemetry.hardware_events.HardwareEvents", None)
    shown, found = executed(run)
    assert found["web-1"] == (0.25, 1.5e6)
    assert found["db-1"] == (None, 0.0), "it executed nothing"
    assert found["batch"] == found["plain"] == (None, None)
    missing = {vm["instance_name"]: vm["missing"].get("instructions_per_cycle") for vm in shown["vms"]}
    assert missing == {
        "web-1": None,
        "huge": None,
        "db-1": "unavailable",
        "batch": "no-previous",
        "plain": "unassigned",
    }
    estimates = (
        "IPC and LLC misses are estimates: another program uses the processor's counters, too, and one VM had them"
    )
    assert shown["notes"] == [f"{estimates} for 75 % of the time"]
    assert {vm["instance_name"]: vm["hardware_events_share"] for vm in shown["vms"]} == {
        "web-1": 1.0,
        "huge": 0.75,
        "db-1": None,
        "batch": None,
        "plain": None,
    }


def test_events_that_are_old_are_told_with_their_age(agent: FakeAgent, run: Run) -> None:
    agent.answers[HARDWARE] = examples.hardware_events() | {"age_seconds": 60.0, "vms": {}}
    shown, found = executed(run)
    assert shown["notes"] == ["IPC and LLC misses are 60 s old"]
    assert set(found.values()) == {(None, None)}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "not permitted: run it as root, or with CAP_PERFMON"),
        (examples.hardware_events() | {"unavailable": "they are switched off", "vms": {}}, "they are switched off"),
        (examples.cycles_of_packages("they are switched off"), "they are switched off"),
    ],
)
def test_what_the_agent_does_not_count_is_counted_here_if_it_can_be(
    agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch, answer: Any, why: str
) -> None:
    perf = fake_perf.put_in_place(monkeypatch)
    perf.refuses[0] = errno.EACCES
    if answer is not None:
        agent.answers[HARDWARE] = answer
    shown, found = executed(run)
    assert shown["notes"] == [f"No IPC and no LLC misses: {why}"]
    assert set(found.values()) == {(None, None)}
    perf.refuses.clear()
    agent.answers["/v1/vms"] = {"vms": [examples.vms()[0] | {"pid": os.getpid()}]}
    counts = itertools.count(1)
    monkeypatch.setattr(perf, "read", lambda descriptor, most: _said(next(counts)))
    shown, found = executed(run)
    assert (shown["notes"], found["web-1"][0]) == ([], 0.5)
    assert perf.descriptors == 0
    # Where another program has the counters for a part of the time, that is said of what is counted here, too.
    monkeypatch.setattr(perf, "read", lambda descriptor, most: _said(next(counts), enabled=4))
    shown, found = executed(run)
    assert (shown["vms"][0]["hardware_events_share"], found["web-1"][0]) == (0.25, 0.5)
    assert shown["notes"][0].endswith("and one VM had them for 25 % of the time")


def _said(times: int, enabled: int = 1) -> bytes:
    """Each time it is asked, a group of four has counted on; ``enabled`` times as long as it had the counters."""
    return struct.pack("7Q", 4, *(number * times for number in (enabled, 1, 1000, 500, 20, 10)))


OLD = {"ages": {"vms": 0.5, "pass": 0.5, "counters": 75.0}, "stale": ["counters"]}


def test_what_is_old_is_printed_with_its_age_and_a_status_of_its_own(agent: FakeAgent, run: Run) -> None:
    assert run("top", "--once").status == 0
    agent.answers["/v1/health"] = examples.health() | OLD
    agent.answers["/v1/telemetry"] |= {"age_seconds": 75.0}
    ran = run("top", "--once")
    assert (ran.status, ran.err) == (3, "")
    assert "it last read the counters 1 min 15 s ago" in ran.out
    ran = run("top", "--once", "-f", "json")
    shown = json.loads(ran.out)
    assert (ran.status, shown["age_seconds"], shown["stale"]) == (3, 75.0, ["counters"])
    assert ran.err.startswith("vmqos: what follows is old")
    ran = run("top", "--once", "-f", "csv")
    assert {row["age_seconds"] for row in csv.DictReader(io.StringIO(ran.out))} == {"75.000"}
    assert (ran.status, ran.err.count("old")) == (3, 1)


def test_it_is_the_last_look_that_counts(agent: FakeAgent, run: Run) -> None:
    answers = [examples.health() | OLD, examples.health()]
    agent.answers["/v1/health"] = lambda query: ("200 OK", json.dumps(answers.pop(0)).encode())
    assert run("top", "-n", "2", "-d", "0.1", "-f", "json").status == 0


def test_after_a_time_in_which_it_was_stopped_looks_have_pauses_between_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, looked_at = [0.0], []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def look() -> Frame:
        looked_at.append(now[0])
        return Frame(0.0, 0.0, "agent", ())

    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    for _ in command._looks(look, 2.0, 5):
        if len(looked_at) == 2:
            now[0] += 3600.0
    assert looked_at == [0.0, 2.0, 3602.0, 3604.0, 3606.0]


@pytest.mark.parametrize("health", [{}, None, "text", examples.health() | {"stale": ["moon"], "ages": None}])
def test_an_agent_that_tells_no_ages_is_believed(health: object, agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/health"] = health
    ran = run("top", "--once", "-f", "json")
    shown = json.loads(ran.out)
    assert (ran.status, shown["age_seconds"], shown["stale"], shown["unserved"]) == (0, None, [], {})


def test_what_a_vm_holds_is_told_by_cache(agent: FakeAgent, run: Run) -> None:
    uneven = examples.counters(
        ways={"0": 4, "1": 4},
        allocated_bytes=12582912,
        caches={"0": {"llc_occupancy": 6186598}, "1": {"llc_occupancy": 0}},
        totals={"llc_occupancy": 6186598},
    )
    agent.answers["/v1/telemetry"]["vms"] = {examples.WEB: uneven}
    (web,) = json.loads(run("top", "-f", "json", "web-1").out)["vms"]
    assert web["occupancy_bytes_by_cache"] == {"0": 6186598, "1": 0}
    assert web["allocated_bytes_by_cache"] == {"0": 6291456, "1": 6291456}
    line = next(line for line in run("top").out.splitlines() if line.startswith("  web-1"))
    assert "5.9M  12M      0:98%  ==== ----" in line


def test_vms_of_one_name_are_told_apart(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"] = {"vms": [vm | {"instance_name": "web"} for vm in examples.vms()[:2]]}
    shown = run("top").out
    assert "  web (4f2c1a9e)  " in shown and "  web (7d01e4c2)  " in shown
    assert [vm["instance_name"] for vm in json.loads(run("top", "-f", "json").out)["vms"]] == ["web", "web"]


def test_a_last_bandwidth_is_told_to_programs_with_its_age_and_never_as_one_of_now(agent: FakeAgent, run: Run) -> None:
    told = examples.telemetry()
    told["vms"][examples.BATCH]["measured"] = {
        "rates": {"total": 7.0, "local": 5.0, "remote": 2.0},
        "age_seconds": 23.5,
    }
    agent.answers["/v1/telemetry"] = told
    vms = {vm["instance_name"]: vm for vm in json.loads(run("top", "-f", "json").out)["vms"]}
    assert vms["batch"]["measured_bytes_per_second"] == {"total": 7.0, "local": 5.0, "remote": 2.0}
    assert vms["batch"]["measured_age_seconds"] == 23.5
    assert vms["batch"]["total_bytes_per_second"] is None
    assert (vms["web-1"]["measured_bytes_per_second"], vms["web-1"]["measured_age_seconds"]) == ({}, None)
