# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a question to the agent: one class a failure, its message what the operator should do."""

from __future__ import annotations


class LocalApiError(Exception):
    """The root of this package's errors; each subclass fills ``msg_fmt`` from its keyword arguments.

    :cvar command: a shell command that mends it; empty where there is none.
    """

    msg_fmt = "the agent can't be asked"
    command = ""

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self.msg_fmt.format(**values))


class AgentNotRunning(LocalApiError):
    """No process listens on the socket."""

    command = "systemctl start vmqos-agent"
    msg_fmt = (
        "vmqos-agent does not run: nobody answers on {socket}; start it with 'systemctl start vmqos-agent', "
        "or name its socket with --socket"
    )


class SocketForbidden(LocalApiError):
    """The socket's permissions keep the caller out."""

    msg_fmt = "no permission for {socket} ({access}): {mend}, or change [api] socket_mode and socket_group of the agent"


class SocketUnusable(LocalApiError):
    """The socket's path can't be one."""

    msg_fmt = "can't use {socket} as the agent's socket: {problem}"


class AgentTimeout(LocalApiError):
    """The agent did not answer, or others filled its queue of connections all the time."""

    msg_fmt = "vmqos-agent did not answer within {seconds:g} seconds on {socket}; see 'journalctl -u vmqos-agent'"


class NotOurApi(LocalApiError):
    """What answers is not the agent, or an agent of another version."""

    msg_fmt = "what answers on {socket} is not the API of this version of vmqos-agent: {problem}"


class AgentRefused(LocalApiError):
    """The agent says that the question is wrong (HTTP 4xx)."""

    msg_fmt = "{text}"


class AgentFailed(LocalApiError):
    """The agent can't answer (HTTP 5xx)."""

    msg_fmt = "vmqos-agent can't answer (HTTP {status}): {text}"
