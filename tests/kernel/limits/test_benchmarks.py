# SPDX-License-Identifier: Apache-2.0
"""The benchmarks on a resctrl run in a guest, beside pqos, and print ratios; what they come to is nobody's test."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.guest(machines=("cascade-lake",), kernels=("newest",))

COST = re.compile(r"    (\S.*?) +[0-9.]+ ms wall +[0-9.]+ ms CPU")
RATIO = re.compile(r"        vmqos takes +[0-9.]+x wall, +[0-9.]+x CPU")
WITH_PQOS = ("moving 20 threads", "giving a group other masks", "reading 8 control groups")


def test_the_benchmarks_compare_us_with_the_system_calls_and_with_pqos(mount_resctrl: Callable[..., Path]) -> None:
    root = mount_resctrl()
    before = sorted(path.name for path in root.iterdir())
    command = [sys.executable, "-m", "tests.benchmarks", "--quick", "--resctrl", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sides: dict[str, list[str]] = {}
    ratios: dict[str, int] = {}
    for line in done.stdout.splitlines():
        if not line.startswith(" "):
            title = line
            sides[title], ratios[title] = [], 0
        elif cost := COST.match(line):
            sides[title].append(cost[1])
        elif RATIO.match(line):
            ratios[title] += 1
    for action in WITH_PQOS:
        (title,) = (title for title in sides if title.startswith(action))
        assert (sides[title], ratios[title]) == (["vmqos", "the system calls in C", "pqos"], 2), done.stdout
    assert sorted(path.name for path in root.iterdir()) == before, "nothing is left behind"
