# SPDX-License-Identifier: Apache-2.0
"""The commands that mount resctrl with other options, as they work on a host where the agent and other services run.

The kernel has one resctrl: while any mount of it is left, it can't be mounted with other options, and ``mount`` says
that it is mounted already or busy (``rdt_get_tree``). Two kinds of mounts are easily overlooked:

- those with open files, such as the counters that the agent keeps open. ``umount -l`` takes them off, and they end when
  the files are closed;
- those of services with ``PrivateNetwork=``, such as virtlogd and polkit. From version 256 on, systemd mounts a sysfs
  of its own for each, with copies of what is mounted below it. An unmount on the host does not reach these.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Sequence

from vmqos.resctrl import mount

UNIT = "sys-fs-resctrl.mount"
"""The unit of ``etc/systemd`` that mounts resctrl at :data:`vmqos.resctrl.mount.DEFAULT_PATH`."""

UNIT_DIRECTORIES = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
"""Where systemd looks for units (systemd.unit(5)), as far as ours may be there."""

DROP_IN = f"/etc/systemd/system/{UNIT}.d"

PATIENCE = 60
"""Seconds for all to close what they have open: the agent does so when it looks at its counters next."""


MOST_BYTES = 1 << 20
"""Bytes of one list of mounts that are looked at; a list of a thousand mounts has a tenth of it."""


def mount_with(path: str, options: Collection[str], units: Sequence[str] = UNIT_DIRECTORIES) -> str:
    """A line for root's shell that has resctrl mounted with these options and no others.

    Every group on the host goes by that. The kernel switches options neither on nor off by a remount. Where our unit
    mounts resctrl, the line changes the unit too, so that the options last; otherwise they are gone after a reboot.

    :param path: where resctrl is mounted.
    :param options: of ``cdp``, ``cdpl2``, ``mba_MBps`` and ``debug``.
    :param units: the directories to look for our unit in.
    """
    joined = ",".join(sorted(options))
    if path == mount.DEFAULT_PATH and any(os.path.exists(f"{directory}/{UNIT}") for directory in units):
        # The agent is started again even if the kernel refuses the options.
        return (
            f"mkdir -p {DROP_IN} && printf '[Mount]\\nOptions={joined or 'defaults'}\\n' > {DROP_IN}/options.conf && "
            f"systemctl daemon-reload && {{ systemctl stop vmqos-agent {UNIT}; {_unmount_in_services(path)}; "
            f"{_patiently(f'systemctl start {UNIT}', 3)}; systemctl start vmqos-agent; }}"
        )
    return f"umount -l {shlex.quote(path)}; {mount_again(path, options)}"


def mount_again(path: str, options: Collection[str] = ()) -> str:
    """A line for root's shell that mounts resctrl where it is unmounted, or is being unmounted."""
    with_options = f"-o {','.join(sorted(options))} " if options else ""
    wanted = f"mount -t resctrl {with_options}resctrl {shlex.quote(path)}"
    return f"{_unmount_in_services(path)}; {_patiently(wanted, 1)}"


def is_mounted_in_a_service(proc: str = "/proc") -> bool:
    """Whether a process sees resctrl mounted, in a mount namespace other than ours.

    :param proc: where procfs is mounted. Processes that can't be looked at are passed over.
    """
    seen = {_namespace(f"{proc}/self")}
    for pid in filter(str.isdecimal, os.listdir(proc)):
        namespace = _namespace(f"{proc}/{pid}")
        if namespace in seen:
            continue
        seen.add(namespace)
        try:
            with open(f"{proc}/{pid}/mountinfo", "rb") as file:
                if b" - resctrl " in file.read(MOST_BYTES):
                    return True
        except OSError:
            continue
    return False


def _namespace(process: str) -> str:
    try:
        return os.readlink(f"{process}/ns/mnt")
    except OSError:
        return ""


def _unmount_in_services(path: str) -> str:
    """Unmount resctrl in the mount namespace of every process that has it mounted yet."""
    return (
        "for info in $(grep -ls ' - resctrl ' /proc/[0-9]*/mountinfo); do "
        f'nsenter --mount="${{info%mountinfo}}ns/mnt" umount -l {shlex.quote(path)} 2>/dev/null; done'
    )


def _patiently(command: str, pause: int) -> str:
    """Try a command until it succeeds, every ``pause`` seconds, for a minute."""
    return f"timeout {PATIENCE} sh -c {shlex.quote(f'until {command}; do sleep {pause}; done')}"
