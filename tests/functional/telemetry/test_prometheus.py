# SPDX-License-Identifier: Apache-2.0
"""The rules for Prometheus and the dashboards' queries, at the metrics of real VMs, without the old ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.openstack.servers.prometheus import Prometheus, promtool
from tests.openstack.telemetry import dashboards
from tests.openstack.telemetry.counters import Counters
from tools.lab.simulator import Simulator
from tools.lab.workspace import CHECKOUT, Workspace

ETC = CHECKOUT / "etc" / "prometheus"
RULES = ETC / "vmqos.rules.yml"
RULES_TEST = Path(__file__).with_name("vmqos.rules.test.yml")
OLD = re.compile(
    r"vmqos_(vm_state|vm_memory_bytes_total|default_group_memory_bytes_total|vm_counter_missing|sweep_seconds|\w+_age_seconds)\b"
)


def _rules(kind: str) -> set[str]:
    """The names of the rules of a kind: ``alert`` or ``record``."""
    return {
        rule[kind] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if kind in rule
    }


def _tests() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES_TEST.read_text())["tests"]
    return found


def test_the_rules_are_sound_and_ask_for_no_old_metric() -> None:
    promtool("check", "rules", RULES)
    promtool("check", "config", ETC / "prometheus.yml")
    assert OLD.findall(RULES.read_text()) == []
    assert [query for query in dashboards.queries() if OLD.search(query.expression)] == []


def test_every_link_of_a_dashboard_leads_to_another_one_and_hands_on_variables_that_this_has() -> None:
    boards = dashboards.load()
    variables = {board["uid"]: {one["name"] for one in board["templating"]["list"]} for board in boards.values()}
    linked = set()
    for board in boards.values():
        for uid, query in re.findall(r'"url": "/d/([a-z-]+)(?:\?([^"]*))?"', json.dumps(board)):
            linked.add((board["uid"], uid))
            assert set(re.findall(r"var-(\w+)=", query)) <= variables[uid]
    assert linked >= {(a, b) for a in variables for b in variables if a != b}


def test_each_alert_fires_when_it_should_and_is_silent_otherwise_and_each_record_is_computed() -> None:
    promtool("test", "rules", RULES_TEST)
    fired = {
        case["alertname"] for test in _tests() for case in test.get("alert_rule_test", ()) if case.get("exp_alerts")
    }
    assert fired == _rules("alert")
    computed = {
        case["expr"].partition("{")[0]
        for test in _tests()
        for case in test.get("promql_expr_test", ())
        if case.get("exp_samples")
    }
    assert computed == _rules("record")


@pytest.fixture
def start_prometheus(workspace: Workspace) -> Iterator[Any]:
    """Starts a Prometheus that scrapes a port each second, with our rules, which here wait for nothing."""
    started: list[Prometheus] = []

    def start(port: int) -> Prometheus:
        configuration = yaml.safe_load((ETC / "prometheus.yml").read_text())
        (job,) = configuration["scrape_configs"]
        job["scrape_interval"] = "1s"
        job["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
        configuration["global"] = {"evaluation_interval": "1s"}
        rules = workspace.path / "rules.yml"
        rules.write_text(re.sub(r"^(\s+for:) .*$", r"\1 0s", RULES.read_text(), flags=re.MULTILINE))
        configuration["rule_files"] = [str(rules)]
        file = workspace.path / "prometheus.yml"
        file.write_text(yaml.safe_dump(configuration))
        started.append(Prometheus(workspace, file))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def test_every_rule_and_every_query_of_the_dashboards_works_on_what_real_vms_make(
    make_agent: MakeAgent,
    workspace: Workspace,
    simulator: Simulator,
    make_vm: MakeVm,
    free_port: int,
    wait_for: WaitFor,
    start_prometheus: Any,
) -> None:
    agent = make_agent(
        {
            "http": {"port": free_port},
            "gateway": {"old_metrics": "false"},
            # A counter that the test holds is a file mounted over another: who has that one open does not see it.
            "telemetry": {"keep_open": False},
        }
    )
    agent.start()
    gold = make_vm({"hw:cache_ways": "2"}, display_name="gold")
    greedy = make_vm({"hw:cache_ways": "10"}, display_name="greedy")
    wait_for(lambda: agent.get(f"/v1/vms/{gold.uuid}")["state"] == "kept", "the promise being kept")
    wait_for(lambda: agent.get(f"/v1/vms/{greedy.uuid}")["state"] == "pending", "the other one waiting")
    held = Counters(workspace, simulator.root)
    held.hold(gold.uuid, "mbm_local_bytes", "Unavailable", cache=1)
    prometheus: Prometheus = start_prometheus(free_port)
    try:
        wait_for(lambda: prometheus.query('up{job="vmqos"} == 1'), "a scrape")

        told: dict[str, dict[str, str]] = {}

        def firing() -> set[tuple[str, str]]:
            alerts = [alert for alert in prometheus.ask("alerts")["alerts"] if alert["state"] == "firing"]
            told.clear()
            told.update({alert["labels"]["alertname"]: alert["annotations"] for alert in alerts})
            return {(alert["labels"]["alertname"], alert["labels"].get("name", "")) for alert in alerts}

        # A scrape that takes longer than its second fails, and other alerts fire for a moment.
        expected = {("VmqosPromiseNotKept", "greedy"), ("VmqosCounterMissing", "gold")}
        wait_for(lambda: firing() == expected, f"these alerts: {expected}")
        assert "is pending (no-ways)." in told["VmqosPromiseNotKept"]["description"]
        assert "resctrl answers unavailable" in told["VmqosCounterMissing"]["description"]
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == _rules("alert") | _rules("record")
        wait_for(lambda: prometheus.query("vmqos:vm_promise_kept:ratio_rate1h"), "the last record")
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []
        counts_events = not agent.get("/v1/telemetry/hardware-events")["unavailable"]
        for query in dict.fromkeys(dashboards.queries()):
            expression = query.filled(gold.uuid, "10s")
            if query.needs_hardware_events and not counts_events:
                assert prometheus.query(expression) == []
                continue
            if query.needs_packages:
                # The test below asks them on a machine whose packages count.
                assert prometheus.query(expression) == []
                continue
            wait_for(lambda expression=expression: prometheus.query(expression), f"an answer to {query}: {expression}")
        expression = dashboards_table("vmqos-host.json", "Promises that are not kept")

        def unkept() -> list[tuple[str, ...]]:
            metrics = [one["metric"] for one in prometheus.query(expression)]
            return [tuple(metric[label] for label in ("name", "state", "reason")) for metric in metrics]

        # After a scrape that failed there is no answer until the next one.
        wait_for(lambda: unkept() == [("greedy", "pending", "no-ways")], "the one promise that is not kept")
    finally:
        # It may be reading the counter at this moment.
        agent.stop()
        held.release()


@pytest.mark.parametrize("simulator", ["clearwater-forest"], indirect=True)
def test_the_dashboards_have_what_packages_count_where_they_do(
    make_agent: MakeAgent, make_vm: MakeVm, free_port: int, wait_for: WaitFor, start_prometheus: Any
) -> None:
    agent = make_agent({"http": {"port": free_port}, "gateway": {"old_metrics": "false"}})
    agent.start()
    vm = make_vm({"hw:cache_ways": "2"}, display_name="gold")
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the promise being kept")
    prometheus: Prometheus = start_prometheus(free_port)
    asked = [query for query in dict.fromkeys(dashboards.queries()) if query.needs_packages]
    assert {query.dashboard for query in asked} == {"vmqos-host.json", "vmqos-vm.json"}

    def answer(expression: str) -> float:
        # It is no number while the VM has not run, for then there is no cycle to have a share of.
        found = prometheus.query(expression) or [{"value": (0, "NaN")}]
        return max(float(one["value"][1]) for one in found)

    def names(expression: str) -> list[str]:
        # After a scrape that failed there is no answer until the next one.
        return [one["metric"]["name"] for one in prometheus.query(expression)]

    for query in asked:
        expression = query.filled(vm.uuid, "60s")
        wait_for(lambda expression=expression: answer(expression) >= 0, f"an answer to {query}: {expression}")
        if query.panel.startswith("Power of the CPU cores"):
            wait_for(lambda expression=expression: answer(expression) > 0, f"power: {expression}")
        if query.dashboard == "vmqos-host.json" and "(name)" in expression:
            wait_for(lambda expression=expression: names(expression) == ["gold"], f"the VM's name: {expression}")
    # The default group is on the host's dashboard beside the VMs; to Prometheus, an empty label is none.
    other = dashboards_table("vmqos-host.json", "L3 cache of what is in no VM's group")

    def groups() -> set[tuple[str | None, str]]:
        return {(one["metric"].get("group"), one["metric"]["owner"]) for one in prometheus.query(other)}

    wait_for(lambda: groups() == {(None, "default")}, "the default group alone")


def dashboards_table(dashboard: str, panel: str) -> str:
    """The query of a panel, for all hosts."""
    (found,) = {q.expression for q in dashboards.queries() if (q.dashboard, q.panel) == (dashboard, panel)}
    return found.replace("$host", ".*")
