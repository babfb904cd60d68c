# SPDX-License-Identifier: Apache-2.0
"""The commands that mount resctrl with other options, as they work on a host where the agent runs."""

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
"""Seconds for the agent to close its counters: it does so when it looks at them next."""


def mount_with(path: str, options: Collection[str], units: Sequence[str] = UNIT_DIRECTORIES) -> str:
    """A line for root's shell that has resctrl mounted with these options and no others.

    Every group on the host goes by that. The kernel switches options neither on nor off by a remount. The agent keeps
    counters open, by which a plain ``umount`` would find resctrl busy. Where our unit mounts resctrl, the line changes
    the unit too, so that the options last; otherwise they are gone after a reboot.

    :param path: where resctrl is mounted.
    :param options: of ``cdp``, ``cdpl2``, ``mba_MBps`` and ``debug``.
    :param units: the directories to look for our unit in.
    """
    joined = ",".join(sorted(options))
    if path == mount.DEFAULT_PATH and any(os.path.exists(f"{directory}/{UNIT}") for directory in units):
        # The agent is started again even if the kernel refuses the options.
        return (
            f"mkdir -p {DROP_IN} && printf '[Mount]\\nOptions={joined or 'defaults'}\\n' > {DROP_IN}/options.conf"
            f" && systemctl daemon-reload && systemctl stop vmqos-agent && systemctl restart {UNIT};"
            " systemctl start vmqos-agent"
        )
    place = shlex.quote(path)
    again = f"until mount -t resctrl {f'-o {joined} ' if joined else ''}resctrl {place}; do sleep 1; done"
    return f"umount -l {place} && timeout {PATIENCE} sh -c {shlex.quote(again)}"
