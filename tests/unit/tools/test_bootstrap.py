# SPDX-License-Identifier: Apache-2.0
"""What tools/bootstrap.sh, which tools/demo and tools/test source, tells uv of pip's settings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.lab.workspace import CHECKOUT

TOLD = ("SSL_CERT_FILE", "UV_CONFIG_FILE", "UV_DEFAULT_INDEX", "UV_FIND_LINKS", "UV_INDEX")


def told(root: Path, settings: str, environment: dict[str, str] | None = None) -> dict[str, str]:
    """What uv finds in its environment.

    :param settings: what ``pip config list`` prints. DIR is ``root`` there and in the answer; it has the directories
        ``wheels`` and ``more``.
    :param environment: what the user has set.
    """
    (root / "wheels").mkdir()
    (root / "more").mkdir()
    program = root / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    # An environment that uv made has no pip.
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{settings.replace('DIR', str(root))}\nEND\n")
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-eu", "-c", f". {CHECKOUT}/tools/bootstrap.sh; tell_uv_what_pip_knows; env"],
        env={"PATH": "/usr/bin:/bin", "root": str(root), **(environment or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    return {name: found[name].replace(str(root), "DIR") for name in TOLD if name in found}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", {}),
        ("global.index-url='https://a/simple'", {"UV_DEFAULT_INDEX": "https://a/simple"}),
        ("global.extra-index-url='https://b https://c'", {"UV_INDEX": "https://b https://c"}),
        (r"global.extra-index-url='\nhttps://b\nhttps://c'", {"UV_INDEX": "https://b https://c"}),
        ("global.cert='/etc/ca.pem'", {"SSL_CERT_FILE": "/etc/ca.pem"}),
        ("install.find-links='DIR/wheels'", {"UV_FIND_LINKS": "DIR/wheels"}),
        (":env:.find-links='DIR/wheels  https://d/files'", {"UV_FIND_LINKS": "DIR/wheels,https://d/files"}),
        (r"global.find-links='\nDIR/wheels\nDIR/more'", {"UV_FIND_LINKS": "DIR/wheels,DIR/more"}),
        (":env:.find-links='DIR/more'\nglobal.find-links='DIR/wheels'", {"UV_FIND_LINKS": "DIR/more"}),
        ("global.find-links='DIR/gone DIR/more'", {"UV_FIND_LINKS": "DIR/more"}),
        ("global.find-links='DIR/gone'", {}),
        ("global.no-index='false'", {}),
        ("global.disable-pip-version-check='true'", {}),
    ],
)
def test_uv_is_told_where_pip_takes_packages_from(settings: str, expected: dict[str, str], tmp_path: Path) -> None:
    assert told(tmp_path, settings) == expected


@pytest.mark.parametrize("value", ["true", "True", "yes", "1", "on"])
def test_uv_is_told_to_ask_no_index(value: str, tmp_path: Path) -> None:
    found = told(tmp_path, f"global.find-links='DIR/wheels'\nglobal.no-index='{value}'")
    assert found == {"UV_FIND_LINKS": "DIR/wheels", "UV_CONFIG_FILE": "DIR/.venv/uv.toml"}
    assert (tmp_path / ".venv" / "uv.toml").read_text() == "no-index = true\n"


def test_what_the_user_tells_uv_is_left_as_it_is(tmp_path: Path) -> None:
    mine = {"UV_FIND_LINKS": "/mine", "UV_DEFAULT_INDEX": "https://mine", "UV_CONFIG_FILE": "/mine.toml"}
    settings = "global.find-links='DIR/wheels'\nglobal.index-url='https://a'\nglobal.no-index='true'"
    assert told(tmp_path, settings, mine) == mine
