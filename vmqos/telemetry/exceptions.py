# SPDX-License-Identifier: Apache-2.0
"""What can go wrong while counters are read, beside what :mod:`vmqos.resctrl.exceptions` has."""

from __future__ import annotations

from vmqos.resctrl.exceptions import ResctrlError


class SweepFailed(ResctrlError):
    """A sweep failed for a reason that the code does not foresee."""

    msg_fmt = "counters can't be read: {cause}: report this with the traceback in the log"


class SweepTakesLong(ResctrlError):
    """No sweep has ended yet, and the one under way takes longer than any should."""

    msg_fmt = "no counters have been read yet: the first look at them has taken {seconds} s so far"


class HardwareEventsError(Exception):
    """The root of what goes wrong with hardware events; each subclass fills ``msg_fmt`` from its keyword arguments.

    :cvar word: a word for it, for metrics and programs.
    """

    msg_fmt = "{cause}"
    word = "refused"

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self.msg_fmt.format(**values))


class HardwareEventsRefused(HardwareEventsError):
    """The kernel does not count a task, or does not tell what it has counted."""


class NoFilesLeft(HardwareEventsError):
    """No more files may be open, and counting a task takes some."""

    word = "no-files"


class TooManyTasks(HardwareEventsError):
    """A VM has more tasks than may be counted."""

    msg_fmt = "it has {count} tasks, and counting takes files of each: {most} tasks can be counted"
    word = "too-many-tasks"


class TasksKeepComing(HardwareEventsError):
    """Whenever all tasks were to be counted, another one was started."""

    msg_fmt = "it started threads each of the {tries} times that its tasks were to be counted"
    word = "threads-keep-coming"
