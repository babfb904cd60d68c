# SPDX-License-Identifier: Apache-2.0
"""Why the agent does not answer, in words for the gateway's operator, and once in the log."""

from __future__ import annotations

import logging

from vmqos.daemon.log_once import LogOnce
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentNotRunning, LocalApiError, SocketForbidden

LOG = logging.getLogger(__name__)


def explain(error: LocalApiError) -> str:
    """Why there is no answer. What the error itself advises is meant for the users of the command ``vmqos``."""
    socket = error.values.get("socket")
    match error:
        case AgentNotRunning():
            return f"vmqos-agent does not run, or does not answer on {socket} ([gateway] agent_socket)"
        case SocketForbidden():
            return f"the agent lets no other user connect to {socket} than the one that [gateway] user names"
        case _:
            return str(error)


class AgentWatch:
    """Says in the log that the agent does not answer, and that it does again.

    :param agent: the agent to ask.
    """

    def __init__(self, agent: AgentClient) -> None:
        self._agent = agent
        self._once = LogOnce(LOG)

    def look(self) -> None:
        """Ask the agent, and log what is news."""
        why = self._why()
        if why:
            self._once.log(logging.WARNING, "agent", "the agent is away: %s", why)
        elif self._once.end("agent"):
            LOG.info("the agent answers again")

    def _why(self) -> str:
        """Why it does not answer; empty where it does."""
        try:
            self._agent.health()
        except LocalApiError as error:
            return explain(error)
        return ""
