# SPDX-License-Identifier: Apache-2.0
"""Locks that others take: a local account, which must not get them, and programs of root's that hold them too long."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.campaign.hostile import outsider
from tests.campaign.hostile.inputs import Attacker, Family, Harm, Hold, Input, Late, Refused
from tests.campaign.hostile.outsider import Line
from tests.campaign.hostile.stage import LOCK_TIMEOUT, Stage
from tests.campaign.hostile.witness import WITHIN

HELD_FOR = LOCK_TIMEOUT + 1.5
"""Seconds: longer than the agent waits, so that it has to come back for what it could not do."""

MODES = {"shared": fcntl.LOCK_SH, "exclusive": fcntl.LOCK_EX}


def take(line: Line, path: str, mode: int) -> None:
    """Lock a file or directory, and keep it locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Refused("flock: another process has it locked") from error
    except OSError as error:
        raise Refused(f"open: {error.strerror}") from error
    line.in_force()


def _taken(stage: Stage, where: Callable[[Stage], Path], mode: int, restart: bool) -> Hold:
    if restart:
        stage.agent.stop()
    try:
        with outsider.attacking(take, str(where(stage)), mode):
            if restart:
                _restart(stage)
            yield
    finally:
        if stage.agent.pid is None:
            stage.agent.start()


def _restart(stage: Stage) -> None:
    try:
        stage.agent.start()
    except RuntimeError as error:
        raise Harm(f"the agent does not start any more: {str(error)[-200:]}") from error


FILES: dict[str, Callable[[Stage], Path]] = {
    "resctrl's root": lambda stage: stage.simulator.root,
    "a group of resctrl's": lambda stage: stage.simulator.root / stage.tree.groups()[0],
    "the agent's lock file": lambda stage: stage.lock_file,
    "the directory of the agent's lock file": lambda stage: stage.lock_file.parent,
    "the directory of the agent's socket": lambda stage: stage.agent.socket.parent,
}


def hold(line: Line, path: str, mode: int) -> None:
    """Lock resctrl as a program of root's does."""
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, mode)
    line.in_force()


def hold_stopped(line: Line, path: str, mode: int) -> None:
    """Lock resctrl, and be stopped while it is locked."""
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, mode)
    line.say(os.getpid())
    os.kill(os.getpid(), signal.SIGSTOP)


def busy(line: Line, path: str, mode: int, held: float, pause: float) -> None:
    """Lock resctrl again and again for a moment each."""
    descriptor = os.open(path, os.O_RDONLY)
    line.say()
    while not line.wait(pause):
        fcntl.flock(descriptor, mode)
        time.sleep(held)
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _held(stage: Stage, mode: int, stopped: bool) -> Hold:
    """A VM is resized while the lock is held: it has to have its ways within a second of the lock's release."""
    witness = stage.witness
    with contextlib.ExitStack() as stack:
        stack.enter_context(_stopped(stage, mode) if stopped else _running(stage, mode))

        def release() -> None:
            time.sleep(HELD_FOR)
            stack.close()

        took = witness.resize(before=release)
    if took > WITHIN:
        raise Late(f"a VM was served {took:.1f} s after the lock's release, {WITHIN:.1f} s are allowed")
    yield


@contextlib.contextmanager
def _running(stage: Stage, mode: int) -> Iterator[None]:
    with outsider.attacking(hold, str(stage.simulator.root), mode, uid=0):
        yield


@contextlib.contextmanager
def _stopped(stage: Stage, mode: int) -> Iterator[None]:
    with outsider.attacking(hold_stopped, str(stage.simulator.root), mode, uid=0) as pid:
        try:
            yield
        finally:
            os.kill(pid, signal.SIGKILL)


def _busy(stage: Stage, mode: int, held: float, pause: float) -> Hold:
    with outsider.attacking(busy, str(stage.simulator.root), mode, held, pause, uid=0):
        yield


def _start_while_held(stage: Stage) -> Hold:
    """A VM is started while the lock is held."""
    witness = stage.witness
    with contextlib.ExitStack() as stack:
        stack.enter_context(_running(stage, fcntl.LOCK_EX))

        def release() -> None:
            time.sleep(HELD_FOR)
            stack.close()

        took = witness.start_and_stop(before=release)
    if took > WITHIN:
        raise Late(f"a VM was served {took:.1f} s after the lock's release, {WITHIN:.1f} s are allowed")
    yield


def _inputs() -> Iterator[Input]:
    for what, where in FILES.items():
        for kind, mode in MODES.items():
            act = partial(_taken, where=where, mode=mode, restart=False)
            yield Input(f"{what} locked {kind}", Attacker.ACCOUNT, act, f"{kind} locks of an account")
    act = partial(_taken, where=FILES["the agent's lock file"], mode=fcntl.LOCK_SH, restart=True)
    yield Input("the agent's lock file locked before it starts", Attacker.ACCOUNT, act, stops_service=True)
    for kind, mode in MODES.items():
        for stopped in (False, True):
            name = f"resctrl locked {kind} for {HELD_FOR:.1f} s by a {'stopped ' if stopped else ''}program"
            act = partial(_held, mode=mode, stopped=stopped)
            yield Input(name, Attacker.NEIGHBOUR, act, stops_service=True)
    yield Input("resctrl locked while a VM starts", Attacker.NEIGHBOUR, _start_while_held, stops_service=True)
    for kind, mode in MODES.items():
        act = partial(_busy, mode=mode, held=0.05, pause=0.05)
        yield Input(f"resctrl locked {kind} ten times a second", Attacker.NEIGHBOUR, act)


FAMILY = Family("locks", "locks on resctrl and on the agent's files", tuple(_inputs()))
