# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from vmqos.cli import settings
from vmqos.conf.exceptions import ConfigurationError


def options(socket: str | None = None, *files: str) -> argparse.Namespace:
    return argparse.Namespace(socket=socket, config_file=list(files))


def test_the_socket_of_the_command_line_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    conf = tmp_path / "vmqos.conf"
    conf.write_text("[api]\nsocket = /from/file\n")
    monkeypatch.setenv("VMQOS_SOCKET", "/from/environment")
    assert settings.socket_path(options("/from/option", str(conf))) == "/from/option"
    assert settings.socket_path(options(None, str(conf))) == "/from/environment"
    monkeypatch.delenv("VMQOS_SOCKET")
    assert settings.socket_path(options(None, str(conf))) == "/from/file"


def test_the_socket_lies_in_the_state_path_unless_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VMQOS_SOCKET", raising=False)
    conf = tmp_path / "vmqos.conf"
    conf.write_text("[agent]\nstate_path = /elsewhere\n")
    assert settings.socket_path(options(None, str(conf))) == "/elsewhere/agent.sock"


def test_a_configuration_file_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VMQOS_SOCKET", raising=False)
    with pytest.raises(ConfigurationError, match=r"/no/such\.conf"):
        settings.socket_path(options(None, "/no/such.conf"))
