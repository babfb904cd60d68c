# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.gateway.answers import HEALTH
from vmqos.gateway.agent_away import AgentWatch, explain
from vmqos.local_api.exceptions import AgentNotRunning, AgentTimeout, LocalApiError, SocketForbidden

SOCKET = "/run/vmqos/gateway.sock"
ABSENT = AgentNotRunning(socket=SOCKET)
FORBIDDEN = SocketForbidden(socket=SOCKET, access="mode 0600, group 'root'", mend="join the group 'root'")
SLOW = AgentTimeout(socket=SOCKET, seconds=2.0)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ABSENT, f"vmqos-agent does not run, or does not answer on {SOCKET} ([gateway] agent_socket)"),
        (FORBIDDEN, f"the agent lets no other user connect to {SOCKET} than the one that [gateway] user names"),
        (SLOW, str(SLOW)),
    ],
)
def test_what_is_said_is_of_use_to_the_gateways_operator(error: LocalApiError, text: str) -> None:
    assert explain(error) == text
    assert "--socket" not in text and "sudo" not in text


def test_an_agent_that_is_away_is_logged_once_and_so_is_its_return(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = [HEALTH, ABSENT, ABSENT, ABSENT, SLOW, HEALTH, HEALTH, ABSENT]

    def health() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, LocalApiError):
            raise answer
        return answer

    watch = AgentWatch(SimpleNamespace(health=health))  # type: ignore[arg-type]
    caplog.set_level(logging.INFO)
    while answers:
        watch.look()
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", f"the agent is away: {explain(ABSENT)}"),
        ("WARNING", f"the agent is away: {explain(SLOW)}"),
        ("INFO", "the agent answers again"),
        ("WARNING", f"the agent is away: {explain(ABSENT)}"),
    ]
