# SPDX-License-Identifier: Apache-2.0
"""``vmqos placement audit`` and ``heal`` beside Placement itself and Nova's own API; no service is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import nova.context
import pytest
from nova import objects
from nova.network import model as network_model

from tests.unit.nova_plugin.clouds import Cloud, Placement, flavor
from tests.unit.nova_plugin.nova_api import PREFIX, NovaApi
from tests.unit.nova_plugin.served import served
from vmqos.extra_specs.resources import LLC_CLASSES, LLC_WAYS, provider_name

TWO = {"hw:cache_ways": "2"}
ASKING = {**TWO, f"resources:{LLC_WAYS}": "2", f"resources:{LLC_CLASSES}": "1"}
CLAIM = {LLC_WAYS: 2, LLC_CLASSES: 1}
CPUS = {"VCPU": 1, "MEMORY_MB": 64}

Held = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a command."""

    status: int
    rows: list[dict[str, Any]]
    err: str


def _no_ports(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    """What Neutron says of servers without a network."""
    start("200 OK", [("Content-Type", "application/json")])
    return [b'{"ports": []}']


@pytest.fixture(scope="module")
def api(nova_conf: Any) -> Iterator[str]:
    """Nova's API, with a Neutron that has no ports."""
    with served(_no_ports) as neutron, served(NovaApi()) as url:
        nova_conf.set_override("auth_type", "none", group="neutron")
        nova_conf.set_override("endpoint_override", neutron, group="neutron")
        yield f"{url}{PREFIX}"
        nova_conf.clear_override("auth_type", group="neutron")
        nova_conf.clear_override("endpoint_override", group="neutron")


class Between:
    """Passes on to Placement what is asked, and may have something done before."""

    def __init__(self, placement_url: str) -> None:
        self._url = placement_url
        self.before: Callable[[str, str], object] = lambda method, path: None
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        """Answer one request."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        with self._lock:
            self.asked.append(f"{method} {path}")
        self.before(method, path)
        version = environ.get("HTTP_OPENSTACK_API_VERSION", "placement 1.0")
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": version, "Accept": "application/json"}
        if body:
            headers["Content-Type"] = "application/json"
        query = environ.get("QUERY_STRING", "")
        url = f"{self._url}{path}{'?' + query if query else ''}"
        answer = httpx.request(method, url, headers=headers, content=body, trust_env=False)
        start(f"{answer.status_code} X", [("Content-Type", answer.headers.get("Content-Type", "text/plain"))])
        return [answer.content]


@pytest.fixture
def between(placement_url: str) -> Between:
    return Between(placement_url)


@pytest.fixture
def vmqos(api: str, between: Between, tmp_path: Path) -> Iterator[Callable[..., Ran]]:
    """Runs ``vmqos placement``, which finds the cloud in clouds.yaml."""
    with served(between) as placement_url:
        here = {
            "auth_type": "none",
            "compute_endpoint_override": api,
            "placement_endpoint_override": placement_url,
            "placement_api_version": "1",
        }
        (tmp_path / "clouds.yaml").write_text(json.dumps({"clouds": {"here": here}}))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        environment = {**kept, "OS_CLOUD": "here", "OS_CLIENT_CONFIG_FILE": str(tmp_path / "clouds.yaml")}

        def run(*arguments: str) -> Ran:
            words = [sys.executable, "-m", "vmqos.cli.main", "placement", *arguments, "-f", "json"]
            ran = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=120)
            return Ran(ran.returncode, json.loads(ran.stdout) if ran.stdout else [], ran.stderr)

        yield run


@dataclass
class Estate:
    """Hosts and servers that Nova and Placement know both."""

    cloud: Cloud
    placement: Placement
    made: list[Any] = field(default_factory=list)
    consumers: set[str] = field(default_factory=set)

    def host(self, ways: int = 8) -> Node:
        """A compute node whose agent has told Placement what it has."""
        return self._node(self.placement.compute_node(ways))

    def host_with_a_file(self, ways: int = 8) -> Node:
        """A compute node whose own provider has the ways."""
        return self._node(self.placement.node_with_a_file(ways, 15))

    def _node(self, root: str) -> Node:
        name = self.placement.http.get(f"/resource_providers/{root}").json()["name"]
        found = self.placement.http.get("/resource_providers", params={"name": provider_name(name)}).json()
        cache = next((one["uuid"] for one in found["resource_providers"]), "")
        return Node(name, root, cache)

    def server(
        self, node: Node | None, specs: Mapping[str, str], *, state: str = "active", task: str | None = None
    ) -> str:
        """A server in Nova's database, as conductor and nova-compute leave it; its UUID."""
        context, uuid = self.cloud.context, str(uuid4())
        who = {"user_id": "u", "project_id": "p"}
        mapping = objects.InstanceMapping(
            nova.context.get_admin_context(),
            instance_uuid=uuid,
            cell_mapping=objects.CellMapping.get_by_uuid(context, self.cloud.cell),
            queued_for_delete=False,
            **who,
        )
        mapping.create()
        made = objects.Instance(
            context,
            uuid=uuid,
            display_name=f"server-{uuid[:4]}",
            hostname="server",
            host=node.name if node else None,
            node=node.name if node else None,
            compute_id=1,
            flavor=flavor(specs),
            old_flavor=None,
            new_flavor=None,
            instance_type_id=1,
            vcpus=1,
            memory_mb=64,
            root_gb=0,
            ephemeral_gb=0,
            vm_state=state,
            task_state=task,
            power_state=1,
            image_ref="",
            info_cache=objects.InstanceInfoCache(context, instance_uuid=uuid, network_info=network_model.NetworkInfo()),
            **who,
        )
        made.system_metadata = {}
        made.create()
        self.made += [mapping, made]
        return uuid

    def migration(self, server: str, source: Node, status: str) -> str:
        """A migration in Nova's database; its UUID."""
        made = objects.Migration(
            self.cloud.context,
            instance_uuid=server,
            source_compute=source.name,
            source_node=source.name,
            dest_compute="elsewhere",
            status=status,
            migration_type="resize",
            old_instance_type_id=1,
            new_instance_type_id=1,
        )
        made.create()
        return str(made.uuid)

    def hold(self, consumer: str, held: Held, *, version: str = "1.38", kind: str = "INSTANCE") -> None:
        """Have a consumer hold all that, as nova-scheduler does it."""
        allocations = {provider: {"resources": amounts} for provider, amounts in held.items()}
        body = {"allocations": allocations, "project_id": "p", "user_id": "u", "consumer_generation": None}
        before = self.placement.http.get(f"/allocations/{consumer}").json()
        body["consumer_generation"] = before.get("consumer_generation")
        headers = {"OpenStack-API-Version": f"placement {version}"}
        answer = self.placement.http.put(
            f"/allocations/{consumer}", json={**body, "consumer_type": kind}, headers=headers
        )
        assert answer.status_code == 204, answer.text
        self.consumers.add(consumer)

    def held(self, consumer: str) -> Held:
        """All that a consumer holds."""
        found = self.placement.http.get(f"/allocations/{consumer}").json()["allocations"]
        return {provider: value["resources"] for provider, value in found.items()}

    def consumer(self, uuid: str) -> dict[str, Any]:
        """What Placement knows of a consumer, without what it holds."""
        headers = {"OpenStack-API-Version": "placement 1.38"}
        found = self.placement.http.get(f"/allocations/{uuid}", headers=headers).json()
        return {name: found.get(name) for name in ("project_id", "user_id", "consumer_type")}

    def remove(self) -> None:
        """Have Nova and Placement forget all."""
        for consumer in self.consumers:
            # Nothing is there (404) where the command has removed it.
            assert self.placement.http.delete(f"/allocations/{consumer}").status_code in (204, 404)
        for one in reversed(self.made):
            if not getattr(one, "deleted", False):
                one.destroy()


@dataclass(frozen=True, slots=True)
class Node:
    """A compute node.

    :ivar root: the UUID of its own provider.
    :ivar cache: the UUID of the agent's.
    """

    name: str
    root: str
    cache: str


@pytest.fixture
def estate(cloud: Cloud, placement: Placement) -> Iterator[Estate]:
    # Nova's API remembers the cells.
    nova.context.CELLS = []
    made = Estate(cloud, placement)
    yield made
    made.remove()
    nova.context.CELLS = []


Vmqos = Callable[..., Ran]


def problems(ran: Ran) -> dict[str, str]:
    """The problems by consumer."""
    return {row["consumer"]: row["problem"] for row in ran.rows}


def test_a_cloud_in_which_all_claims_are_right_is_clean(estate: Estate, vmqos: Vmqos) -> None:
    node, other = estate.host(), estate.host_with_a_file()
    plain, asks, older = estate.server(node, {}), estate.server(node, ASKING), estate.server(other, TWO)
    estate.hold(plain, {node.root: CPUS})
    estate.hold(asks, {node.root: CPUS, node.cache: CLAIM})
    estate.hold(older, {other.root: CLAIM})
    for command in ("audit", "heal"):
        ran = vmqos(command)
        assert (ran.status, ran.rows, ran.err) == (0, [], ""), command


def test_what_an_orphan_holds_of_ours_goes_and_the_rest_is_left_to_nova_manage(estate: Estate, vmqos: Vmqos) -> None:
    node = estate.host()
    gone, half = str(uuid4()), str(uuid4())
    estate.hold(gone, {node.cache: CLAIM})
    estate.hold(half, {node.root: CPUS, node.cache: CLAIM})
    assert problems(vmqos("audit")) == {gone: "orphan", half: "orphan"}
    ran = vmqos("heal")
    assert ran.status == 0 and {row["result"] for row in ran.rows} == {"mended"}
    assert estate.held(gone) == {}
    assert estate.held(half) == {node.root: CPUS}
    assert "nova-manage placement audit" in next(row["detail"] for row in ran.rows if row["consumer"] == half)
    assert vmqos("audit").status == 0


def test_what_novas_own_audit_leaves_of_an_orphan_is_found_and_given_back(
    estate: Estate, vmqos: Vmqos, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nova.cmd import manage

    # Nova remembers the cells that were there when it was first asked, those of earlier tests.
    monkeypatch.setattr(nova.context, "CELLS", [])
    node, gone = estate.host(), str(uuid4())
    estate.hold(gone, {node.root: CPUS, node.cache: CLAIM})
    removed_some, nothing_to_do = 4, 0
    audit = manage.PlacementCommands().audit
    assert [audit(verbose=False, delete=True) for _ in range(2)] == [removed_some, nothing_to_do]
    assert estate.held(gone) == {node.cache: CLAIM}
    assert problems(vmqos("audit")) == {gone: "orphan"}
    assert [row["result"] for row in vmqos("heal").rows] == ["mended"]
    assert estate.held(gone) == {}


def test_a_server_without_a_claim_gets_one_and_keeps_all_else(estate: Estate, vmqos: Vmqos) -> None:
    node = estate.host()
    server = estate.server(node, TWO)
    estate.hold(server, {node.root: CPUS})
    before = estate.consumer(server)
    assert before["consumer_type"] == "INSTANCE"
    ran = vmqos("audit", "--host", node.name)
    assert (ran.status, problems(ran)) == (1, {server: "missing"})
    dry = vmqos("heal", "--dry-run")
    assert [row["result"] for row in dry.rows] == ["would mend"]
    assert estate.held(server) == {node.root: CPUS}
    ran = vmqos("heal")
    assert (ran.status, [row["result"] for row in ran.rows]) == (0, ["mended"])
    assert estate.held(server) == {node.root: CPUS, node.cache: CLAIM}
    assert estate.consumer(server) == before
    assert vmqos("audit").status == 0


def test_a_claim_that_is_too_small_grows_and_one_that_is_too_large_shrinks(estate: Estate, vmqos: Vmqos) -> None:
    node = estate.host()
    small, large, plain = estate.server(node, TWO), estate.server(node, TWO), estate.server(node, {})
    estate.hold(small, {node.root: CPUS, node.cache: {LLC_WAYS: 1, LLC_CLASSES: 1}})
    estate.hold(large, {node.root: CPUS, node.cache: {LLC_WAYS: 6, LLC_CLASSES: 1}})
    estate.hold(plain, {node.root: CPUS, node.cache: {LLC_WAYS: 1}})
    assert problems(vmqos("audit")) == {small: "too little", large: "too much", plain: "too much"}
    # The one that grows has room only after the other has shrunk.
    assert vmqos("heal").status == 0
    assert [estate.held(one).get(node.cache) for one in (small, large, plain)] == [CLAIM, CLAIM, None]


def test_what_the_flavor_asked_for_beyond_its_promise_is_held_rightly(estate: Estate, vmqos: Vmqos) -> None:
    node = estate.host()
    server = estate.server(node, {**ASKING, f"resources:{LLC_WAYS}": "3"})
    estate.hold(server, {node.root: CPUS, node.cache: {LLC_WAYS: 3, LLC_CLASSES: 1}})
    assert vmqos("audit").status == 0


def test_a_claim_on_another_host_moves_home_unless_nova_itself_holds_something_there(
    estate: Estate, vmqos: Vmqos
) -> None:
    node, other = estate.host(), estate.host()
    strayed, doubled, evacuated = (estate.server(node, ASKING) for _ in range(3))
    estate.hold(strayed, {node.root: CPUS, other.cache: CLAIM})
    estate.hold(doubled, {node.root: CPUS, node.cache: CLAIM, other.cache: CLAIM})
    both = {node.root: CPUS, node.cache: CLAIM, other.root: CPUS, other.cache: CLAIM}
    estate.hold(evacuated, both)
    assert problems(vmqos("audit")) == {strayed: "misplaced", doubled: "double", evacuated: "double"}
    ran = vmqos("heal")
    assert ran.status == 1
    assert {row["consumer"]: row["result"] for row in ran.rows} == {
        strayed: "mended",
        doubled: "mended",
        evacuated: "left",
    }
    for server in (strayed, doubled):
        assert estate.held(server) == {node.root: CPUS, node.cache: CLAIM}
    assert estate.held(evacuated) == both


def test_a_server_on_no_host_holds_nothing(estate: Estate, vmqos: Vmqos) -> None:
    node = estate.host()
    shelved = estate.server(None, ASKING, state="shelved_offloaded")
    estate.hold(shelved, {node.cache: CLAIM})
    assert problems(vmqos("audit")) == {shelved: "misplaced"}
    assert vmqos("heal").status == 0
    assert estate.held(shelved) == {}


@pytest.mark.parametrize(
    ("state", "task"),
    [("active", "resize_prep"), ("resized", None), ("building", "spawning"), ("error", None), ("active", "migrating")],
)
def test_a_server_that_nova_works_on_is_left_alone(estate: Estate, vmqos: Vmqos, state: str, task: str | None) -> None:
    node = estate.host()
    server = estate.server(node, TWO, state=state, task=task)
    held = {node.root: CPUS, node.cache: {LLC_WAYS: 1, LLC_CLASSES: 1}}
    estate.hold(server, held)
    assert (vmqos("audit").status, vmqos("heal").status) == (0, 0)
    assert estate.held(server) == held


def test_a_resize_that_waits_keeps_what_its_migration_holds_and_one_that_is_over_does_not(
    estate: Estate, vmqos: Vmqos
) -> None:
    old, new = estate.host(), estate.host()
    waits, done, failed = (estate.server(new, ASKING, state=state) for state in ("resized", "active", "active"))
    consumers = [
        estate.migration(server, old, status)
        for server, status in ((waits, "finished"), (done, "confirmed"), (failed, "error"))
    ]
    for server in (waits, done, failed):
        estate.hold(server, {new.root: CPUS, new.cache: CLAIM})
    for consumer in consumers:
        estate.hold(consumer, {old.root: CPUS, old.cache: CLAIM}, kind="MIGRATION")
    ran = vmqos("audit")
    assert problems(ran) == {consumers[1]: "orphan", consumers[2]: "orphan"}
    assert vmqos("heal").status == 1
    assert [estate.held(one).get(old.cache) for one in consumers] == [CLAIM, None, CLAIM]


def test_a_host_without_room_is_named_and_nothing_is_taken(estate: Estate, vmqos: Vmqos) -> None:
    node = estate.host(ways=3)
    late, early = estate.server(node, TWO), estate.server(node, ASKING)
    estate.hold(late, {node.root: CPUS})
    estate.hold(early, {node.root: CPUS, node.cache: CLAIM})
    ran = vmqos("heal")
    assert ran.status == 1
    (row,) = ran.rows
    assert (row["consumer"], row["result"]) == (late, "left")
    assert f"no room on {node.name}: it takes 2 more {LLC_WAYS} of {node.name}_LLC, where 1 are left" in row["detail"]
    assert (estate.held(late), estate.held(early)[node.cache]) == ({node.root: CPUS}, CLAIM)


def test_a_server_without_any_allocation_is_left_to_the_operator(estate: Estate, vmqos: Vmqos) -> None:
    node = estate.host()
    server = estate.server(node, TWO)
    ran = vmqos("heal")
    assert (ran.status, [row["result"] for row in ran.rows]) == (1, ["left"])
    assert "no allocation at all" in ran.rows[0]["detail"]
    assert estate.held(server) == {}


def test_a_host_of_which_more_is_claimed_than_there_is_is_found(estate: Estate, vmqos: Vmqos) -> None:
    node = estate.host()
    server = estate.server(node, ASKING)
    estate.hold(server, {node.root: CPUS, node.cache: CLAIM})
    http = estate.placement.http
    generation = http.get(f"/resource_providers/{node.cache}").json()["generation"]
    inventories = {LLC_WAYS: {"total": 8, "reserved": 8}, LLC_CLASSES: {"total": 15}}
    body = {"inventories": inventories, "resource_provider_generation": generation}
    http.put(f"/resource_providers/{node.cache}/inventories", json=body).raise_for_status()
    ran = vmqos("audit")
    assert [(row["problem"], row["host"], row["mendable"]) for row in ran.rows] == [("overdrawn", node.name, False)]
    assert f"2 {LLC_WAYS} of {node.name}_LLC are claimed, and 0 can be had: all is reserved" in ran.rows[0]["detail"]


def test_where_the_filter_counts_alone_a_server_that_asked_for_nothing_needs_no_claim(
    estate: Estate, vmqos: Vmqos
) -> None:
    node = estate.host()
    silent, asks = estate.server(node, TWO), estate.server(node, ASKING)
    for server in (silent, asks):
        estate.hold(server, {node.root: CPUS})
    assert problems(vmqos("audit", "--filter-only")) == {asks: "missing"}


def test_what_nova_changes_at_the_same_moment_is_not_lost(estate: Estate, vmqos: Vmqos, between: Between) -> None:
    node = estate.host()
    server = estate.server(node, TWO)
    estate.hold(server, {node.root: CPUS})
    times = iter(range(2))

    def change(method: str, path: str) -> None:
        if method == "PUT" and path.endswith(server) and (time := next(times, None)) is not None:
            estate.hold(server, {node.root: {**CPUS, "MEMORY_MB": 128 + time}})

    between.before = change
    ran = vmqos("heal")
    assert (ran.status, [row["result"] for row in ran.rows]) == (0, ["mended"])
    assert estate.held(server) == {node.root: {**CPUS, "MEMORY_MB": 129}, node.cache: CLAIM}
    assert sum(asked == f"PUT /allocations/{server}" for asked in between.asked) == 3


def test_a_server_that_came_while_the_cloud_was_read_is_no_finding(
    estate: Estate, vmqos: Vmqos, between: Between
) -> None:
    node = estate.host()
    late: list[str] = []

    def boot(method: str, path: str) -> None:
        # The host's claims have been told by then, and Nova's servers have not.
        if path == f"/resource_providers/{last}/inventories" and not late:
            late.append(estate.server(node, ASKING))
            estate.hold(late[0], {node.root: CPUS, node.cache: CLAIM})

    last = max((estate.host(), estate.host()), key=lambda host: host.name).root
    between.before = boot
    ran = vmqos("audit")
    assert late and (ran.status, ran.rows) == (0, [])


def test_a_host_that_placement_does_not_know_is_one_clear_line(vmqos: Vmqos) -> None:
    ran = vmqos("audit", "--host", "nowhere")
    assert ran.status == 1
    assert "Placement has no compute node 'nowhere'" in ran.err and len(ran.err.splitlines()) == 1
