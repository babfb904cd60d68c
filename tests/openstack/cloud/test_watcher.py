# SPDX-License-Identifier: Apache-2.0
"""Watcher with our goal and strategy: from what resctrl counts on a compute node to the migration of a server.

Only the counters are played. The agents judge them, the gateways publish the verdicts, a Prometheus scrapes these,
Watcher's decision engine makes a plan of them, and its applier has Nova carry it out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import yaml

from tests.functional.insight.test_neighbours import AT_REST, CALM, ROBBED, THIEF, play
from tests.openstack.cloud.agreement import agree
from tests.openstack.cloud.cloud import CDROM, Cloud
from tests.openstack.cloud.conftest import MakeServer
from tests.openstack.cloud.node import Node
from tests.openstack.cloud.test_two_hosts import host
from tests.openstack.servers.process import free_port
from tests.openstack.servers.prometheus import Prometheus
from tests.openstack.servers.watcher import Watcher
from tools.lab.workspace import CHECKOUT, Workspace

pytestmark = pytest.mark.timeout(900)

GOAL = "vmqos_noisy_neighbour"
SLOWDOWN = "vmqos_vm_neighbour_slowdown_ratio"
PERIOD, GRANULARITY = 6, 2
"""Seconds. The scrapes are nearer to each other than an audit is told: a busy machine may miss one."""
SCRAPE_SECONDS = 1
SAMPLES = 12
"""Of a calm time, one a second."""
OVER = ("SUCCEEDED", "FAILED", "CANCELLED")


@pytest.fixture(scope="module")
def hosts(cloud: Cloud) -> Iterator[tuple[Node, Node]]:
    """Two compute nodes whose counters show what a test plays. The cloud's own one takes no servers meanwhile."""
    with ExitStack() as stack:
        stack.enter_context(closed(cloud, *cloud.nodes))
        nodes = []
        for name in ("compute-2", "compute-3"):
            node = Node(
                name,
                stack.enter_context(Workspace()),
                hostname=name,
                options={
                    "http": {"port": free_port()},
                    "telemetry": {"interval": 1, "neighbours_interval": 1, "hardware_events": False},
                },
                simulator="tests.functional.insight.playing_simulator",
            )
            node.start()
            cloud.add(node)
            stack.callback(cloud.remove, node)
            nodes.append(node)
        yield nodes[0], nodes[1]
        cloud.wait_for(lambda: not list(cloud.api.compute.servers()), "all servers being deleted")


@pytest.fixture(scope="module")
def prometheus(cloud: Cloud, hosts: tuple[Node, Node]) -> Iterator[Prometheus]:
    """Prometheus with our configuration, but for where the agents are and how long a test can wait."""
    configuration = yaml.safe_load((CHECKOUT / "etc" / "prometheus" / "prometheus.yml").read_text())
    del configuration["rule_files"]
    (job,) = configuration["scrape_configs"]
    job["scrape_interval"] = f"{SCRAPE_SECONDS}s"
    job["static_configs"] = [{"targets": [f"127.0.0.1:{node.options['http']['port']}" for node in hosts]}]
    file = cloud.workspace.path / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    started = Prometheus(cloud.workspace, file)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def started_watcher(cloud: Cloud, prometheus: Prometheus) -> Iterator[Watcher]:
    """Watcher, with our goal in its database and its services up."""
    started = Watcher(
        cloud.workspace,
        cloud.keystone,
        database=cloud.make_database("watcher"),
        transport_url=cloud.bus.url(),
        prometheus=prometheus.port,
    )
    cloud.wait_for(lambda: GOAL in [goal["name"] for goal in started.ask("goals")["goals"]], "Watcher knowing our goal")
    up = {"watcher-decision-engine", "watcher-applier"}
    cloud.wait_for(lambda: services_of(started) == up, "Watcher's services being up")
    yield started
    started.stop()


@pytest.fixture
def watcher(started_watcher: Watcher) -> Iterator[Watcher]:
    """The same; what its services said meanwhile is shown with a test that failed."""
    before = {log: log.stat().st_size for log in started_watcher.logs}
    yield started_watcher
    for log, size in before.items():
        print(f"--- {log}\n{log.read_text(errors='replace')[size:][-8000:]}")


@contextmanager
def closed(cloud: Cloud, *nodes: Node) -> Iterator[None]:
    """Nodes get no servers."""
    compute = cloud.api.compute
    services = [service for node in nodes for service in compute.services(host=node.name, binary="nova-compute")]
    for service in services:
        compute.disable_service(service, disabled_reason="a test")
    try:
        yield
    finally:
        for service in services:
            compute.enable_service(service)


def services_of(watcher: Watcher) -> set[str]:
    return {service["name"] for service in watcher.ask("services")["services"] if service["status"] == "ACTIVE"}


def slow(cloud: Cloud, node: Node, *, victim: Any, culprit: Any) -> None:
    """After a calm time, one server begins to take the cache of another one."""
    play(node.simulator, {victim.id: CALM, culprit.id: AT_REST})
    cloud.wait_for(lambda: calm_samples(node, victim) >= SAMPLES, "samples of a calm time")
    play(node.simulator, {victim.id: ROBBED, culprit.id: THIEF})


def wait_until_known(cloud: Cloud, prometheus: Prometheus, *, victim: Any, culprit: Any) -> None:
    """Wait until Prometheus has the pair for as long as an audit asks for."""
    series = f'{SLOWDOWN}{{uuid="{victim.id}",culprit="{culprit.id}",cause="cache"}}'
    lasts = f"count_over_time({series}[{PERIOD}s]) >= {PERIOD // SCRAPE_SECONDS - 1}"
    cloud.wait_for(lambda: prometheus.query(lasts), "a pair that lasts")


def calm_samples(node: Node, server: Any) -> int:
    samples = node.agent.get("/v1/neighbours/samples")["samples"].get(server.id, [])
    return sum(one["bandwidth"] == pytest.approx(CALM[1], rel=0.15) for one in samples)


def audit(cloud: Cloud, watcher: Watcher, **parameters: object) -> str:
    """Have Watcher audit our goal once; the result is the plan's UUID."""
    uuid = create_audit(cloud, **parameters)
    cloud.wait_for(lambda: watcher.ask(f"audits/{uuid}")["state"] in OVER, "the audit's end")
    assert watcher.ask(f"audits/{uuid}")["state"] == "SUCCEEDED"
    (plan,) = watcher.ask(f"action_plans?audit_uuid={uuid}")["action_plans"]
    return str(plan["uuid"])


def create_audit(cloud: Cloud, *options: str, **parameters: object) -> str:
    """An audit, made with the operator's command; the result is its UUID."""
    given = {"period": PERIOD, "granularity": GRANULARITY} | parameters
    words = [word for name, value in given.items() for word in ("-p", f"{name}={json.dumps(value)}")]
    made = cloud.client("optimize", "audit", "create", "-g", GOAL, "-s", GOAL, *options, *words, "-f", "json")
    return str(json.loads(made)["UUID"])


def actions(watcher: Watcher, plan: str) -> list[tuple[str, dict[str, Any]]]:
    """A plan's actions, by their types: what each is given."""
    found = watcher.ask(f"actions/detail?action_plan_uuid={plan}")["actions"]
    return sorted(((action["action_type"], action["input_parameters"]) for action in found), key=lambda one: one[0])


def carry_out(cloud: Cloud, watcher: Watcher, plan: str) -> None:
    """Have Watcher's applier do what a plan says."""
    cloud.client("optimize", "actionplan", "start", plan)
    cloud.wait_for(lambda: watcher.ask(f"action_plans/{plan}")["state"] in OVER, "the plan's end")
    ended = watcher.ask(f"actions/detail?action_plan_uuid={plan}")["actions"]
    assert {action["state"] for action in ended} == {"SUCCEEDED"}, ended
    assert watcher.ask(f"action_plans/{plan}")["state"] == "SUCCEEDED"


def test_the_server_that_slows_another_one_is_migrated_and_all_promises_are_kept(
    cloud: Cloud, hosts: tuple[Node, Node], prometheus: Prometheus, watcher: Watcher, make_server: MakeServer
) -> None:
    source, destination = hosts
    with closed(cloud, destination):
        victim, culprit, gold = (make_server(flavor, image=CDROM) for flavor in ("plain", "plain", "w4"))
    agree(cloud)
    slow(cloud, source, victim=victim, culprit=culprit)
    wait_until_known(cloud, prometheus, victim=victim, culprit=culprit)
    told = json.loads(cloud.client("optimize", "strategy", "state", GOAL, "-f", "json"))
    state = {one["Type"]: one["State"] for one in told}
    assert state["Datasource"] == "prometheus: available"
    assert json.loads(state["Metrics"]) == [{SLOWDOWN: "available"}, {"vmqos_vm_info": "available"}]

    plan = audit(cloud, watcher)
    (kind, move), (_, nop) = actions(watcher, plan)
    assert (kind, move["resource_id"], move["migration_type"]) == ("migrate", culprit.id, "live")
    assert (move["source_node"], move["destination_node"]) == (source.name, destination.name)
    assert nop["message"].startswith(f"{culprit.name} makes the work of {victim.name} take ")
    assert nop["message"].endswith(f" by the cache: {culprit.name} is moved to {destination.name}")
    assert plan in cloud.client("optimize", "actionplan", "list")
    assert culprit.id in cloud.client("optimize", "action", "list", "--action-plan", plan, "--detail")

    carry_out(cloud, watcher, plan)
    assert [host(cloud, server) for server in (victim, culprit, gold)] == [source.name, destination.name, source.name]
    agree(cloud)

    # Nobody takes its cache any more.
    play(source.simulator, {victim.id: CALM})
    play(destination.simulator, {culprit.id: THIEF})
    cloud.wait_for(lambda: not prometheus.query(SLOWDOWN), "no server being slowed")
    assert actions(watcher, audit(cloud, watcher)) == []


def test_a_server_that_is_locked_stays_and_the_one_that_it_slows_gets_the_flavor_with_ways(
    cloud: Cloud, hosts: tuple[Node, Node], prometheus: Prometheus, watcher: Watcher, make_server: MakeServer
) -> None:
    source, destination = hosts
    with closed(cloud, destination):
        victim, culprit = (make_server("plain") for _ in range(2))
    cloud.api.compute.lock_server(culprit)
    slow(cloud, source, victim=victim, culprit=culprit)
    wait_until_known(cloud, prometheus, victim=victim, culprit=culprit)

    plan = audit(cloud, watcher, resize_to={"plain": "w2"})
    (_, nop), (kind, resize) = actions(watcher, plan)
    assert (kind, resize) == ("resize", {"resource_id": victim.id, "flavor": "w2"})
    assert nop["message"].endswith(f"{culprit.name} is locked; {victim.name} gets the flavor w2")

    carry_out(cloud, watcher, plan)
    cloud.wait_for_status(victim, "ACTIVE")
    assert cloud.api.compute.get_server(victim).flavor["original_name"] == "w2"
    assert host(cloud, culprit) == source.name
    # Two ways on the node that it is on now, in Placement, libvirt and resctrl.
    agree(cloud)


def test_a_continuous_audit_moves_the_server_away_that_slows_another_one(
    cloud: Cloud, hosts: tuple[Node, Node], watcher: Watcher, make_server: MakeServer
) -> None:
    source, destination = hosts
    with closed(cloud, destination):
        victim, culprit = (make_server("plain", image=CDROM) for _ in range(2))
    uuid = create_audit(cloud, "-t", "CONTINUOUS", "-i", "5", "--auto-trigger")
    try:
        slow(cloud, source, victim=victim, culprit=culprit)
        cloud.wait_for(lambda: host(cloud, culprit) == destination.name, "the server on the other node")
        cloud.wait_for_status(culprit, "ACTIVE")
    finally:
        cloud.client("optimize", "audit", "update", uuid, "replace", "state=CANCELLED")
    assert host(cloud, victim) == source.name
    agree(cloud)
