# SPDX-License-Identifier: Apache-2.0
"""What the strategy proposes, in Watcher's own words, for what Prometheus was told."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import requests
from watcher.common import context, exception, utils
from watcher.decision_engine.loading.default import DefaultGoalLoader, DefaultStrategyLoader
from watcher.decision_engine.strategy.strategies.base import StrategyEndpoint

from tests.openstack.servers.process import free_port
from tests.watcher import history
from tests.watcher.cloud import model
from tests.watcher.conftest import GOAL, Audit
from tests.watcher.history import vm_uuid
from tools.lab.workspace import Workspace

SECTION = f"watcher_strategies.{GOAL}"


def moves(solution: Any) -> dict[str, tuple[str, str]]:
    """From where to where each VM is moved, by name."""
    found = {}
    for action in solution.actions:
        if action["action_type"] == "migrate":
            given = action["input_parameters"]
            assert given["migration_type"] == "live" and given["resource_id"] == vm_uuid(given["resource_name"])
            found[given["resource_name"]] = (given["source_node"], given["destination_node"])
    return found


def said(solution: Any) -> list[str]:
    return [action["input_parameters"]["message"] for action in solution.actions if action["action_type"] == "nop"]


def figures(solution: Any) -> dict[str, float]:
    return {one.name: one.value for one in [*solution.efficacy_indicators, *solution.global_efficacy]}


def test_goal_and_strategy_are_found_by_their_entry_points(engine: None) -> None:
    assert DefaultGoalLoader().load(GOAL).get_name() == GOAL
    assert DefaultStrategyLoader().load(GOAL).goal.get_name() == GOAL


def test_the_vm_that_slows_another_one_is_moved_and_the_plan_says_why(audit: Audit) -> None:
    solution = audit(model({"noisy": "one", "slowed": "one"}, {"two": {}}))
    assert moves(solution) == {"noisy": ("one", "two")}
    assert said(solution) == [
        "noisy makes the work of slowed take 1.40 times as long, by the cache: noisy is moved to two"
    ]
    assert figures(solution) == {
        "slowed_instances_count": 1,
        "freed_instances_count": 1,
        "instance_migrations_count": 1,
        "freed_instances_ratio": 100.0,
    }
    assert solution.model.get_node_by_instance_uuid(vm_uuid("noisy")).hostname == "two"


@pytest.mark.parametrize(
    ("culprit", "victim"),
    [("brief", "slowed-briefly"), ("light", "slowed-lightly"), ("now-and-then", "slowed-at-times")],
)
def test_a_pair_that_did_not_last_or_costs_little_is_left_alone(audit: Audit, culprit: str, victim: str) -> None:
    solution = audit(model({culprit: "one", victim: "one"}, {"two": {}}))
    assert solution.actions == []
    assert figures(solution)["freed_instances_ratio"] == 100.0


@pytest.mark.parametrize(
    ("culprit", "victim", "parameters"),
    [
        ("brief", "slowed-briefly", {"period": 60}),
        ("light", "slowed-lightly", {"least_slowdown": 1.01}),
        ("now-and-then", "slowed-at-times", {"period": 60}),
    ],
)
def test_the_audits_parameters_say_what_lasts_and_costs_enough(
    audit: Audit, culprit: str, victim: str, parameters: dict[str, Any]
) -> None:
    solution = audit(model({culprit: "one", victim: "one"}, {"two": {}}), **parameters)
    assert moves(solution) == {culprit: ("one", "two")}


@pytest.mark.parametrize("parameters", [{}, {"period": 100}, {"period": 30}, {"lookback": 900}], ids=str)
@pytest.mark.parametrize(("culprit", "victim"), [("earlier", "slowed-earlier"), ("until-now", "slowed-until-now")])
def test_a_pair_that_has_ended_is_left_alone(
    audit: Audit, culprit: str, victim: str, parameters: dict[str, Any]
) -> None:
    assert audit(model({culprit: "one", victim: "one"}, {"two": {}}), **parameters).actions == []


def test_a_pair_that_has_just_begun_is_left_alone_until_the_period_is_over(audit: Audit) -> None:
    cloud = {"from-now-on": "one", "slowed-from-now-on": "one"}
    assert audit(model(cloud, {"two": {}})).actions == []
    assert moves(audit(model(cloud, {"two": {}}), period=30)) == {"from-now-on": ("one", "two")}


def test_vms_that_are_apart_by_now_are_left_alone(audit: Audit) -> None:
    assert audit(model({"noisy": "one", "slowed": "two"}, {"three": {}})).actions == []


def test_the_log_names_vms_that_watcher_has_not_heard_of(audit: Audit, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "watcher_plugin.strategy")
    assert audit(model({"slowed": "one"}, {"two": {}})).actions == []
    assert vm_uuid("noisy") in caplog.text and vm_uuid("slowed") not in caplog.text


def test_a_vm_with_ways_of_its_own_keeps_its_place(audit: Audit) -> None:
    solution = audit(model({"gold": "one", "slowed-by-gold": "one", "gold-2": "one"}, {"two": {}}))
    assert moves(solution) == {}
    assert [text.partition(": ")[2] for text in sorted(said(solution))] == [
        "both have ways of their own",
        "gold has ways of its own, and keeps its place",
    ]
    assert figures(solution)["freed_instances_ratio"] == 0.0


def test_a_cap_is_no_promise_to_the_vm_that_has_it(audit: Audit) -> None:
    solution = audit(model({"capped": "one", "slowed-by-capped": "one"}, {"two": {}}))
    assert moves(solution) == {"capped": ("one", "two")}


def test_a_vm_that_no_gateway_knows_is_left_alone(audit: Audit) -> None:
    solution = audit(model({"unknown": "one", "slowed-by-unknown": "one"}, {"two": {}}))
    assert moves(solution) == {} and "whether it has a promise is unknown" in said(solution)[0]


def test_of_two_that_slow_each_other_one_is_moved(audit: Audit) -> None:
    solution = audit(model({"each": "one", "other": "one"}, {"two": {}}))
    assert len(moves(solution)) == 1
    assert figures(solution)["freed_instances_count"] == 2


def test_no_more_vms_are_moved_than_the_audit_may_and_those_first_that_free_most(audit: Audit) -> None:
    vms = {"noisy": "one", "slowed": "one", "noisy-2": "two", "slowed-2": "two", "slowed-3": "two"}
    solution = audit(model(vms, {"three": {}}), max_migrations=1)
    assert moves(solution) == {"noisy-2": ("two", "three")}
    assert "the audit may move no more VMs" in said(solution)[-1]
    assert figures(solution)["freed_instances_ratio"] == pytest.approx(200 / 3)


@pytest.mark.parametrize(
    "node",
    [
        {"status": "disabled"},
        {"state": "down"},
        {"vcpus": 3},
        {"memory": 4095},
        {"disk": 19},
        {"memory_mb_reserved": 65536},
    ],
)
def test_a_node_that_is_closed_or_full_gets_no_vm(audit: Audit, node: dict[str, Any]) -> None:
    solution = audit(model({"noisy": "one", "slowed": "one"}, {"two": node}))
    assert moves(solution) == {}
    assert "no enabled node where no VM is slowed has room for noisy" in said(solution)[0]
    assert moves(audit(model({"noisy": "one", "slowed": "one"}, {"two": node, "three": {}}))) == {
        "noisy": ("one", "three")
    }


@pytest.mark.parametrize("pair", [("brief", "slowed-briefly"), ("from-now-on", "slowed-from-now-on")])
def test_no_vm_is_moved_to_a_node_where_another_one_is_slowed(audit: Audit, pair: tuple[str, str]) -> None:
    # However short: the least loaded node but for that.
    vms = {"noisy": "one", "slowed": "one", **dict.fromkeys(pair, "two")}
    busy = {f"idle-{number}": "three" for number in range(3)}
    assert moves(audit(model(vms | busy))) == {"noisy": ("one", "three")}


@pytest.mark.parametrize(("lookback", "destination"), [(600, "three"), (120, "two")])
def test_nor_to_a_node_where_another_one_was_slowed_not_long_ago(audit: Audit, lookback: int, destination: str) -> None:
    vms = {"noisy": "one", "slowed": "one", "earlier": "two", "slowed-earlier": "two"}
    busy = {f"idle-{number}": "three" for number in range(3)}
    assert moves(audit(model(vms | busy), lookback=lookback)) == {"noisy": ("one", destination)}


def test_the_node_with_the_fewest_vcpus_given_out_is_chosen_and_room_is_counted_once(audit: Audit) -> None:
    vms = {"noisy": "one", "slowed": "one", "noisy-2": "two", "slowed-2": "two", "idle": "four"}
    nodes = {"three": {"vcpus": 4}, "four": {}}
    assert moves(audit(model(vms, nodes))) == {"noisy": ("one", "three"), "noisy-2": ("two", "four")}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"locked": True}, "noisy is locked"),
        ({"state": "paused"}, "can't be migrated live, for it is paused"),
        ({"watcher_exclude": True}, "noisy is excluded from the audit"),
    ],
)
def test_a_vm_that_may_not_be_moved_is_named_with_the_reason(audit: Audit, fields: dict[str, Any], why: str) -> None:
    solution = audit(model({"noisy": {"on": "one", **fields}, "slowed": "one"}, {"two": {}}))
    assert moves(solution) == {} and why in said(solution)[0]


def test_a_flavor_with_ways_is_proposed_only_where_the_audit_names_one(audit: Audit) -> None:
    cloud = {"gold": "one", "slowed-by-gold": "one", "gold-2": "one"}

    def resized(**parameters: Any) -> list[dict[str, str]]:
        actions = audit(model(cloud), **parameters).actions
        return [action["input_parameters"] for action in actions if action["action_type"] == "resize"]

    assert resized() == [] == resized(resize_to={"m1.gold": "m1.other"})
    proposed = {"flavor": "m1.plain.cache", "resource_id": vm_uuid("slowed-by-gold")}
    assert resized(resize_to={"m1.plain": "m1.plain.cache"}) == [proposed]


def test_without_explanations_a_plan_has_only_what_changes_something(audit: Audit) -> None:
    cloud = model({"gold": "one", "slowed-by-gold": "one", "noisy": "two", "slowed": "two"}, {"three": {}})
    assert [action["action_type"] for action in audit(cloud, explain=False).actions] == ["migrate"]


def test_that_no_gateway_is_scraped_is_no_good_news(audit: Audit, settings: Any) -> None:
    with Workspace() as workspace:
        empty = history.start_empty(workspace)
        settings.set_override("port", empty.port, "prometheus_client")
        with pytest.raises(exception.MetricNotAvailable, match="vmqos_vm_info"):
            audit(model({"noisy": "one", "slowed": "one"}))
        empty.stop()


def test_without_a_prometheus_the_audit_fails(audit: Audit, settings: Any) -> None:
    settings.set_override("port", free_port(), "prometheus_client")
    with pytest.raises(requests.ConnectionError):
        audit(model({"noisy": "one", "slowed": "one"}))


def test_a_prometheus_that_refuses_the_question_fails_the_audit(audit: Audit) -> None:
    with pytest.raises(exception.DataSourceNotAvailable):
        audit(model({"noisy": "one", "slowed": "one"}), lookback="ten minutes")


def test_a_datasource_that_knows_no_pairs_is_refused(audit: Audit, settings: Any) -> None:
    settings.set_override("datasources", ["gnocchi"], "watcher_datasources")
    with pytest.raises(exception.NoDatasourceAvailable):
        audit(model({"noisy": "one", "slowed": "one"}))


def test_watcher_tells_that_prometheus_has_the_metrics(settings: Any, tell: Any) -> None:
    tell(model({"noisy": "one"}))
    # It asks only where the strategy has a datasource of its own; the option is there when the strategy was loaded.
    DefaultStrategyLoader().load(GOAL)
    settings.set_override("datasources", ["prometheus"], SECTION)
    try:
        datasource, metrics, _ = StrategyEndpoint(None).get_strategy_info(context.make_context(), GOAL)
    finally:
        settings.clear_override("datasources", SECTION)
    assert datasource["state"] == "prometheus: available"
    assert metrics["state"] == [
        {"vmqos_vm_neighbour_slowdown_ratio": "available"},
        {"vmqos_vm_info": "available"},
    ]


@pytest.mark.parametrize(
    ("parameters", "is_taken"),
    [
        ({}, True),
        ({"period": 240, "resize_to": {"a": "b"}}, True),
        ({"period": 241}, False),
        ({"max_migrations": -1}, False),
        ({"resize_to": {"a": 1}}, False),
        ({"no-such": 1}, False),
    ],
)
def test_watcher_refuses_parameters_that_mean_nothing(engine: None, parameters: dict[str, Any], is_taken: bool) -> None:
    validator = utils.StrictDefaultValidatingDraft4Validator(DefaultStrategyLoader().load(GOAL).get_schema())
    if is_taken:
        validator.validate(parameters)
        assert parameters["max_migrations"] == 2 and parameters["least_slowdown"] == 1.1
    else:
        with pytest.raises((jsonschema.ValidationError, exception.AuditParameterNotAllowed)):
            validator.validate(parameters)
