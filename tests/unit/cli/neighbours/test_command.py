# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import json
import re
from typing import Any

import pytest
from rich.cells import cell_len

from tests.unit.cli.conftest import Run
from tests.unit.cli.streams import Stream
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.cli.neighbours import view
from vmqos.cli.show import terminal
from vmqos.cli.show.terminal import Terminal

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eevil\nsecond line"
NOBODY = examples.neighbours(pairs=[], vms=[examples.judged(examples.WEB, "fits", 0.9, [])])


def test_who_slows_whom_is_said_with_cause_figures_and_what_ends_it(agent: FakeAgent, run: Run) -> None:
    ran = run("neighbours")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith(
        "1 VM is slowed by 1 other VM.\n"
        "This is based on 118 samples of 1 s (1 min 58 s) of 4 VMs, with hardware events.\n\n"
        "web-1 is slowed by batch, through the cache\n"
        "  Its work takes 2.0 times as long.\n"
    )
    pair, slow, lacking, filling = ran.out.split("\n\n")[1:]
    assert ", for 1 min 5 s. Confidence: 94 %." in pair
    assert "  - it held 10.0 MiB and lost 6.0 MiB; the neighbour gained 19.0 MiB\n" in pair
    advice = "What ends it, once batch is resized to a copy of its flavor with this:"
    assert pair.endswith(f"  {advice}\n    vmqos flavor set m1.batch-NEW --cache-ways 2 --policy shared")
    assert slow.startswith("huge is slower than before at the same work\n  Its work takes 1.4 times as long.\n")
    assert "The cause is neither the cache nor memory" in slow
    assert lacking.startswith("These VMs lack cache:\n  db-1 (confidence 70 %)\n")
    advice = "What helps, once the VM is resized to a copy of its flavor with this:"
    assert lacking.endswith(f"    {advice}\n      vmqos flavor set m1.cache-NEW --cache-ways 5")
    assert filling.startswith("These VMs fill the cache without gain:\n  batch (confidence 80 %)\n")


def test_what_is_over_is_said_in_the_past_and_does_not_count(agent: FakeAgent, run: Run) -> None:
    (pair,) = examples.neighbours()["pairs"]
    agent.answers["/v1/neighbours"] = examples.neighbours(pairs=[pair | {"until": 1794000030.0}])
    out = run("neighbours").out
    assert out.startswith("No VM slows another now, as far as can be seen.\n")
    assert "web-1 was slowed by batch, through the cache\n  Its work took 2.0 times as long.\n" in out
    clock = r"\d\d:\d\d:\d\d UTC"
    assert re.search(rf"  From {clock} to {clock}: since then the other one moves less again\. Conf", out)
    assert run("neighbours", "web-1").out.startswith(
        "No VM slows web-1 now, and it slows none, as far as can be seen.\n"
    )
    (row,) = csv.DictReader(run("neighbours", "-f", "csv").out.splitlines())
    assert row["Since"] < row["Until"]


@pytest.mark.parametrize(
    ("vm", "first", "its_own"),
    [
        ("web-1", "web-1 is slowed by 1 other VM.", "it holds what it needs of the cache (confidence 95 %)"),
        (examples.BATCH, "batch slows 1 other VM.", "what it holds of the cache spares it no misses"),
        ("7d01", "No VM slows db-1, and it slows none, as far as can be seen.", "more cache would spare it misses"),
        ("huge", "No VM slows huge, and it slows none, as far as can be seen.", "that can't be said\n"),
    ],
)
def test_of_one_vm_all_is_said_that_concerns_it_and_nothing_else(
    vm: str, first: str, its_own: str, agent: FakeAgent, run: Run
) -> None:
    ran = run("neighbours", vm)
    assert (ran.status, ran.err) == (0, "")
    basis = "This is based on at most 118 samples of 1 s (1 min 58 s), with hardware events."
    assert ran.out.startswith(f"{first}\n{basis}\n")
    assert its_own in ran.out
    names = {name for name in ("web-1", "batch", "db-1", "huge") if name in ran.out.replace("m1.batch", "")}
    assert len(names) == (2 if vm in ("web-1", examples.BATCH) else 1)


def test_a_victim_that_is_asked_for_hears_of_its_own_slowness_too(agent: FakeAgent, run: Run) -> None:
    found = examples.neighbours()
    slow = found["vms"][3]["sufferings"][0] | {"cause": "cache", "beside": "flavor"}
    found["vms"][0]["sufferings"] = [slow]
    agent.answers["/v1/neighbours"] = found
    assert "web-1 is slower" not in run("neighbours").out
    told = run("neighbours", "web-1").out
    assert "web-1 is slower than others of its flavor at the same work\n" in told
    assert "  The cause is the cache.\n" in told
    agent.answers["/v1/neighbours"] = found | {"pairs": []}
    assert "  The cause is the cache; whether a neighbour does it is not known.\n" in run("neighbours").out


def test_where_nobody_suffers_a_sentence_says_so_and_what_it_is_based_on(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/neighbours"] = NOBODY
    assert run("neighbours").out == (
        "No VM slows another, as far as can be seen.\n"
        "This is based on 118 samples of 1 s (1 min 58 s) of 1 VM, with hardware events.\n"
    )


def test_without_hardware_events_it_says_that_it_sees_less(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/neighbours"] = examples.neighbours(counted=False)
    told = run("neighbours").out
    assert "of 4 VMs, without hardware events.\nWithout hardware events of the L3 only what VMs hold" in told
    assert "  Its work takes about 2.0 times as long.\n" in told


def test_where_no_traffic_is_counted_it_does_not_say_that_no_vm_slows_another(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/neighbours"] = NOBODY | {"traffic_counted": False}
    assert run("neighbours").out.startswith("Who slows whom can't be said: traffic with memory is not counted (")
    # An agent of an earlier version does not say it.
    agent.answers["/v1/neighbours"] = {name: value for name, value in NOBODY.items() if name != "traffic_counted"}
    assert run("neighbours").out.startswith("No VM slows another, as far as can be seen.\n")


@pytest.mark.parametrize("samples", [0, 1, 9])
def test_after_too_few_samples_it_does_not_say_that_all_is_well(samples: int, agent: FakeAgent, run: Run) -> None:
    time = None if samples == 0 else 1794000000.0
    agent.answers["/v1/neighbours"] = NOBODY | {"samples": samples, "time": time, "vms": []}
    told = run("neighbours").out
    assert told.startswith("Nothing can be said yet: there are too few samples.\n")
    assert f"{samples} sample{'' if samples == 1 else 's'} of 1 s of 0 VMs" in told
    assert "Of web-1 itself nothing is known yet." in run("neighbours", "web-1").out


def test_programs_get_the_agents_own_object_and_can_choose_its_fields(agent: FakeAgent, run: Run) -> None:
    assert json.loads(run("neighbours", "-f", "json").out) == examples.neighbours()
    assert json.loads(run("neighbours", "-f", "json", "-c", "samples", "-c", "counted").out) == {
        "samples": 118,
        "counted": True,
    }
    ran = run("neighbours", "-f", "json", "-c", "nothing")
    assert (ran.status, ran.out) == (2, "")
    assert "there is no column 'nothing' with this format; there are: time, interval," in ran.err
    of_db = json.loads(run("neighbours", "db-1", "-f", "json").out)
    assert ([vm["uuid"] for vm in of_db["vms"]], of_db["pairs"]) == ([examples.DB], [])


def test_scripts_get_a_row_for_each_pair(agent: FakeAgent, run: Run) -> None:
    (row,) = csv.DictReader(run("neighbours", "-f", "csv").out.splitlines())
    assert tuple(row) == view.TITLES
    assert (row["Victim"], row["Culprit"], row["Cause"], row["Slower"], row["Taken"]) == (
        "web-1",
        "batch",
        "cache",
        "2.04",
        "6291456",
    )
    assert (row["Victim UUID"], row["Culprit UUID"]) == (examples.WEB, examples.BATCH)
    assert run("neighbours", "-f", "value", "-c", "Culprit", "-c", "Confidence").out == "batch 0.94\n"
    assert run("neighbours", "db-1", "-f", "value").out == ""
    assert "| web-1  | cache |" in run("neighbours", "-c", "Victim", "-c", "Cause").out


def test_a_vm_that_ended_is_called_by_its_uuid(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"] = {"vms": [vm for vm in examples.vms() if vm["uuid"] != examples.BATCH]}
    assert f"web-1 is slowed by {examples.BATCH}, through the cache\n" in run("neighbours").out


def test_an_agent_of_an_earlier_version_is_called_too_old(agent: FakeAgent, run: Run) -> None:
    del agent.answers["/v1/neighbours"]
    for command in (("neighbours",), ("neighbours", "web-1", "-f", "json"), ("record",)):
        ran = run(*command)
        assert (ran.status, ran.out) == (1, "")
        assert "is of an earlier version, which does not judge neighbours; upgrade it" in ran.err


def test_another_refusal_is_told_in_the_agents_own_words(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/neighbours"] = lambda query: ("403 Forbidden", b'{"error": "not for you"}')
    ran = run("neighbours")
    assert (ran.status, ran.err) == (1, "vmqos: not for you\n")


def test_a_vm_that_is_not_there_is_one_line_on_stderr(agent: FakeAgent, run: Run) -> None:
    ran = run("neighbours", "nobody")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("vmqos: no running VM has the UUID or name 'nobody'")


def test_what_is_old_is_printed_with_a_warning_and_a_status_of_its_own(agent: FakeAgent, run: Run) -> None:
    fresh = run("neighbours")
    agent.answers["/v1/health"] = examples.health() | {"ages": {"counters": 90.0}, "stale": ["counters", "pass"]}
    ran = run("neighbours")
    assert (ran.status, ran.out) == (3, fresh.out)
    assert "it last read the counters 1 min 30 s ago" in ran.err and "pass" not in ran.err


@pytest.mark.parametrize("output", ["table", "csv", "value", "json", "yaml"])
def test_hostile_text_reaches_no_terminal(agent: FakeAgent, run: Run, output: str) -> None:
    found = examples.neighbours()
    for one in (*found["vms"], *found["pairs"], *found["vms"][3]["sufferings"]):
        one |= {"evidence": [HOSTILE], "advice": HOSTILE}
    found["vms"][3]["sufferings"][0] |= {"beside": HOSTILE}
    agent.answers["/v1/neighbours"] = found
    agent.answers["/v1/vms"] = {"vms": [vm | {"instance_name": HOSTILE} for vm in examples.vms()]}
    for vm in ((), (examples.WEB,)):
        shown = run("neighbours", *vm, "-f", output).out
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)


@pytest.mark.parametrize("width", [40, 80])
def test_lines_fit_the_terminal_but_for_commands_which_are_to_be_copied_whole(width: int) -> None:
    screen = Terminal(False, width)
    found: Any = examples.neighbours()
    found["pairs"][0]["advice"] = command = f"vmqos flavor set {'m' * 90} --cache-ways 2 --policy shared"
    drawn = Stream(encoding="ascii", is_terminal=False)
    terminal.show(view.draw(found, {examples.WEB: "web-1"}, None, screen), drawn, screen)
    lines = drawn.getvalue().splitlines()
    assert f"    {command}" in lines
    assert max(cell_len(line) for line in lines if "vmqos flavor set" not in line) <= width
    assert any(line.startswith("    ") for line in lines if "all that rose" in line), "under its own text"


def test_without_a_terminal_each_answer_is_printed_below_the_last(
    agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    once = run("neighbours").out
    monkeypatch.setattr("vmqos.cli.vm.watch.time.sleep", sleep)
    ran = run("neighbours", "--watch", "7")
    assert (ran.status, ran.out) == (130, f"{once}\n{once}\n{once}")
