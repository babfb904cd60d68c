# SPDX-License-Identifier: Apache-2.0
"""An audit from Watcher's database to an action plan there, whose actions Watcher's applier takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg
from watcher import objects
from watcher.applier.actions.factory import ActionFactory
from watcher.common import context, utils
from watcher.db.sqlalchemy import migration
from watcher.decision_engine.loading.default import DefaultPlannerLoader
from watcher.decision_engine.strategy.context.default import DefaultStrategyContext
from watcher.decision_engine.sync import Syncer

from tests.watcher.cloud import model
from tests.watcher.conftest import GOAL
from tests.watcher.history import vm_uuid


@pytest.fixture
def database(engine: None, tmp_path: Path) -> Iterator[None]:
    """Watcher's database, with the goals and strategies that are installed."""
    cfg.CONF.set_override("connection", f"sqlite:///{tmp_path / 'watcher.sqlite'}", "database")
    migration.create_schema()
    Syncer().sync()
    yield
    cfg.CONF.clear_override("connection", "database")


def test_an_audit_of_the_goal_becomes_a_plan_whose_actions_the_applier_takes(
    database: None, settings: Any, tell: Callable[..., None]
) -> None:
    # noisy-2 slows two VMs, and gold one that gets another flavor.
    vms = {"noisy-2": "one", "slowed-2": "one", "slowed-3": "one", "gold": "two", "slowed-by-gold": "two"}
    tell(model(vms, {"three": {}}))
    request = context.make_context()
    goal = objects.Goal.get_by_name(request, GOAL)
    assert [strategy.name for strategy in objects.Strategy.list(request, filters={"goal_id": goal.id})] == [GOAL]

    audit = objects.Audit(
        request,
        uuid=utils.generate_uuid(),
        name="neighbours",
        audit_type=objects.audit.AuditType.ONESHOT.value,
        state=objects.audit.State.PENDING,
        goal_id=goal.id,
        strategy_id=None,
        interval=None,
        scope=[],
        auto_trigger=False,
        parameters={"resize_to": {"m1.plain": "m1.plain.cache"}},
    )
    audit.create()
    solution = DefaultStrategyContext().execute_strategy(audit, request)
    planner = DefaultPlannerLoader().load(solution.strategy.planner)
    plan = planner.schedule(request, audit.id, solution)

    assert plan.state == objects.action_plan.State.RECOMMENDED
    assert [(one["name"], one["value"]) for one in plan.global_efficacy] == [("freed_instances_ratio", 100.0)]
    actions = objects.Action.list(request, filters={"action_plan_uuid": plan.uuid})
    assert sorted(action.action_type for action in actions) == ["migrate", "nop", "nop", "nop", "resize"]
    for action in actions:
        # It refuses what does not fit the action's schema.
        ActionFactory().make_action(action)
    (move,) = (action.input_parameters for action in actions if action.action_type == "migrate")
    assert (move["resource_id"], move["destination_node"]) == (vm_uuid("noisy-2"), "three")
    (resize,) = (action.input_parameters for action in actions if action.action_type == "resize")
    assert resize == {"resource_id": vm_uuid("slowed-by-gold"), "flavor": "m1.plain.cache"}
