# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus at the agent's metrics: rules, alerts and the queries of the dashboards."""

from __future__ import annotations

import itertools
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.openstack.servers.prometheus import Prometheus, promtool
from tests.openstack.telemetry import dashboards
from tests.openstack.telemetry.conftest import WaitFor
from tests.openstack.telemetry.counters import Counters
from tests.openstack.telemetry.dashboards import Query
from tests.openstack.telemetry.node import GOLD, GREEDY, RUNNING, Node
from tools.lab.workspace import CHECKOUT, Workspace

ETC = CHECKOUT / "etc" / "prometheus"
RULES = ETC / "vmqos.rules.yml"
SCRAPE_SECONDS = 1
RATE_INTERVAL = "10s"
NAMES = [
    rule.get("alert") or rule["record"]
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
]


@pytest.fixture(scope="module")
def prometheus(workspace: Workspace, node: Node) -> Iterator[Prometheus]:
    """Prometheus with our configuration, but for where the agent is and how long a test can wait."""
    configuration = yaml.safe_load((ETC / "prometheus.yml").read_text())
    (job,) = configuration["scrape_configs"]
    job["scrape_interval"] = f"{SCRAPE_SECONDS}s"
    job["static_configs"] = [{"targets": [node.metrics]}]
    configuration["global"] = {"evaluation_interval": f"{SCRAPE_SECONDS}s"}
    rules = workspace.path / "rules.yml"
    rules.write_text(re.sub(r"^(\s+for:) .*$", r"\1 0s", RULES.read_text(), flags=re.MULTILINE))
    configuration["rule_files"] = [str(rules)]
    file = workspace.path / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    started = Prometheus(workspace, file)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def blind_vm(workspace: Workspace, node: Node) -> Iterator[None]:
    """One counter without a value, so that there is something to tell of."""
    held = Counters(workspace, node.simulator.root)
    held.hold(GOLD.uuid, "mbm_local_bytes", "Unavailable", cache=1)
    yield
    held.release()


def test_the_agent_is_scraped_and_promtool_finds_its_metrics_well_named(
    prometheus: Prometheus, node: Node, wait_for: WaitFor
) -> None:
    wait_for(lambda: prometheus.query('up{job="vmqos"} == 1'), "a scrape")

    def is_well() -> bool:
        # On a busy machine one scrape may take longer than the second from one to the next, and fail.
        (target,) = prometheus.ask("targets")["activeTargets"]
        return (target["health"], target["lastError"]) == ("up", "")

    wait_for(is_well, "a scrape without an error")
    with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=10) as answer:
        promtool("check", "metrics", given=answer.read().decode())


def test_every_rule_can_be_evaluated(prometheus: Prometheus, wait_for: WaitFor) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]

    wait_for(lambda: {rule["health"] for rule in rules()} == {"ok"}, "all rules being evaluated")
    # Prometheus has an order of its own for groups.
    assert sorted(rule["name"] for rule in rules()) == sorted(NAMES)


def test_a_promise_that_is_not_kept_and_a_blind_counter_are_the_only_alerts(
    prometheus: Prometheus, blind_vm: None, wait_for: WaitFor
) -> None:
    told: dict[str, dict[str, str]] = {}

    def firing() -> dict[str, set[str]]:
        alerts = [alert for alert in prometheus.ask("alerts")["alerts"] if alert["state"] == "firing"]
        told.clear()
        told.update((name(alert), alert["annotations"]) for alert in alerts)
        by_name = itertools.groupby(sorted(alerts, key=name), key=name)
        # One about the host names no VM; where a scrape fails, there is one for a moment.
        return {key: {alert["labels"].get("uuid", "") for alert in found} for key, found in by_name}

    def name(alert: dict[str, Any]) -> str:
        return str(alert["labels"]["alertname"])

    expected = {"VmqosPromiseNotKept": {GREEDY.uuid}, "VmqosCounterMissing": {GOLD.uuid}}
    wait_for(lambda: firing() == expected, f"these alerts: {expected}")
    assert GREEDY.display_name in told["VmqosPromiseNotKept"]["summary"]
    assert "is pending (" in told["VmqosPromiseNotKept"]["description"]
    assert "resctrl answers unavailable" in told["VmqosCounterMissing"]["description"]


@pytest.mark.parametrize("query", list(dict.fromkeys(dashboards.queries())), ids=str)
def test_a_dashboards_query_has_an_answer(
    prometheus: Prometheus, blind_vm: None, wait_for: WaitFor, query: Query
) -> None:
    expression = query.filled(GOLD.uuid, RATE_INTERVAL)
    if query.needs_hardware_events:
        wait_for(lambda: prometheus.query("vmqos_hardware_events_up"), "a scrape")
        if not prometheus.query("vmqos_hardware_events_up == 1"):
            assert prometheus.query(expression) == []
            return
    if query.needs_packages and not prometheus.query("vmqos_vm_package_cycles_total"):
        # That they have an answer where packages count: tests/functional/telemetry/test_packages_and_nodes.py.
        assert prometheus.query(expression) == []
        return
    wait_for(lambda: prometheus.query(expression), f"an answer to {expression}")


def test_the_dashboards_variables_list_the_host_and_its_vms(
    prometheus: Prometheus, node: Node, wait_for: WaitFor
) -> None:
    per_vm = dashboards.load()["vmqos-vm.json"]["templating"]["list"]
    variables = {variable["name"]: variable for variable in per_vm}
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables["host"]["definition"]).groups()
    # Where a scrape fails, nothing is listed until the next one.
    wait_for(lambda: [one["metric"][label] for one in prometheus.query(metric)] == [node.metrics], "the host's name")

    inner = re.fullmatch(r"query_result\((.*)\)", variables["vm"]["definition"])[1]
    # Grafana shows a result as Prometheus writes it, labels in order, and takes text and value by the named groups.
    pattern = re.compile(variables["vm"]["regex"].strip("/").replace("?<", "?P<"))

    def listed() -> dict[str, str]:
        lines = [
            ",".join(f'{key}="{value}"' for key, value in sorted(one["metric"].items()))
            for one in prometheus.query(inner.replace("$host", ".*"))
        ]
        return {match["value"]: match["text"] for line in lines if (match := pattern.search(line))}

    expected = {vm.uuid: vm.display_name for vm in RUNNING}
    wait_for(lambda: listed() == expected, f"these VMs: {expected}")


@pytest.mark.parametrize(("name", "dashboard"), dashboards.load().items(), ids=dashboards.load())
def test_a_dashboard_has_panels_side_by_side_each_of_the_chosen_data_source(
    name: str, dashboard: dict[str, Any]
) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        where = panel["gridPos"]
        cells = set(
            itertools.product(range(where["x"], where["x"] + where["w"]), range(where["y"], where["y"] + where["h"]))
        )
        assert not cells & taken, panel["title"]
        assert where["x"] + where["w"] <= 24
        taken |= cells
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFG"[: len(panel["targets"])])
