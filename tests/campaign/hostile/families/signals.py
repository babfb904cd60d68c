# SPDX-License-Identifier: Apache-2.0
"""What a local account may try on the agent's process and its files directly."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.campaign.hostile import outsider
from tests.campaign.hostile.inputs import Attacker, Family, Harm, Hold, Input, Refused
from tests.campaign.hostile.outsider import Line
from tests.campaign.hostile.stage import Stage

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE = 0x4206
SYS_PRLIMIT64, SYS_PROCESS_VM_WRITEV, SYS_PIDFD_GETFD, SYS_MIGRATE_PAGES = 302, 311, 438, 256


def _send(number: int) -> Callable[[int], object]:
    return lambda pid: os.kill(pid, number)


def _write(name: str, text: str) -> Callable[[int], object]:
    return lambda pid: Path(f"/proc/{pid}/{name}").write_text(text)


def _open(name: str) -> Callable[[int], object]:
    return lambda pid: os.close(os.open(f"/proc/{pid}/{name}", os.O_RDWR))


def _call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


_NO_FILES = (ctypes.c_uint64 * 2)(0, 0)
_BYTE = ctypes.create_string_buffer(1)
_VECTOR = (ctypes.c_uint64 * 2)(ctypes.addressof(_BYTE), 1)
"""A ``struct iovec``: an address, here and there, and a length."""

ON_THE_PROCESS: dict[str, Callable[[int], object]] = {
    **{
        f"a {number.name}": _send(number)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGHUP, signal.SIGUSR1, signal.SIGSEGV)
    },
    "ptrace": lambda pid: _call(LIBC.ptrace, PTRACE_SEIZE, pid, None, None),
    "its memory opened": _open("mem"),
    "its memory written": lambda pid: _call(LIBC.syscall, SYS_PROCESS_VM_WRITEV, pid, _VECTOR, 1, _VECTOR, 1, 0),
    "its descriptors taken": lambda pid: _call(LIBC.syscall, SYS_PIDFD_GETFD, os.pidfd_open(pid), 3, 0),
    "its descriptors listed": lambda pid: os.listdir(f"/proc/{pid}/fd"),
    "its environment read": lambda pid: Path(f"/proc/{pid}/environ").read_bytes(),
    "its priority lowered": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "its CPUs taken": lambda pid: os.sched_setaffinity(pid, {0}),
    "its scheduling changed": lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
    "its limits lowered": lambda pid: _call(LIBC.syscall, SYS_PRLIMIT64, pid, 7, ctypes.byref(_NO_FILES), None),
    "its pages moved": lambda pid: _call(LIBC.syscall, SYS_MIGRATE_PAGES, pid, 8, None, None),
    "its chance to be killed raised": _write("oom_score_adj", "1000"),
    "its name changed": _write("comm", "x"),
}


def touch(line: Line, pid: int, name: str) -> None:
    """Do one of these to the agent's process."""
    try:
        ON_THE_PROCESS[name](pid)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise Refused(f"{error.strerror}") from error
        raise
    raise Harm("the kernel let it happen")


def create(line: Line, folder: str) -> None:
    """Make a file in a directory of the agent's."""
    try:
        os.close(os.open(f"{folder}/planted", os.O_CREAT | os.O_WRONLY))
    except OSError as error:
        raise Refused(f"{error.strerror}") from error
    os.unlink(f"{folder}/planted")
    raise Harm("another account may write there")


def write(line: Line, path: str, text: str) -> None:
    """Write to a file of resctrl's or of the agent's."""
    try:
        with open(path, "a") as file:
            file.write(text)
    except OSError as error:
        raise Refused(f"{error.strerror}") from error
    raise Harm("another account may write there")


def group(line: Line, root: str) -> None:
    """Make a control group."""
    try:
        os.mkdir(f"{root}/by-an-account")
    except OSError as error:
        raise Refused(f"{error.strerror}") from error
    raise Harm("another account may make control groups")


def _on_process(stage: Stage, name: str) -> Hold:
    with outsider.attacking(touch, stage.pid, name):
        yield


def _on_files(stage: Stage, attack: outsider.Attack, where: Callable[[Stage], Path], text: str) -> Hold:
    arguments = (text,) if text else ()
    with outsider.attacking(attack, str(where(stage)), *arguments):
        yield


ON_FILES: dict[str, tuple[outsider.Attack, Callable[[Stage], Path], str]] = {
    "a file in its directory": (create, lambda stage: stage.agent.socket.parent, ""),
    "a file in the directory of its lock": (create, lambda stage: stage.lock_file.parent, ""),
    "a line in its configuration": (write, lambda stage: stage.agent.config_file, "[http]\nport = 1\n"),
    "a line in its log": (write, lambda stage: stage.agent.log, "all is well\n"),
    "a PID in its lock": (write, lambda stage: stage.lock_file, "1\n"),
    "a control group": (group, lambda stage: stage.simulator.root, ""),
    "a mask of the default group": (write, lambda stage: stage.simulator.root / "schemata", "L3:0=1;1=1\n"),
    "a task of its own moved": (write, lambda stage: stage.simulator.root / "tasks", "0\n"),
}

FAMILY = Family(
    "signals",
    "the agent's process and files, touched by a local account",
    (
        *(
            Input(name, Attacker.ACCOUNT, partial(_on_process, name=name), "the agent's process")
            for name in ON_THE_PROCESS
        ),
        *(
            Input(name, Attacker.ACCOUNT, partial(_on_files, attack=attack, where=where, text=text), "files")
            for name, (attack, where, text) in ON_FILES.items()
        ),
    ),
)
