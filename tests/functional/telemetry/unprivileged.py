# SPDX-License-Identifier: Apache-2.0
"""A sweep by a user without any right, on whatever resctrl."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.lab.workspace import CHECKOUT

NOBODY = 65534

AS_NOBODY = f"""
import os, sys
from vmqos.telemetry import Sweeper
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
try:
    with Sweeper(sys.argv[1]) as sweeper:
        for vm in sweeper.sweep().vms.values():
            print(vm.uuid, *(reading.value if reading.missing is None else reading.missing
                             for reading in vm.totals.values()), sum(vm.ways.values()))
except Exception as error:
    print(type(error).__name__)
"""


def as_nobody(root: Path, *limits: str) -> list[str]:
    """What a user without any right reads."""
    command = [sys.executable, "-c", AS_NOBODY, str(root)]
    done = subprocess.run([*limits, *command], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return sorted(done.stdout.splitlines())
