# SPDX-License-Identifier: Apache-2.0
"""The ``tasks`` file of a group."""

from __future__ import annotations

import errno

from vmqos.simulator.files.state import Group, Mode, Mounted
from vmqos.simulator.kernel.numbers import refusal, signed, strip
from vmqos.simulator.kernel.tree import Caller


def show(mounted: Mounted, group: Group) -> str:
    """The content of ``tasks``: one id a line."""
    profile = mounted.hardware.profile
    if not (profile.monitoring if group.is_monitoring else profile.can_allocate):
        return ""
    return "".join(f"{tid}\n" for tid in mounted.hardware.members.members(group.has_task))


def store(mounted: Mounted, group: Group, data: str, caller: Caller) -> None:
    """Move the tasks whose ids, joined by commas, were written (``rdtgroup_tasks_write``).

    The first failure ends it; what was moved before stays moved.

    :raises OSError: ``EINVAL``, ``ESRCH`` or ``EPERM``, the reason being in ``last_cmd_status``.
    """
    status = mounted.status
    status.clear()
    if group.mode in (Mode.LOCKED, Mode.LOCK_SETUP):
        status.puts("Pseudo-locking in progress\n")
        raise refusal(errno.EINVAL)
    mounted.hardware.members.settle()
    rest: str | None = data.partition("\0")[0]
    while rest and rest[0] != "\n":
        word, comma, after = rest.partition(",")
        rest = after if comma else None
        word = strip(word)
        try:
            tid = signed(word, 0, 32)
        except OSError:
            status.printf(f"Task list parsing error pid {word}\n")
            raise refusal(errno.EINVAL) from None
        if tid < 0:
            status.printf(f"Invalid pid {tid}\n")
            raise refusal(errno.EINVAL)
        try:
            _move(mounted, group, tid, caller)
        except OSError:
            status.printf(f"Error while processing task {tid}\n")
            raise


def _move(mounted: Mounted, group: Group, tid: int, caller: Caller) -> None:
    members = mounted.hardware.members
    task = mounted.hardware.processes.find(tid or caller.tid)
    if task is None:
        mounted.status.printf(f"No task {tid}\n")
        raise refusal(errno.ESRCH)
    if caller.uid and caller.uid not in (mounted.hardware.processes.owners(task.tid) or ()):
        mounted.status.printf(f"No permission to move task {task.tid}\n")
        raise refusal(errno.EPERM)
    closid, _ = members.of(task.tid)
    if group.parent is not None and group.parent.closid != closid:
        mounted.status.puts("Can't move task to different control group\n")
        raise refusal(errno.EINVAL)
    members.assign(task, group.closid, group.rmid)
