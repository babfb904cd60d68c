# SPDX-License-Identifier: Apache-2.0
"""libvirt says which VMs run, and goes before it says more: what these VMs have is not taken from them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional.agent.test_lifecycle import EXCLUSIVE_4, SHARED_3, all_in, group
from tests.functional.agent.test_recovery import layout
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.libvirt_relay import LibvirtRelay, Message
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.workspace import Workspace

GET_XML_DESC = 14
"""``REMOTE_PROC_DOMAIN_GET_XML_DESC`` in libvirt's remote_protocol.x."""


class Cutter:
    """Cuts the connection between the agent and libvirtd where a VM is asked for, until told otherwise."""

    def __init__(self) -> None:
        self.cuts = True
        self.times = 0

    def passes(self, message: Message) -> bool:
        if self.cuts and not message.is_answer and message.procedure == GET_XML_DESC:
            self.times += 1
            return False
        return True


@pytest.fixture
def cutter() -> Cutter:
    return Cutter()


@pytest.fixture
def cut_uri(workspace: Workspace, libvirt_host: PrivateLibvirt, cutter: Cutter) -> Iterator[str]:
    relay = LibvirtRelay(workspace.path / "cutter", libvirt_host.socket, cutter.passes)
    yield relay.uri
    relay.close()


def test_a_vm_that_is_listed_and_can_not_be_looked_at_keeps_what_it_has(
    make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor, cutter: Cutter, cut_uri: str
) -> None:
    own, shared, plain = make_vm(EXCLUSIVE_4), make_vm(SHARED_3), make_vm()
    assert make_agent(name="before").run_once() == 0
    before = layout(tree)
    agent = make_agent({"libvirt": {"uri": cut_uri}})
    agent.start()
    wait_for(lambda: cutter.times >= 3, "the connection being cut")
    wait_for(lambda: agent.get("/v1/health")["passes"] > 10, "some passes")
    assert layout(tree) == before
    cutter.cuts = False
    for vm, state in ((own, "kept"), (shared, "kept"), (plain, "none")):
        wait_for(lambda vm=vm, state=state: agent.get(f"/v1/vms/{vm.uuid}")["state"] == state, f"{vm.name}: {state}")  # type: ignore[misc]
    assert layout(tree) == before
    own.domain.destroy()
    wait_for(lambda: group(own) not in tree.groups(), "the group of the VM that is gone being removed")
    assert all_in(tree, f"vmqos.shared-ways3/mon_groups/{group(shared)}", shared)
