# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import json

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.show.test_way_map import picture
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.cli.show.terminal import UNBOUNDED


def test_a_pipe_gets_the_map_in_plain_ascii(agent: FakeAgent, run: Run) -> None:
    ran = run("cache", "show", "0")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == picture(examples.caches()[:1], examples.vms(), width=UNBOUNDED) + "\n"
    assert ran.out.isascii()


def test_a_pipe_has_no_width_and_nothing_is_cut(agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-name-of-more-columns-than-a-label-has-in-a-terminal"
    agent.answers["/v1/vms"] = {"vms": [vm | {"instance_name": name} for vm in examples.vms()[:1]]}
    monkeypatch.setenv("COLUMNS", "40")
    shown = run("cache", "show", "0").out
    assert f"  W  {name}  " in shown
    assert "size  mask\n" in shown and "3 MiB     3\n" in shown


@pytest.mark.parametrize(("option", "variable"), [("--no-color", "FORCE_COLOR"), ("-q", "NO_COLOR")])
def test_colours_can_be_declined(
    agent: FakeAgent, run: Run, option: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("cache", "show").out
    monkeypatch.setenv(variable, "1")
    assert "\x1b" not in run(option, "cache", "show").out


def test_json_is_the_agents_own_values(agent: FakeAgent, run: Run) -> None:
    assert json.loads(run("cache", "show", "-f", "json").out) == examples.caches()
    assert json.loads(run("cache", "show", "1", "-f", "json").out) == examples.caches()[1:]


def test_chosen_columns_are_a_table(agent: FakeAgent, run: Run) -> None:
    assert run("cache", "show", "-c", "id", "-c", "free_ways", "-f", "value").out == "0 3\n1 3\n"
    assert "| id | free_ways |" in run("cache", "show", "-c", "id", "-c", "free_ways").out


def test_a_cache_that_is_not_there_names_those_that_are(agent: FakeAgent, run: Run) -> None:
    ran = run("cache", "show", "7")
    assert ran.status == 1
    assert ran.err == "vmqos: there is no L3 cache to partition with the id '7'; there are: 0-1\n"
    ran = run("cache", "show", "L2:0")
    assert (ran.status, "no L2 cache to partition with the id '0'; there are: none" in ran.err) == (1, True)


@pytest.mark.parametrize("word", ["L4:0", "l3", "-1", "0x1", "", "L2:", "1;2"])
def test_what_names_no_cache_is_refused_with_what_does(agent: FakeAgent, run: Run, word: str) -> None:
    ran = run("cache", "show", "--", word)
    assert ran.status == 2
    assert "a number or L3:1 for an L3 is allowed, L2:1 for an L2" in ran.err


def test_an_l2_cache_is_named_with_its_level(agent: FakeAgent, run: Run) -> None:
    small = examples.cache(1, [examples.group("", "default", "ff")], ways=8, resource="L2", shareable_bits="0")
    agent.answers["/v1/caches"]["l2_caches"] = [small]
    assert run("cache", "show", "L2:1").out.startswith("L2 cache 1, 8 ways")
    assert run("cache", "show", "l3:1").out.startswith("L3 cache 1, 11 ways")
    assert json.loads(run("cache", "show", "L2:1", "-f", "json").out) == [small]
    assert run("cache", "show", "-f", "value", "-c", "resource", "-c", "id").out == "L3 0\nL3 1\nL2 1\n"


def test_a_host_without_allocation_says_so(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/caches"] = {"caches": []}
    ran = run("cache", "show")
    assert ran.status == 0
    assert "no cache that can be partitioned" in ran.out
    assert json.loads(run("cache", "show", "-f", "json").out) == []


@pytest.mark.parametrize(
    ("mounted", "error", "problem"),
    [
        (False, "resctrl is not mounted: mount it", "resctrl is not mounted: mount it"),
        (None, None, "the agent has not read resctrl yet, or a pass of it failed"),
    ],
)
@pytest.mark.parametrize("words", [[], ["0"], ["-f", "json"]])
def test_a_host_whose_resctrl_can_not_be_read_now_has_caches_all_the_same(
    agent: FakeAgent, run: Run, words: list[str], mounted: bool | None, error: str | None, problem: str
) -> None:
    agent.answers["/v1/caches"] = {"caches": []}
    agent.answers["/v1/health"]["resctrl"] |= {"mounted": mounted, "error": error}
    ran = run("cache", "show", *words)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"vmqos: the caches are not known now: {problem}; see 'vmqos doctor'\n"


def test_values_in_values_are_json_where_a_table_has_no_place_for_them(agent: FakeAgent, run: Run) -> None:
    wanted = [cache["groups"] for cache in examples.caches()]
    lines = run("cache", "show", "-f", "value", "-c", "groups").out.splitlines()
    assert [json.loads(line) for line in lines] == wanted
    rows = list(csv.DictReader(io.StringIO(run("cache", "show", "-f", "csv").out)))
    assert [json.loads(row["groups"]) for row in rows] == wanted
