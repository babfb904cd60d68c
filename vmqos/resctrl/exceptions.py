# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with resctrl: one class a failure, its message what the operator should do."""

from __future__ import annotations

from typing import Self

from vmqos.reason import Code

_SHOWN_DATA = 60
"""Characters of a refused write that a message repeats: a list of tasks has up to 4095."""


class ResctrlError(Exception):
    """The root of this package's errors; each subclass fills ``msg_fmt`` from its keyword arguments."""

    msg_fmt = "resctrl failed"
    code = Code.OTHER
    """What it is to a VM: see :class:`vmqos.reason.Reason`."""

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self.msg_fmt.format(**values))


class InvalidBitmask(ResctrlError, ValueError):
    """A text is no capacity bitmask."""

    msg_fmt = "{text!r} is no capacity bitmask: write hexadecimal digits, such as 3f"


class IllegalBitmask(ResctrlError, ValueError):
    """A mask that this machine's kernel would refuse."""

    msg_fmt = "{resource} can't take the mask {mask}: {rule}"


class InvalidSchemata(ResctrlError, ValueError):
    """A text is no schemata."""

    msg_fmt = "{line!r} is no line of a schemata file: a line reads RESOURCE:ID=VALUE;ID=VALUE, such as L3:0=7ff;1=7ff"


class InvalidGroupName(ResctrlError, ValueError):
    """A name that no group can have."""

    msg_fmt = "{name!r} can't name a group: no '/', no line break, and none of ., .., info, mon_data, mon_groups"


class UnexpectedContent(ResctrlError):
    """A file of ``info/`` says something that this version does not understand."""

    msg_fmt = "{path} says {text!r}, which is no {expected}: report this with the output of uname -r"


class MountError(ResctrlError):
    """resctrl is not there in a usable form; each subclass says why and gives the command that mends it."""

    msg_fmt = "resctrl can't be used at {path}"
    code = Code.NO_RESCTRL


class NotSupported(MountError):
    """The kernel has no resctrl."""

    msg_fmt = "nothing is mounted at {path}, and this kernel offers no resctrl (see /proc/filesystems): {cause}"


class NotMounted(MountError):
    """The kernel has resctrl, but not at this path."""

    msg_fmt = "resctrl is not mounted at {path}: {mend}"


class MissingMountOptions(MountError):
    """resctrl is mounted without what is asked."""

    msg_fmt = (
        "resctrl at {path} is mounted without {missing}: stop everything that uses it, then {mend} "
        "(a remount does not switch it on, and an unmount deletes every group)"
    )


class ReadOnly(MountError):
    """resctrl is mounted, but may not be written."""

    # -i: for a simulator's mount, mount(8) would look for a helper program that there is not.
    msg_fmt = "resctrl at {path} is mounted read-only: mount -i -o remount,rw {path}"


class DeadMount(MountError):
    """A FUSE filesystem whose process has ended: every access fails with ENOTCONN."""

    msg_fmt = "the process behind the FUSE mount {path} has ended: fusermount3 -u -z {path}, then start it again"


class NotResctrl(MountError):
    """Something else is mounted there."""

    msg_fmt = "{path} is a {fstype} filesystem and no resctrl: configure the path of resctrl (findmnt -t resctrl)"


class LockTimeout(ResctrlError):
    """Others kept the lock on resctrl, one after the other or one all the time."""

    msg_fmt = (
        "the lock on {path} was not free within {timeout} s; {holders}: wait for it, "
        "or see who it is (libvirtd, pqos, another agent) with fuser -v {path}"
    )


class Vanished(ResctrlError):
    """A file or a group is not there (any more); a group's files end with it."""

    msg_fmt = "{path} does not exist (any more): another program removed the group, or resctrl was unmounted"


class Unreadable(ResctrlError):
    """A file is there and can't be read."""

    msg_fmt = (
        "{path} can't be read ({errno_name}): run as root or as a user in the group that resctrl belongs to "
        "('sudo vmqos doctor' says which); the kernel lets no user read the tasks of a pseudo-locked group"
    )


class CommandFailed(ResctrlError):
    """The kernel refused a change; what was in force before still is.

    :param action: what was tried: ``write``, ``mkdir``, ``rmdir`` or ``rename``.
    :param path: the absolute path it was tried on.
    :param data: what was written, or the new path of a rename; empty for a directory.
    :param errno_name: the error's symbol, such as ``EINVAL``.
    :param last_cmd_status: the kernel's reason from ``info/last_cmd_status``; empty where it gave none.
    """

    msg_fmt = "{action} {path}{shown} failed with {errno_name}: {reason}"
    code = Code.REFUSED

    def __init__(self, *, action: str, path: str, data: str, errno_name: str, last_cmd_status: str) -> None:
        self.action = action
        self.path = path
        self.data = data
        self.errno_name = errno_name
        self.last_cmd_status = last_cmd_status
        text = data.rstrip("\n")
        if len(text) > _SHOWN_DATA:
            text = f"{text[:_SHOWN_DATA]}..."
        super().__init__(
            action=action,
            path=path,
            data=data,
            errno_name=errno_name,
            last_cmd_status=last_cmd_status,
            shown=f" {text!r}" if text else "",
            reason="; ".join(last_cmd_status.split("\n")) if last_cmd_status else "the kernel gave no reason",
        )

    @classmethod
    def of(cls, failure: CommandFailed) -> Self:
        """The failure of a command, told as one of this class."""
        return cls(
            action=failure.action,
            path=failure.path,
            data=failure.data,
            errno_name=failure.errno_name,
            last_cmd_status=failure.last_cmd_status,
        )


class NoClosidLeft(CommandFailed):
    """Every CLOSID is taken: no further control group can be made."""

    msg_fmt = f"{CommandFailed.msg_fmt}. All CLOSIDs are in use: remove a control group that is not needed"


class NoRmidLeft(CommandFailed):
    """Every RMID is taken: no further group can be monitored, and no control group made."""

    msg_fmt = f"{CommandFailed.msg_fmt}. All RMIDs are in use: remove a monitoring or control group that is not needed"


class RmidsInLimbo(CommandFailed):
    """RMIDs are free, but their last users' lines are still in the cache."""

    msg_fmt = (
        f"{CommandFailed.msg_fmt}. Freed RMIDs still have lines in the cache: try again in some seconds, "
        "or raise info/L3_MON/max_threshold_occupancy"
    )


class GroupExists(CommandFailed):
    """The name is taken."""

    msg_fmt = f"{CommandFailed.msg_fmt}. The name is taken: remove that group or choose another name"


class MasksOverlap(CommandFailed):
    """Masks would overlap and one of the groups is in the mode ``exclusive`` (or pseudo-locked)."""

    msg_fmt = (
        f"{CommandFailed.msg_fmt}. A group in the mode exclusive (or pseudo-locked) shares no way with any other "
        "group, the default one included, nor with those in the shareable_bits of the resource's info/ directory"
    )


class CacheOffline(CommandFailed):
    """A mask names a cache that is not there, or has no CPU online."""

    msg_fmt = f"{CommandFailed.msg_fmt}. No such cache is online: the default group's schemata lists those that are"


class DifferentControlGroup(CommandFailed):
    """A task can't be monitored there: a monitoring group takes tasks of its own control group only."""

    msg_fmt = f"{CommandFailed.msg_fmt}. Move the task into the control group first"
