# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a question to the agent: one class a failure, its message what the operator should do."""

from __future__ import annotations


class LocalApiError(Exception):
    """The root of this package's errors; each subclass fills ``msg_fmt`` from its keyword arguments.

    :param program: which program was asked.
    :cvar is_answer: whether the program did answer, and said so itself.
    :ivar command: a shell command that mends it; empty where there is none.
    """

    is_answer = False
    msg_fmt = "{program} can't be asked"
    command_fmt = ""

    def __init__(self, program: str = "vmqos-agent", **values: object) -> None:
        self.values = values
        self.command = self.command_fmt.format(program=program)
        super().__init__(self.msg_fmt.format(program=program, **values))


class AgentNotRunning(LocalApiError):
    """No process listens on the socket."""

    command_fmt = "systemctl start {program}"
    msg_fmt = (
        "{program} does not run: no program answers on {socket}; start it with 'systemctl start {program}', "
        "or name its socket {how}"
    )

    def __init__(self, program: str = "vmqos-agent", **values: object) -> None:
        how = "with --socket" if program == "vmqos-agent" else "in [gateway] socket"
        super().__init__(program, how=how, **values)


class SocketForbidden(LocalApiError):
    """The socket's permissions keep the caller out."""

    msg_fmt = "no permission for {socket}: {access}; {mend}, or change socket_mode and socket_group of {program}"


class SocketUnusable(LocalApiError):
    """The socket's path can't be one."""

    msg_fmt = "can't use {socket} as the socket of {program}: {problem}"


class AgentTimeout(LocalApiError):
    """The agent did not answer, or others filled its queue of connections all the time."""

    msg_fmt = "{program} did not answer within {seconds:g} seconds on {socket}; see 'journalctl -u {program}'"


class AgentHungUp(LocalApiError):
    """The connection ended before the answer did: the agent was stopped, or died."""

    msg_fmt = "{program} ended while it was asked on {socket}; see 'journalctl -u {program}'"


class NotOurApi(LocalApiError):
    """What answers is not the agent, or an agent of another version."""

    msg_fmt = "what answers on {socket} is not the API of this version of {program}: {problem}"


class AgentRefused(LocalApiError):
    """The agent says that the question is wrong (HTTP 4xx), or, with 404, that it knows no such question."""

    is_answer = True

    msg_fmt = "{text}"


class AgentFailed(LocalApiError):
    """The agent can't answer (HTTP 5xx)."""

    is_answer = True

    msg_fmt = "{program} can't answer (HTTP {status}): {text}"
