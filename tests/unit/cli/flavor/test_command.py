# SPDX-License-Identifier: Apache-2.0
"""The flavor commands where no cloud answers; with Nova's API they are tried in tests/unit/nova_plugin."""

from __future__ import annotations

import socket as sockets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from vmqos import extra_specs

COMMANDS = [("set", "c2", "--cache-ways", "2"), ("unset", "c2"), ("check",)]


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither clouds.yaml nor OS_... of whoever runs the tests."""
    for name in ("OS_CLOUD", "OS_AUTH_URL", "OS_AUTH_TYPE", "OS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def nobody() -> Iterator[str]:
    """A URL where nobody listens."""
    with sockets.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_cloud_that_does_not_answer_is_one_line_on_stderr(
    run: Run, monkeypatch: pytest.MonkeyPatch, nobody: str, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("OS_AUTH_TYPE", "none")
    monkeypatch.setenv("OS_ENDPOINT", nobody)
    ran = run("flavor", *command)
    assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert "the cloud can't be asked: " in ran.err
    assert nobody in ran.err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_cloud_that_is_not_described_is_one_line_on_stderr(run: Run, command: tuple[str, ...]) -> None:
    for further in ((), ("--os-cloud", "mycloud")):
        ran = run("flavor", *command, *further)
        assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)
        assert "clouds.yaml" in ran.err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_clouds_yaml_of_another_form_is_named(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    for clouds in ("5", "[lab]", "{lab: {auth: 5}}"):
        (tmp_path / "clouds.yaml").write_text(f"clouds: {clouds}")
        ran = run("flavor", *command, "--os-cloud", "lab")
        assert (ran.status, ran.out, len(ran.err.splitlines())) == (1, "", 1)
        assert "the cloud can't be asked: clouds.yaml is not of its form: " in ran.err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_certificates_that_are_not_there_are_named_as_what_keeps_the_cloud_from_being_asked(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    lab = "{auth_type: none, compute_endpoint_override: 'https://127.0.0.1:1', cacert: /nowhere/ca.pem}"
    (tmp_path / "clouds.yaml").write_text(f"clouds: {{lab: {lab}}}")
    ran = run("flavor", *command, "--os-cloud", "lab")
    assert (ran.status, ran.out) == (1, "")
    assert "the cloud can't be asked: " in ran.err
    assert "/nowhere/ca.pem" in ran.err


def test_setting_nothing_is_refused_before_the_cloud_is_asked(run: Run) -> None:
    ran = run("flavor", "set", "c2")
    assert (ran.status, ran.out) == (2, "")
    assert "--cache-ways" in ran.err
    assert "see 'vmqos help flavor set'" in ran.err


def test_every_key_of_the_grammar_has_an_option_that_says_what_is_allowed(run: Run) -> None:
    shown = " ".join(run("flavor", "set", "--help").out.split())
    for key in extra_specs.KEYS:
        assert f"{key.name}: {key.allowed}" in shown


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--cache-ways", "two", "an integer from 1 up is allowed"),
        ("--policy", "mine", "'exclusive' or 'shared' is allowed"),
        ("--code-ways", "0", "an integer from 1 up is allowed"),
        ("--data-ways", "02", "an integer from 1 up is allowed"),
        ("--l2-ways", "1.5", "an integer from 1 up is allowed"),
        ("--bandwidth-percent", "101", "an integer from 1 to 100 is allowed"),
        ("--bandwidth-mbps", "", "an integer from 1 up is allowed, in plain decimal digits (MB/s)"),
        ("--vcpus", "3-1", "a list of vCPU numbers (0 to 9999) and ranges"),
    ],
)
def test_a_bad_value_is_refused_with_its_option_and_what_is_allowed(
    run: Run, option: str, value: str, allowed: str
) -> None:
    ran = run("flavor", "set", "c2", option, value)
    assert (ran.status, ran.out) == (2, "")
    assert f"argument {option}: {value!r}: {allowed}" in " ".join(ran.err.split())
