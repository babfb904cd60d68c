# SPDX-License-Identifier: Apache-2.0
"""Flavors that libvirt does not tell, from a real Nova's API."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from oslo_config import cfg

from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.openstack.servers.keystone import Keystone
from tests.openstack.servers.nova import NovaApi
from vmqos.openstack import exceptions
from vmqos.openstack.nova import Nova, may_not_list
from vmqos.openstack.service import Service

Configure = Callable[..., cfg.ConfigOpts]
SPECS = {"hw:cache_ways": "2", "hw:cpu_policy": "shared"}


def new_uuid() -> str:
    return str(uuid.uuid4())


class Counted(Service):
    """A way to Nova that notes what is asked."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf, "nova", "compute")
        self.asked: list[str] = []

    def ask(self, method: str, path: str, *arguments: Any, **options: Any) -> Any:
        self.asked.append(path)
        return super().ask(method, path, *arguments, **options)


@pytest.fixture
def connect(configure: Configure) -> Callable[[Mapping[str, object]], Counted]:
    """A way to Nova with these credentials."""
    return lambda section: Counted(configure(nova=section))


def test_one_server_is_asked_for_by_itself(nova: NovaApi, keystone: Keystone, connect: Callable[..., Counted]) -> None:
    gold, plain = new_uuid(), new_uuid()
    nova.make("node-1", {gold: SPECS, plain: {}})
    api = Nova(connect(keystone.credentials()))
    assert api.extra_specs(gold) == SPECS
    assert api.extra_specs(plain) == {}
    with pytest.raises(exceptions.ServerUnknown, match="knows no server"):
        api.extra_specs(new_uuid())


def test_one_listing_has_all_servers_of_a_host_and_of_no_other(
    nova: NovaApi, keystone: Keystone, connect: Callable[..., Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = f"rack1.node-{new_uuid()}.example"
    here = {new_uuid(): {"hw:cache_ways": str(number)} for number in range(1, 6)}
    nova.make(host, here)
    # Nova takes the name for a regular expression, in which a dot is any character.
    for other in (f"{host}-too", host.replace(".", "-")):
        nova.make(other, {new_uuid(): SPECS})
    service = connect(keystone.credentials())
    assert Nova(service).extra_specs_of_host(host) == here
    assert service.asked == ["/servers/detail"]
    monkeypatch.setattr("vmqos.openstack.nova.PAGE", 2)
    assert Nova(service).extra_specs_of_host(host) == here


def test_a_reader_may_ask_for_its_project_s_servers_and_not_list_a_host_s(
    nova: NovaApi, keystone: Keystone, connect: Callable[..., Counted]
) -> None:
    ours, others = new_uuid(), new_uuid()
    nova.make("node-2", {ours: SPECS}, project=keystone.project("service"))
    nova.make("node-2", {others: SPECS}, project=keystone.project("others"))
    api = Nova(connect(keystone.credentials("guest", role="reader")))
    assert api.extra_specs(ours) == SPECS
    with pytest.raises(exceptions.CloudError):
        api.extra_specs(others)
    with pytest.raises(exceptions.Refused) as refused:
        api.extra_specs_of_host("node-2")
    assert may_not_list(refused.value)


def test_a_vm_without_extra_specs_gets_what_nova_says_and_waits_for_it_no_longer_than_nova_takes(
    nova: NovaApi, keystone: Keystone, make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    first, second, named = (make_vm(None), make_vm(None), make_vm({"hw:cache_ways": "3"}))
    access = {**keystone.credentials(), "connect_retries": 0}
    nova.stop()
    agent = make_agent({"nova": access, "agent": {"retry_delay_max": 0.5}, "placement": {"hypervisor_hostname": "n"}})
    agent.start()

    def told(vm: Any) -> dict[str, Any]:
        found: dict[str, Any] = agent.get(f"/v1/vms/{vm.uuid}")
        return found

    wait_for(lambda: told(named)["state"] == "kept", "the VM that needs no Nova being served")
    wait_for(lambda: "Nova can't be reached" in told(first)["reason"], "the reason")
    assert told(first)["state"] == "pending"
    assert "Nova's API has not told" in told(first)["reason"]
    assert agent.gateway.get("/v1/health")["nova"]["waiting"] == 2
    nova.start()
    nova.make("n", {first.uuid: {"hw:cache_ways": "2"}, second.uuid: {}})
    wait_for(lambda: told(first)["state"] == "kept", "the VM being served as Nova says", 60)
    assert told(first)["ways_requested"] == 2
    wait_for(lambda: told(second)["state"] == "none", "the VM that asks for nothing", 60)
    assert agent.gateway.get("/v1/health")["nova"] == {"error": None, "waiting": 0}


def test_a_vm_keeps_its_ways_while_an_agent_that_was_restarted_can_not_ask(
    nova: NovaApi, keystone: Keystone, make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(None)
    nova.make("n", {vm.uuid: {"hw:cache_ways": "2"}})
    agent = make_agent({"nova": keystone.credentials(), "agent": {"retry_delay_max": 0.5}})
    agent.start()

    def told() -> dict[str, Any]:
        found: dict[str, Any] = agent.get(f"/v1/vms/{vm.uuid}")
        return found

    wait_for(lambda: told()["state"] == "kept", "the VM being served", 60)
    masks, tasks = told()["masks"], told()["tasks"]
    # The gateway remembers what Nova told of a process; a new one knows nothing.
    agent.end()
    nova.stop()
    try:
        agent.start()
        wait_for(lambda: "Nova can't be reached" in told()["reason"], "the reason")
        assert (told()["state"], told()["masks"], told()["tasks_in_place"]) == ("degraded", masks, tasks)
    finally:
        nova.start()
    wait_for(lambda: told()["state"] == "kept", "the VM being served as before", 60)
    assert told()["masks"] == masks
