# SPDX-License-Identifier: Apache-2.0
"""The strategy: ask Prometheus who slows whom, and move who slows others."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg
from oslo_log import log
from watcher.common import exception
from watcher.decision_engine.datasources.manager import DataSourceManager
from watcher.decision_engine.model import element
from watcher.decision_engine.strategy.strategies import base

from watcher_plugin import goal, pairs, plan
from watcher_plugin.pairs import Info, Sample
from watcher_plugin.plan import Limits, Node, Plan, Size, Vm

LOG = log.getLogger(__name__)

DATASOURCES = ("prometheus", "aetos")
"""Those of Watcher's that hold a client for Prometheus. No other service is told who slows whom."""

PARAMETERS: dict[str, dict[str, Any]] = {
    "least_slowdown": {
        "description": "How many times as long the work of an instance must take because of a neighbour. Pairs "
        "with less are left alone.",
        "type": "number",
        "minimum": 1.0,
        "default": 1.1,
    },
    "period": {
        "description": "For how many seconds without a break this must have been so by now. An agent compares with "
        "the last four minutes, and then finds a pair no more: longer periods find nothing.",
        "type": "integer",
        "minimum": 1,
        "maximum": 240,
        "default": 120,
    },
    "granularity": {
        "description": "Seconds between two scrapes of the gateways by Prometheus.",
        "type": "integer",
        "minimum": 1,
        "default": 30,
    },
    "lookback": {
        "description": "For how many seconds no instance of a node may have been slowed if another one is to be moved "
        "there.",
        "type": "integer",
        "minimum": 30,
        "default": 600,
    },
    "max_migrations": {
        "description": "How many instances one audit may move at most.",
        "type": "integer",
        "minimum": 0,
        "default": 2,
    },
    "resize_to": {
        "description": "For a flavor's name, the name of one that is the same with cache ways. An instance that "
        "loses cache, has a flavor named here and can't be helped by a migration gets that flavor, which restarts it. "
        "Empty means that no instance is resized.",
        "type": "object",
        "additionalProperties": {"type": "string", "minLength": 1},
        "default": {},
    },
    "max_resizes": {
        "description": "How many instances one audit may resize at most.",
        "type": "integer",
        "minimum": 0,
        "default": 1,
    },
    "explain": {
        "description": "Whether the action plan has an action that does nothing (nop) for each pair, whose message "
        "says what is done about it, or why nothing is.",
        "type": "boolean",
        "default": True,
    },
}
"""Of an audit, as a JSON schema has them."""


class NoisyNeighbour(base.BaseStrategy):  # type: ignore[misc]
    """Moves VMs away that slow their neighbours, as the agents of vmqos found.

    Needs vmqos's gateway on the compute nodes, and a Prometheus that scrapes them and that Watcher asks.
    """

    DATASOURCE_METRICS = (pairs.SLOWDOWN, pairs.INFO)

    # Watcher's class has it, without a type.
    _datasource_backend: Any

    @classmethod
    def get_name(cls) -> str:
        """The name of its entry point."""
        return goal.NAME

    @classmethod
    def get_display_name(cls) -> str:
        """What people read."""
        return cls.get_translatable_display_name()

    @classmethod
    def get_translatable_display_name(cls) -> str:
        """The same in English."""
        return "Move noisy neighbours (vmqos)"

    @classmethod
    def get_goal_name(cls) -> str:
        """The goal that it is for."""
        return goal.NAME

    @classmethod
    def get_schema(cls) -> dict[str, Any]:
        """The parameters of an audit."""
        return {"type": "object", "properties": PARAMETERS}

    @property
    def datasource_backend(self) -> Any:
        """The first of Watcher's configured datasources that asks Prometheus.

        Watcher would choose one by the metrics that it knows itself. Ours are added to those of this strategy's
        datasource, so that ``openstack optimize strategy state`` says whether Prometheus has them.
        """
        if not self._datasource_backend:
            config = self.config if self.config.datasources else cfg.CONF.watcher_datasources
            manager = DataSourceManager(config=config, osc=self.osc)
            name = next((name for name in manager.datasources or () if name in DATASOURCES), None)
            if name is None:
                raise exception.NoDatasourceAvailable
            backend = getattr(manager, name)
            backend.METRIC_MAP = {**backend.METRIC_MAP, **{name: name for name in self.DATASOURCE_METRICS}}
            self._datasource_backend = backend
        return self._datasource_backend

    def pre_execute(self) -> None:
        """See that Watcher knows the nodes and VMs."""
        self._pre_execute()

    def do_execute(self, audit: Any = None) -> None:
        """Ask, decide, and make the decision the solution's actions."""
        given = {name: spec["default"] for name, spec in PARAMETERS.items()} | dict(self.input_parameters)
        least = given["least_slowdown"]
        known = pairs.infos(self._ask(pairs.infos_expression()))
        if not known:
            # No gateway is scraped, which is not the same as no VM being slowed.
            raise exception.MetricNotAvailable(metric=pairs.INFO)
        lasting = pairs.lasting(least=least, period=given["period"], granularity=given["granularity"])
        found = pairs.pairs(self._ask(lasting))
        # For a pair that goes on, too, an agent has nothing to compare with after some minutes.
        suffering = pairs.suffering(least=least, lookback=given["lookback"])
        slowed = [labels["uuid"] for labels, _ in self._ask(suffering)]
        vms = self._vms(known)
        if strangers := {uuid for pair in found for uuid in (pair.victim, pair.culprit)} - vms.keys():
            LOG.info(
                "Pairs with these are left alone: they are outside of the audit's scope, or Watcher has not heard of "
                "them yet: %s",
                ", ".join(sorted(strangers)),
            )
        decided = plan.decide(
            found,
            vms=vms,
            nodes=self._nodes(),
            suffering=slowed,
            limits=Limits(given["max_migrations"], given["max_resizes"], given["resize_to"]),
        )
        self._carry_out(decided, explain=given["explain"])

    def post_execute(self) -> None:
        """Leave the model as it will be with the solution."""
        self.solution.model = self.compute_model

    def _ask(self, expression: str) -> list[Sample]:
        """What Prometheus answers.

        :raises watcher.common.exception.DataSourceNotAvailable: if it does not answer, after Watcher's retries.
        """
        backend = self.datasource_backend
        answer = backend.query_retry(backend.prometheus.query, expression)
        if answer is None:
            # So Watcher says that all tries failed; each of them is in the log.
            raise exception.DataSourceNotAvailable(datasource=backend.NAME)
        return [(metric.labels, float(metric.value)) for metric in answer]

    def _vms(self, known: dict[str, Info]) -> dict[str, Vm]:
        """The VMs of the audit's scope that are on a node."""
        found = {}
        for node in self.compute_model.get_all_compute_nodes().values():
            for instance in self.compute_model.get_node_instances(node):
                info = known.get(instance.uuid)
                found[instance.uuid] = Vm(
                    uuid=instance.uuid,
                    name=_field(instance, "name") or instance.uuid,
                    node=node.uuid,
                    size=Size(instance.vcpus, instance.memory, instance.disk),
                    flavor=info.flavor if info else "",
                    promised=info.promised if info else None,
                    pinned=_pinned(instance),
                )
        return found

    def _nodes(self) -> dict[str, Node]:
        """The nodes of the audit's scope."""
        found = {}
        for node in self.compute_model.get_all_compute_nodes().values():
            free = self.compute_model.get_node_free_resources(node)
            takes = (
                node.status == element.ServiceState.ENABLED.value and node.state == element.ServiceState.ONLINE.value
            )
            found[node.uuid] = Node(
                uuid=node.uuid,
                hostname=node.hostname,
                free=Size(free["vcpu"], free["memory"], free["disk"]),
                vcpus=node.vcpu_capacity,
                takes=takes,
            )
        return found

    def _carry_out(self, decided: Plan, *, explain: bool) -> None:
        for text in decided.said:
            LOG.info("%s", text)
            if explain:
                self.solution.add_action(action_type="nop", input_parameters={"message": text})
        model = self.compute_model
        for move in decided.moves:
            instance = model.get_instance_by_uuid(move.vm)
            source, destination = model.get_node_by_uuid(move.source), model.get_node_by_uuid(move.destination)
            if model.migrate_instance(instance, source, destination):
                self.add_action_migrate(instance, "live", source, destination)
        for resize in decided.resizes:
            self.solution.add_action(
                action_type="resize", resource_id=resize.vm, input_parameters={"flavor": resize.flavor}
            )
        self.solution.set_efficacy_indicators(
            slowed_instances_count=len(decided.victims),
            freed_instances_count=len(decided.freed),
            instance_migrations_count=len(decided.moves),
        )


def _pinned(instance: Any) -> str:
    """Why an instance may not be touched; empty if it may."""
    if _field(instance, "watcher_exclude"):
        return "is excluded from the audit"
    if _field(instance, "locked"):
        return "is locked"
    if instance.state != element.InstanceState.ACTIVE.value:
        return f"can't be migrated live, for it is {instance.state}"
    return ""


def _field(instance: Any, name: str) -> Any:
    """A field that not every model of Watcher fills."""
    return getattr(instance, name) if name in instance.fields and instance.obj_attr_is_set(name) else None
