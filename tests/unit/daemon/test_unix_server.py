# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vmqos.daemon.bounded_server import BoundedServer
from vmqos.daemon.unix_server import SocketUnusable, UnixServer


def made(path: Path) -> UnixServer:
    def answer(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        raise AssertionError("nobody asks")

    return UnixServer(answer, "[api] socket", str(path), mode="600")


def test_the_socket_of_a_process_that_starts_while_the_one_before_it_ends_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, later = tmp_path / "api.sock", list[UnixServer]()
    server, stop = made(path), BoundedServer.stop
    server.start()

    def stop_and_be_followed(self: BoundedServer) -> None:
        stop(self)
        if not later:
            later.append(made(path))

    monkeypatch.setattr(BoundedServer, "stop", stop_and_be_followed)
    server.stop()
    assert path.is_socket()
    later[0].stop()
    assert not path.exists()


def test_a_file_in_the_place_of_the_socket_is_told_as_one_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    path.write_text("a list")
    with pytest.raises(SocketUnusable) as raised:
        made(path)
    told = f"can't answer on [api] socket = {path}: there is a file that is no socket; name another path, or remove it"
    assert (str(raised.value), path.read_text()) == (told, "a list")
