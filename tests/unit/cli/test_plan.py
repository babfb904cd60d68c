# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from tests.unit.cli.conftest import Run
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent


def test_a_plan_says_verdict_ways_moves_and_steps(agent: FakeAgent, run: Run) -> None:
    ran = run("plan", "--flavor-spec", "hw:cache_ways=3", "--flavor-spec", "hw:cache_policy=exclusive")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("kept: a VM with these extra specs would get what it asks for\n")
    planned = [line.split() for line in ran.out.splitlines() if "the planned VM" in line]
    assert " ".join(planned[0]) == "+ the planned VM . . + + + . . . . . . 3 4.5 MiB 1c0"
    assert "VMs whose ways would change: web-1\n" in ran.out
    assert "  1. give the default group the L3 ways 0=600\n  2. create the control group vmqos.new\n" in ran.out
    assert agent.queries[0] == {"spec": ["hw:cache_ways=3", "hw:cache_policy=exclusive"]}


def test_a_plan_that_waits_says_why_and_draws_nothing(agent: FakeAgent, run: Run) -> None:
    verdict = {"state": "pending", "reason": "needs 9 free ways, 3 are free", "group": "", "masks": {}}
    agent.answers["/v1/plan"] = {"verdict": verdict, "steps": [], "moves": []}
    shown = run("plan", "--flavor-spec", "hw:cache_ways=9").out
    assert "pending: a VM with these extra specs would have to wait" in shown
    assert "needs 9 free ways, 3 are free" in shown
    assert "L3 cache" not in shown
    assert "change: none\n" in shown


def test_json_is_the_agents_own_answer(agent: FakeAgent, run: Run) -> None:
    assert json.loads(run("plan", "--flavor-spec", "hw:cache_ways=3", "-f", "json").out) == examples.plan()


def test_the_verdict_alone_can_be_picked_for_a_script(agent: FakeAgent, run: Run) -> None:
    assert run("plan", "--flavor-spec", "hw:cache_ways=3", "-f", "value", "-c", "State").out == "kept\n"
    assert run("plan", "--flavor-spec", "hw:cache_ways=3", "-f", "value", "-c", "Masks").out == "0=1c0;1=1c\n"


def test_a_bad_extra_spec_is_wrong_usage_and_the_agents_one_line(agent: FakeAgent, run: Run) -> None:
    text = json.dumps({"error": "hw:cache_ways=two: write an integer"}).encode()
    agent.answers["/v1/plan"] = lambda query: ("400 Bad Request", text)
    ran = run("plan", "--flavor-spec", "hw:cache_ways=two")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == "vmqos: hw:cache_ways=two: write an integer\n"


def test_an_agent_that_knows_no_plan_is_no_wrong_usage(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/plan"] = lambda query: ("404 Not Found", b'{"error": "there is no /v1/plan"}')
    ran = run("plan", "--flavor-spec", "hw:cache_ways=2")
    assert (ran.status, ran.out, ran.err) == (1, "", "vmqos: there is no /v1/plan\n")


def test_a_plan_for_nothing_is_wrong_usage(agent: FakeAgent, run: Run) -> None:
    assert run("plan").status == 2


def test_code_and_data_are_told_apart(agent: FakeAgent, run: Run) -> None:
    verdict = examples.plan()["verdict"] | {"code_masks": {"0": "40", "1": "4"}, "data_masks": {"0": "180", "1": "18"}}
    agent.answers["/v1/plan"] = examples.plan() | {"verdict": verdict}
    shown = run("plan", "--flavor-spec", "hw:cache_code_ways=1", "--flavor-spec", "hw:cache_data_ways=2").out
    assert "\nMasks for code: 0=40;1=4\nMasks for data: 0=180;1=18\n" in shown


def test_the_l2_caches_are_not_what_a_plan_is_about(agent: FakeAgent, run: Run) -> None:
    small = examples.cache(0, [examples.group("", "default", "ff")], ways=8, resource="L2", shareable_bits="0")
    agent.answers["/v1/caches"]["l2_caches"] = [small]
    assert "L2" not in run("plan", "--flavor-spec", "hw:cache_ways=3").out


def test_a_key_that_is_given_twice_is_wrong_usage(agent: FakeAgent, run: Run) -> None:
    ran = run("plan", "--flavor-spec", "hw:cache_ways=2", "--flavor-spec", "hw:cache_ways=3")
    assert (ran.status, ran.out) == (2, "")
    assert "'hw:cache_ways' is given twice, as 'hw:cache_ways=2' and as 'hw:cache_ways=3'" in ran.err
    assert not agent.queries


def test_a_step_names_the_vm_whose_group_it_is_about(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/plan"] = examples.plan() | {"steps": [f"give vmqos.{examples.DB} the L3 ways 1=700"]}
    shown = run("plan", "--flavor-spec", "hw:cache_ways=3").out
    assert f"  1. give vmqos.{examples.DB} the L3 ways 1=700 (db-1)\n" in shown
