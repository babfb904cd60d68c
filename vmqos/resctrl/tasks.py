# SPDX-License-Identifier: Apache-2.0
"""Which tasks are in a group, and moving tasks into one.

A group is named by its directory below the root: ``""`` (the default group), ``vmqos.x``, ``mon_groups/vmqos.y``,
``vmqos.shared-ways2/mon_groups/vmqos.y``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem, join

LONGEST_WRITE = 4095
"""Bytes, the line break included: resctrl refuses more than a page (E2BIG)."""

_FAILED_TASK = re.compile(r"Error while processing task ([0-9]+)")
"""Only a kernel that takes lists says this: ``rdtgroup_tasks_write`` since Linux 6.7."""

_SHOWN = 60
"""Bytes of a file that an error repeats."""

_OTHER_CONTROL_GROUP = "different control group"


def read_tasks(fs: Filesystem, group_dir: str) -> set[int]:
    """The task ids in a group: of a control group those of its monitoring groups, too.

    :raises vmqos.resctrl.exceptions.Vanished: if there is no such group.
    :raises vmqos.resctrl.exceptions.Unreadable: if the group is pseudo-locked: it has no tasks.
    :raises vmqos.resctrl.exceptions.UnexpectedContent: if the file holds anything but numbers.
    """
    content = fs.read_bytes(group_dir, "tasks")
    try:
        return set(map(int, content.split()))
    except ValueError as error:
        path, text = fs.path(group_dir, "tasks"), content[:_SHOWN].decode(errors="replace")
        raise exceptions.UnexpectedContent(path=path, text=text, expected="list of tasks") from error


def move(fs: Filesystem, group_dir: str, tids: Iterable[int]) -> frozenset[int]:
    """Move tasks into a group, as many as fit into each write.

    Moving a process does not move its threads: each is a task of its own. Threads and processes that are born later
    start in their creator's groups. A task that enters a control group leaves whichever monitoring group it was in; a
    monitoring group takes only tasks that already are in its control group.

    :param tids: task ids, each 1 or greater.
    :returns: the tasks that are in the group now; the others did not exist any more.
    :raises ValueError: if an id is 0 or less: to the kernel, 0 is the writer itself.
    :raises vmqos.resctrl.exceptions.Vanished: if there is no such group.
    :raises vmqos.resctrl.exceptions.DifferentControlGroup: if a monitoring group is to take a task that is not in its
        control group; the tasks before it are moved.
    :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses for any other reason.
    """
    wanted = frozenset(tids)
    path = join(group_dir, "tasks")
    vanished = set[int]()
    try:
        for part in _parts(_joined(wanted)):
            vanished |= _move_part(fs, path, part)
    except exceptions.CommandFailed as failure:
        if _OTHER_CONTROL_GROUP in failure.last_cmd_status:
            raise exceptions.DifferentControlGroup.of(failure) from failure
        raise
    return wanted - vanished if vanished else wanted


def _joined(tids: frozenset[int]) -> str:
    """The ids with commas between; for hundreds of them, formatting all at once halves the cost of a move."""
    text = (b"%d," * len(tids) % tuple(tids))[:-1].decode()
    if "-" in text or ",0," in f",{text},":
        raise ValueError(f"no task id: {min(tids)}")
    return text


def _parts(text: str) -> Iterator[str]:
    """Cut a list at commas so that each part with its line break is short enough for one write."""
    start = 0
    while len(text) - start >= LONGEST_WRITE:
        # A comma right behind the part's last possible character still lets that character in.
        cut = text.rindex(",", start, start + LONGEST_WRITE)
        yield text[start:cut]
        start = cut + 1
    if start < len(text):
        yield text[start:]


def _move_part(fs: Filesystem, path: str, part: str) -> set[int]:
    """Move the tasks of one list; returns those that have vanished.

    The kernel stops at the first task that fails, with those before it moved, and names it in its status. So every turn
    of the loop takes at least one task off the list.
    """
    vanished = set[int]()
    while "," in part and fs.takes_task_lists:
        try:
            fs.write(path, part)
            return vanished
        except exceptions.CommandFailed as failure:
            named = _FAILED_TASK.search(failure.last_cmd_status)
            if failure.errno_name == "ESRCH":
                left = part.split(",")
                if named is None or named[1] not in left:
                    return vanished | _move_each(fs, path, part)
                vanished.add(int(named[1]))
                part = ",".join(left[left.index(named[1]) + 1 :])
            elif failure.errno_name == "EINVAL" and named is None:
                vanished |= _move_each(fs, path, part)
                fs.takes_task_lists = False
                return vanished
            else:
                raise
    return vanished | _move_each(fs, path, part)


def _move_each(fs: Filesystem, path: str, part: str) -> set[int]:
    """Move the tasks of one list with one write a task; returns those that have vanished."""
    vanished = set[int]()
    for tid in filter(None, part.split(",")):
        try:
            fs.write(path, tid)
        except exceptions.CommandFailed as failure:
            if failure.errno_name != "ESRCH":
                raise
            vanished.add(int(tid))
    return vanished
