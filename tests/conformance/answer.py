# SPDX-License-Identifier: Apache-2.0
"""What resctrl answers to an operation."""

from __future__ import annotations

from dataclasses import dataclass

OK = "ok\n"
"""``info/last_cmd_status`` where there is nothing to say."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one operation.

    :ivar errno: the name of the error, ``None`` if there was none.
    :ivar status: ``info/last_cmd_status`` right after it, ``None`` where nothing is mounted.
    """

    errno: str | None
    status: str | None


def done(status: str = OK) -> Answer:
    """It was done."""
    return Answer(None, status)


def refused(errno: str, status: str = OK) -> Answer:
    """It was refused, and why.

    :param status: the whole of ``last_cmd_status``; without one, the kernel leaves nobody a word.
    """
    return Answer(errno, status)


def invalid(reason: str) -> Answer:
    """``EINVAL``, as most refusals are, with a reason of one line."""
    return refused("EINVAL", f"{reason}\n")
