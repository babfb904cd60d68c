# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from tests.unit.cli import examples
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent
from tests.unit.cli.test_way_map import EXPECTED


def test_a_pipe_gets_the_map_in_plain_ascii(agent: FakeAgent, run: Run) -> None:
    ran = run("cache", "show", "0")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == EXPECTED + "\n"
    assert ran.out.isascii()


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
    assert ran.err == "vmqos: there is no L3 cache with the id '7'; there are: 0, 1\n"


def test_a_host_without_l3_allocation_says_so(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/caches"] = {"caches": []}
    ran = run("cache", "show")
    assert ran.status == 0
    assert "no L3 cache that can be partitioned" in ran.out
    assert json.loads(run("cache", "show", "-f", "json").out) == []
