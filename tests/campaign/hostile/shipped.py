# SPDX-License-Identifier: Apache-2.0
"""What the shipped systemd units say about permissions: the agent and the gateway of the campaign run with them."""

from __future__ import annotations

import grp
import re
from pathlib import Path

from tools.lab.workspace import CHECKOUT

UNITS = CHECKOUT / "etc" / "systemd"
RESCTRL = "/sys/fs/resctrl"
DEFAULT_UMASK = 0o022
"""systemd.exec(5), ``UMask=``."""


def umask(module: str = "vmqos.agent.main") -> int:
    """The umask of a program.

    :param module: the program's, ``vmqos.agent.main`` or ``vmqos.gateway.main``.
    """
    unit = UNITS / f"vmqos-{module.split('.')[1]}.service"
    found = re.findall(r"^UMask=([0-7]+)$", unit.read_text(), re.MULTILINE)
    return int(found[-1], 8) if found else DEFAULT_UMASK


def resctrl_commands(root: Path) -> list[list[str]]:
    """The commands of the shipped units and of tmpfiles.d that set resctrl's permissions, for another mount point."""
    commands = []
    for unit in sorted(UNITS.iterdir()):
        for line in unit.read_text().splitlines():
            words = line.partition("#")[0].split()
            for position, word in enumerate(words):
                if re.fullmatch(r"(?:\w+=)?[-+!@:]*(?:/usr)?/?(?:bin/)?(?:chmod|chgrp|chown)", word):
                    command = [re.sub(r"^.*/", "", re.sub(r"^\w+=[-+!@:]*", "", word)), *words[position + 1 :]]
                    if RESCTRL in command and _can_be_run(command):
                        commands.append([str(root) if part == RESCTRL else part for part in command])
            # tmpfiles.d(5): type, path, mode, user, group.
            if len(words) >= 3 and re.fullmatch(r"[zZdm][-+!=~^]*", words[0]) and words[1] == RESCTRL:
                commands.append(["chmod", words[2], str(root)])
    return commands


def _can_be_run(command: list[str]) -> bool:
    """Whether the group exists that a file is given to: systemd-sysusers makes it where the units are installed."""
    group = command[1].partition(":")[2] if command[0] == "chown" else ""
    return not group or any(entry.gr_name == group for entry in grp.getgrall())
