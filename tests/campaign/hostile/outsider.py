# SPDX-License-Identifier: Apache-2.0
"""Local accounts without rights: each attack runs in a process of its own, forked from one that has its imports.

The accounts' processes are forked, not executed, because an ordinary account may be unable to read this source tree.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from tests.campaign.hostile.inputs import Harm, Refused

READER = 65534
"""The account nobody, whose group may use the agent's socket."""
STRANGER = 64999
"""An account that no file knows."""

PATIENCE = 60.0
"""Seconds in which an attack must be in force."""

_CONTEXT = multiprocessing.get_context("forkserver")


class Line:
    """What connects an attack with the test that started it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def in_force(self, told: Any = None) -> None:
        """Say that the attack is in force, and wait until the test has seen enough."""
        self._connection.send(("in force", told))
        self.wait()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the test has seen enough, or for some time; whether it has."""
        return self._connection.poll(seconds)

    def say(self, told: Any = None) -> None:
        """Say that the attack is in force, and go on."""
        self._connection.send(("in force", told))


Attack = Callable[..., None]
"""A module's function. It gets a :class:`Line` and its arguments; it raises :class:`Refused` or ends."""


def preload(*modules: str) -> None:
    """Have the accounts' processes forked from one that has imported these modules."""
    _CONTEXT.set_forkserver_preload(["tests.campaign.hostile.outsider", *modules])


@contextlib.contextmanager
def attacking(attack: Attack, *arguments: Any, uid: int = READER) -> Iterator[Any]:
    """Run an attack as a local account for the duration of the block.

    :returns: what the attack says once it is in force, or ``None`` where it is over by then.
    :raises Refused: if the attack was refused.
    :raises RuntimeError: if it failed otherwise.
    """
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_run, args=(attack, theirs, uid, arguments))
    process.start()
    theirs.close()
    try:
        yield _answer(ours, attack)
    finally:
        with contextlib.suppress(OSError):
            ours.send("enough")
        process.join(5)
        if process.exitcode is None:
            process.kill()
            process.join()
        ours.close()


def attack(attack: Attack, *arguments: Any, uid: int = READER) -> Any:
    """Run an attack as a local account to its end; the result is what it says."""
    with attacking(attack, *arguments, uid=uid) as told:
        return told


def _answer(connection: Connection, attack: Attack) -> Any:
    if not connection.poll(PATIENCE):
        raise RuntimeError(f"{attack.__name__} was not in force after {PATIENCE:.0f} s")
    try:
        kind, told = connection.recv()
    except EOFError:
        return None
    if kind == "refused":
        raise Refused(told)
    if kind == "harm":
        raise Harm(told)
    if kind == "failed":
        raise RuntimeError(told)
    return told


def become(uid: int) -> None:
    """Be this account, and have no way back."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _run(attack: Attack, connection: Connection, uid: int, arguments: tuple[Any, ...]) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    # What sorts of trouble an account makes is the question, not how much of the CPU it can take.
    os.nice(5)
    os.chdir("/")
    become(uid)
    try:
        attack(Line(connection), *arguments)
    except Refused as refused:
        answer = ("refused", str(refused))
    except Harm as harm:
        answer = ("harm", str(harm))
    except Exception:
        answer = ("failed", traceback.format_exc())
    else:
        return
    with contextlib.suppress(OSError):
        connection.send(answer)
