# SPDX-License-Identifier: Apache-2.0
"""Intel's ``pqos`` as a second reader of the kernel's files, with nothing of ours in it.

Its OS interface knows control groups named ``COS1``, ``COS2`` … only, and makes all that there can be before it shows
any. So it is shown the groups under such names, in a mount namespace of its own: each one is bound there, file for
file the kernel's.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

VIEW = """\
set -e
root=$1
shift
view=$(mktemp -d)
mount -t tmpfs view "$view"
for name in cpus schemata tasks; do
    : >"$view/$name"
    mount --bind "$root/$name" "$view/$name"
done
for name in info mon_groups; do
    [ -d "$root/$name" ] || continue
    mkdir "$view/$name"
    mount --bind "$root/$name" "$view/$name"
done
number=0
for group; do
    number=$((number + 1))
    mkdir "$view/COS$number"
    mount --bind "$root/$group" "$view/COS$number"
done
echo $((number + 1)) >"$view/number"
for file in "$view"/info/*/num_closids; do
    mount --bind "$view/number" "$file"
done
mount --rbind "$view" "$root"
rmdir "$view" 2>/dev/null || true
exec pqos --iface=os --show
"""

_SOCKET = re.compile(r"L3CA.* definitions for Socket (\d+):")
_MASK = re.compile(r"\s+L3CA COS(\d+) => (?:MASK 0x([0-9a-f]+)|DATA 0x([0-9a-f]+),\s*CODE 0x([0-9a-f]+))")
_PIDS = re.compile(r"\s+COS(\d+) => ([\d, ]+)")


@dataclass(frozen=True, slots=True)
class Shown:
    """What pqos says of a control group.

    :ivar masks: of L3, by socket, for code and data together.
    :ivar tasks: its tasks; pqos shows none for the default group.
    """

    masks: dict[int, int]
    tasks: frozenset[int]


def show(root: Path, groups: Sequence[str]) -> dict[str, Shown]:
    """What ``pqos --show`` says of the default group (empty name) and of these others.

    :raises RuntimeError: if it fails, with what it said.
    """
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", VIEW, "view", str(root), *groups]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"pqos ended with status {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return parse(ran.stdout, groups)


def parse(text: str, groups: Sequence[str]) -> dict[str, Shown]:
    """Read what pqos printed, with the groups in the order of their numbers, the first one being number 1."""
    masks: dict[int, dict[int, int]] = {}
    tasks: dict[int, frozenset[int]] = {}
    socket = 0
    for line in text.splitlines():
        if found := _SOCKET.match(line):
            socket = int(found[1])
        elif found := _MASK.match(line):
            whole, data, code = (int(part or "0", 16) for part in found.groups()[1:])
            masks.setdefault(int(found[1]), {})[socket] = whole | data | code
        elif found := _PIDS.match(line):
            tasks[int(found[1])] = frozenset(map(int, found[2].split(",")))
    return {
        name: Shown(masks.get(number, {}), tasks.get(number, frozenset())) for number, name in enumerate(["", *groups])
    }
