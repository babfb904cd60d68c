# SPDX-License-Identifier: Apache-2.0
"""libvirt says which VMs run, and goes before it says more: what these VMs have is not taken from them."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.agent.test_lifecycle import EXCLUSIVE_4, SHARED_3, all_in, group
from tests.functional.agent.test_recovery import layout
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.workspace import Workspace

GET_XML_DESC = 14
"""``REMOTE_PROC_DOMAIN_GET_XML_DESC`` in libvirt's remote_protocol.x."""

HEADER = struct.Struct(">6I")
"""The head of a message: length, program, version, procedure, type, serial (virnetprotocol.x)."""


class Cutter:
    """Stands between the agent and libvirtd, and cuts the connection where a VM is asked for, until told otherwise."""

    def __init__(self, path: Path, target: str) -> None:
        self.path = path
        self.cuts = True
        self.times = 0
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                # A connection that breaks by itself ends alone: the next one must be served.
                with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
                    server.connect(self._target)
                    self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            ready, _, _ = select.select([client, server], [], [])
            for source in ready:
                message = source.recv(1 << 20)
                if not message:
                    return
                asked = source is client and len(message) >= HEADER.size and HEADER.unpack_from(message)[3]
                if self.cuts and asked == GET_XML_DESC:
                    self.times += 1
                    return
                (server if source is client else client).sendall(message)


@pytest.fixture
def cutter(workspace: Workspace, libvirt_host: PrivateLibvirt) -> Iterator[Cutter]:
    path = workspace.path / "cutter"
    path.unlink(missing_ok=True)
    made = Cutter(path, urllib.parse.unquote(libvirt_host.uri.partition("socket=")[2]))
    yield made
    made.close()


def test_a_vm_that_is_listed_and_can_not_be_looked_at_keeps_what_it_has(
    make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor, cutter: Cutter
) -> None:
    own, shared, plain = make_vm(EXCLUSIVE_4), make_vm(SHARED_3), make_vm()
    assert make_agent(name="before").run_once() == 0
    before = layout(tree)
    agent = make_agent({"libvirt": {"uri": f"qemu+unix:///system?socket={urllib.parse.quote(str(cutter.path))}"}})
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
