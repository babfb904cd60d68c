# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket

import pytest

from vmqos.gateway.page import hosts

NAMES = frozenset({"localhost", "compute-7"})


@pytest.mark.parametrize(
    "host",
    [
        None,
        "localhost",
        "localhost:9190",
        "LocalHost.",
        "127.0.0.1",
        "127.0.0.1:9190",
        "192.0.2.7:80",
        "[::1]",
        "[::1]:9190",
        "[2001:db8::7]:9190",
        "Compute-7:9190",
        "compute-7.:1",
    ],
)
def test_an_address_and_a_name_that_is_known_are_ours(host: str | None) -> None:
    assert hosts.is_ours(host, NAMES)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:9190",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[evil.example]",
        "[::1",
        "::1",
        "[::1].evil.example",
        "[::1]evil",
        "127.0.0.1:9190:1",
        "localhost:80@evil.example",
        "localhost, evil.example",
        "evil.example/localhost",
        "compute-7.evil.example",
        "127.1",
        "\N{FULLWIDTH LATIN SMALL LETTER L}ocalhost",
    ],
)
def test_everything_else_is_not(host: str) -> None:
    assert not hosts.is_ours(host, NAMES)


def test_this_machine_knows_its_own_name_with_and_without_its_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Compute-7.cloud.example")
    assert hosts.own_names() == {"compute-7.cloud.example", "compute-7"}
