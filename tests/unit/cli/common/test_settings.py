# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from vmqos.cli.common import settings
from vmqos.conf.exceptions import ConfigurationError, NotReadable


def options(socket: str | None = None, *files: str) -> argparse.Namespace:
    return argparse.Namespace(socket=socket, config_file=list(files))


def test_the_socket_of_the_command_line_comes_first_and_what_names_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    conf = tmp_path / "vmqos.conf"
    conf.write_text("[api]\nsocket = /from/file\n")
    monkeypatch.setenv("VMQOS_SOCKET", "/from/environment")
    assert settings.named_socket(options("/from/option", str(conf))) == ("/from/option", "--socket")
    assert settings.named_socket(options(None, str(conf))) == ("/from/environment", "VMQOS_SOCKET")
    monkeypatch.delenv("VMQOS_SOCKET")
    assert settings.named_socket(options(None, str(conf))) == ("/from/file", f"[api] socket in {conf}")


def test_the_socket_lies_in_the_state_path_unless_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VMQOS_SOCKET", raising=False)
    conf = tmp_path / "vmqos.conf"
    conf.write_text("[agent]\nstate_path = /elsewhere\n")
    assert settings.named_socket(options(None, str(conf))) == ("/elsewhere/agent.sock", "")


def test_a_configuration_file_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VMQOS_SOCKET", raising=False)
    with pytest.raises(ConfigurationError, match=r"/no/such\.conf"):
        settings.named_socket(options(None, "/no/such.conf"))


def test_who_may_not_read_the_configuration_gets_the_default_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(options: argparse.Namespace) -> None:
        raise NotReadable(["/etc/vmqos/vmqos.conf"])

    monkeypatch.delenv("VMQOS_SOCKET", raising=False)
    monkeypatch.setattr(settings, "configuration", unreadable)
    assert settings.named_socket(options()) == ("/run/vmqos/agent.sock", "")
    with pytest.raises(NotReadable, match=r"may not read .*/etc/vmqos/vmqos\.conf"):
        settings.named_socket(options(None, "/etc/vmqos/vmqos.conf"))


def test_a_file_that_a_user_may_not_read_is_named() -> None:
    program = (
        "import os, sys; from vmqos.conf import exceptions, loader\n"
        "if not os.geteuid(): os.setgid(65534); os.setuid(65534)\n"
        "try: loader.load(['--config-file', sys.argv[1]])\n"
        "except exceptions.NotReadable as error: print(error)\n"
    )
    # Not in pytest's directory, which another user may not enter.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vmqos.conf")
        path.write_text("[api]\nsocket = /from/file\n")
        # Root gives itself up; any other user may not read what is closed to its owner.
        path.chmod(0o640 if os.geteuid() == 0 else 0)
        Path(folder).chmod(0o755)
        ran = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    told = f"this user may not read the configuration file: {path}; let the user read it, or use sudo"
    assert ran.stdout.strip() == told
