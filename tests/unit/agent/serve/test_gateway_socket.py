# SPDX-License-Identifier: Apache-2.0
"""The socket of the gateway, with real connections: the kernel says who they are."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from vmqos.agent.observe.told_flavors import Found, ToldFlavors
from vmqos.agent.serve.api import Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.agent.snapshot import Snapshot
from vmqos.daemon.unix_server import SocketUnusable, UnixServer
from vmqos.hypervisor.model import NovaMetadata, Process, VirtualMachine
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentRefused

UUID = "38c43823-3651-469c-b344-166d1c87d77b"
VM = VirtualMachine(UUID, "instance-1", 1, Process(7, 100), None, False, NovaMetadata("gold", "w2", "project", None))
SPECS = {"hw:cache_ways": "2", "hw:cache_policy": "shared"}


class Played:
    """What the API asks of an agent, and the API on a socket."""

    def __init__(self, folder: Path, gateways: set[int]) -> None:
        self.flavors = ToldFlavors(True, lambda uuid: None)
        self.flavors.look_up([VM])
        agent = SimpleNamespace(snapshot=Snapshot(), flavors=self.flavors, hostname="compute-1")
        self.path = folder / "gateway.sock"
        api = Api(agent, None, LiveReads(), gateways)  # type: ignore[arg-type]
        self.server = UnixServer(api, "[gateway] agent_socket", str(self.path), mode="600")
        self.server.start()
        self.client = AgentClient(str(self.path))

    def put(self, path: str) -> httpx.Response:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.path)), base_url="http://vmqos-agent") as http:
            return http.put(path)


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    made = Played(tmp_path, {os.geteuid()})
    yield made
    made.server.stop()
    assert not made.path.exists()


def test_the_gateway_learns_what_is_wanted_and_tells_it(played: Played) -> None:
    told = played.client.openstack()
    assert told["hypervisor_hostname"] == "compute-1"
    assert told["capacity"] is None, "resctrl was not read yet"
    (wanted,) = told["flavors_wanted"]
    played.client.flavor_is_not_known(wanted, "Nova is away\x1b[2J")
    assert played.flavors.look_up([VM]) == {UUID: Found(None, "Nova is away\\x1b[2J")}
    played.client.tell_flavor(wanted, SPECS)
    assert played.flavors.look_up([VM]) == {UUID: Found(SPECS)}
    assert played.client.openstack()["flavors_wanted"] == []


def test_a_flavor_without_our_keys_is_told_too(played: Played) -> None:
    (wanted,) = played.client.openstack()["flavors_wanted"]
    played.client.tell_flavor(wanted, {})
    assert played.flavors.look_up([VM]) == {UUID: Found({})}


def test_what_is_not_wanted_is_refused_and_changes_nothing(played: Played) -> None:
    for uuid, process in (("v" * 5000, "7-100"), (UUID, "8-100"), (UUID, ""), ("../vms", "7-100")):
        with pytest.raises(AgentRefused):
            played.client.tell_flavor({"uuid": uuid, "process": process}, SPECS)
    assert played.flavors.look_up([VM]) == {UUID: Found()}


@pytest.mark.parametrize("path", ["/v1/vms", "/v1/openstack", "/v1/health", "/"])
def test_nothing_else_can_be_written(played: Played, path: str) -> None:
    assert played.put(path).status_code == 405


def test_another_user_is_refused_by_what_the_kernel_says_of_him(tmp_path: Path) -> None:
    played = Played(tmp_path, {os.geteuid() + 1})
    try:
        (wanted,) = played.flavors.wanted()
        for ask in (played.client.openstack, lambda: played.client.tell_flavor(wanted, SPECS)):
            with pytest.raises(AgentRefused, match=f"user {os.geteuid()} has no business here"):
                ask()
        assert played.flavors.look_up([VM]) == {UUID: Found()}
    finally:
        played.server.stop()


def test_the_socket_that_is_open_to_others_takes_no_flavor(tmp_path: Path) -> None:
    played = Played(tmp_path, set())
    try:
        with pytest.raises(AgentRefused, match="there is no /v1/openstack here"):
            played.client.openstack()
        assert played.put(f"/v1/flavors/{UUID}?process=7-100").status_code == 405
    finally:
        played.server.stop()


def test_nobody_but_its_owner_can_connect(played: Played) -> None:
    assert stat.S_IMODE(played.path.stat().st_mode) == 0o600


def test_a_socket_that_can_not_be_made_names_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SocketUnusable, match=r"can't answer on \[gateway\] agent_socket = "):
        UnixServer(lambda environ, start: [], "[gateway] agent_socket", str(tmp_path / "file" / "s"), mode="600")
    with pytest.raises(SocketUnusable, match="it is a directory"):
        UnixServer(lambda environ, start: [], "[api] socket", str(tmp_path), mode="600")
    with pytest.raises(SocketUnusable, match="socket_group: there is no group 'no-such-group' on this host"):
        UnixServer(lambda environ, start: [], "[api] socket", str(tmp_path / "s"), mode="660", group="no-such-group")


@pytest.fixture
def without_dac_override(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the unit's root, nobody may connect to a socket that is another user's."""

    def refuse(probe: socket.socket, address: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket.socket, "connect", refuse)


def left_behind(path: Path) -> str:
    """A socket of this user that no process answers on."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    return str(path)


@pytest.mark.usefixtures("without_dac_override")
@pytest.mark.parametrize("owner", [os.geteuid(), None])
def test_a_socket_that_a_killed_agent_gave_to_the_gateways_user_is_replaced(tmp_path: Path, owner: int | None) -> None:
    path = left_behind(tmp_path / "s")
    server = UnixServer(lambda environ, start: [], "[gateway] agent_socket", path, mode="600", owner=owner)
    server.start()
    server.stop()
    assert not os.path.exists(path)


@pytest.mark.usefixtures("without_dac_override")
@pytest.mark.parametrize("has_name", [True, False])
def test_a_socket_of_another_user_that_can_not_be_asked_is_left_alone_and_the_error_says_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_name: bool
) -> None:
    names = {os.geteuid(): SimpleNamespace(pw_name="alice")} if has_name else {}
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: names[uid])
    path = left_behind(tmp_path / "s")
    inode = os.stat(path).st_ino
    who = f"alice (UID {os.geteuid()})" if has_name else f"UID {os.geteuid()}"
    with pytest.raises(SocketUnusable) as raised:
        UnixServer(lambda environ, start: [], "[gateway] agent_socket", path, mode="600", owner=os.geteuid() + 1)
    assert f"agent_socket = {path}: the socket there belongs to {who}," in str(raised.value)
    assert f"remove it (rm {path})" in str(raised.value)
    assert os.stat(path).st_ino == inode


def test_a_socket_that_another_process_answers_on_is_left_to_it(played: Played) -> None:
    with pytest.raises(SocketUnusable, match="another process answers there"):
        UnixServer(lambda environ, start: [], "[gateway] agent_socket", str(played.path), mode="600")
    assert played.client.openstack()["flavors_wanted"]


def test_a_socket_that_a_dead_process_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
        left.listen()
    UnixServer(lambda environ, start: [], "[gateway] agent_socket", str(path), mode="600").stop()
    assert not path.exists()
