# SPDX-License-Identifier: Apache-2.0
"""What stops the agent, or a pass of it."""

from __future__ import annotations


class AgentError(Exception):
    """The root of the agent's errors."""


class ApiUnusable(AgentError):
    """The API's socket can't be made."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"can't answer on [api] socket = {path}: {reason}")
