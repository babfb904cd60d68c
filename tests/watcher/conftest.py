# SPDX-License-Identifier: Apache-2.0
"""Watcher's decision engine as a library, and a Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from oslo_config import cfg
from watcher import conf as watcher_conf
from watcher import objects
from watcher.common import config, rpc
from watcher.decision_engine.loading.default import ClusterDataModelCollectorLoader
from watcher.decision_engine.model.model_root import ModelRoot
from watcher.decision_engine.strategy.selection.default import DefaultStrategySelector

from tests.openstack.servers.prometheus import Prometheus
from tests.watcher import history
from tests.watcher.history import Told, during
from tools.lab.workspace import Workspace

assert watcher_conf.CONF is cfg.CONF
GOAL = "vmqos_noisy_neighbour"
FLAVORS = {
    "gold": ("m1.gold", "exclusive"),
    "gold-2": ("m1.gold", "exclusive"),
    "capped": ("m1.capped", "shared"),
}
PAIRS = (
    Told("noisy", "slowed", 1.4, during(300, 0)),
    Told("noisy", "slowed", 1.2, during(300, 0), cause="memory-bandwidth"),
    Told("noisy-2", "slowed-2", 1.3, during(300, 0)),
    Told("noisy-2", "slowed-3", 1.3, during(300, 0)),
    Told("brief", "slowed-briefly", 1.8, during(60, 0)),
    Told("light", "slowed-lightly", 1.05),
    Told("now-and-then", "slowed-at-times", 1.8, lambda ago: ago % 120 != 60),
    Told("earlier", "slowed-earlier", 1.4, during(480, 300)),
    Told("until-now", "slowed-until-now", 1.4, during(300, 30)),
    Told("from-now-on", "slowed-from-now-on", 1.4, during(0, 0)),
    Told("gold", "slowed-by-gold", 1.4, during(300, 0)),
    Told("gold", "gold-2", 1.4, during(300, 0)),
    Told("capped", "slowed-by-capped", 1.4, during(300, 0)),
    Told("each", "other", 1.5, during(300, 0)),
    Told("other", "each", 1.4, during(300, 0)),
    Told("unknown", "slowed-by-unknown", 1.5, during(300, 0)),
)
NAMES = {name for pair in PAIRS for name in (pair.culprit, pair.victim)} - {"unknown"}

Audit = Callable[..., Any]
"""Runs an audit on a model with parameters, and answers with the solution."""


@pytest.fixture(scope="session")
def moment() -> int:
    """What Prometheus is asked about: seconds since 1970."""
    return int(time.time())


@pytest.fixture(scope="session")
def prometheus(moment: int) -> Iterator[Prometheus]:
    """A Prometheus that was told of all pairs. A test's model decides which of them matter."""
    with Workspace() as workspace:
        vms = {name: FLAVORS.get(name, ("m1.plain", "")) for name in sorted(NAMES)}
        started = history.start(workspace, PAIRS, vms, moment)
        yield started
        started.stop()


@pytest.fixture(scope="session")
def engine() -> Iterator[None]:
    """Watcher as a library: its configuration, its objects, and oslo.messaging within the process."""
    config.parse_args(["watcher"], default_config_files=[], default_config_dirs=[])
    cfg.CONF.set_override("transport_url", "fake://")
    rpc.init(cfg.CONF)
    objects.register_all()
    yield
    rpc.cleanup()


@pytest.fixture
def asked_about(moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each query be about this moment, which is the past of a slow machine. Watcher's client can't say so."""
    request = requests.Session.request

    def about(session: requests.Session, method: str, url: str, params: Any = None, **rest: Any) -> requests.Response:
        if url.endswith("/api/v1/query"):
            params = {**params, "time": moment}
        return request(session, method, url, params=params, **rest)

    monkeypatch.setattr(requests.Session, "request", about)


@pytest.fixture
def settings(engine: None, prometheus: Prometheus, asked_about: None) -> Iterator[Any]:
    """Watcher's configuration, as an operator would write it for this Prometheus."""
    cfg.CONF.set_override("host", "127.0.0.1", "prometheus_client")
    cfg.CONF.set_override("port", prometheus.port, "prometheus_client")
    cfg.CONF.set_override("datasources", ["gnocchi", "prometheus"], "watcher_datasources")
    cfg.CONF.set_override("query_max_retries", 1, "watcher_datasources")
    cfg.CONF.set_override("query_interval", 0, "watcher_datasources")
    yield cfg.CONF
    for name, group in (
        *((name, "prometheus_client") for name in ("host", "port")),
        *((name, "watcher_datasources") for name in ("datasources", "query_max_retries", "query_interval")),
    ):
        cfg.CONF.clear_override(name, group)


@pytest.fixture
def tell(engine: None) -> Callable[[ModelRoot], None]:
    """Have the collector of Watcher's model answer with this model, as if Nova had told it so."""

    def set_model(model: ModelRoot) -> None:
        collector = ClusterDataModelCollectorLoader().load("compute")
        # The first audit's scope is that of the model: here the whole cloud. It would ask Nova for a model of that.
        collector.get_audit_scope_handler([])
        collector.cluster_data_model = model

    return set_model


@pytest.fixture
def audit(settings: Any, tell: Callable[[ModelRoot], None]) -> Audit:
    """Audits by the strategy that Watcher chooses for the goal."""

    def execute(model: ModelRoot, **parameters: Any) -> Any:
        tell(model)
        strategy = DefaultStrategySelector(GOAL).select()
        strategy.input_parameters.update(parameters)
        return strategy.execute()

    return execute
