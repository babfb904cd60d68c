# SPDX-License-Identifier: Apache-2.0
"""``vmqos bench noisy-neighbor`` on caches that take time, with its report as JSON.

:mod:`tests.kernel.worth.test_noisy_neighbor` checks the same run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.kernel.cachemodel import switch
from tests.worth.node import RESCTRL

L3_NS, MEMORY_NS = 1000, 5000
"""What a line takes: so long that an emulated CPU's own slowness matters little beside it."""
COMMAND = (
    *("bench", "noisy-neighbor", "--ways", "12", "--working-set", "2560K", "--noise", "builtin"),
    *("--duration", "5", "--repetitions", "5", "-f", "json"),
)


def run() -> dict[str, Any]:
    """The tool's report."""
    subprocess.run(["mount", "-t", "resctrl", "resctrl", str(RESCTRL)], check=True)
    print(f"vmqos {' '.join(COMMAND)}", flush=True)
    with switch.on(sample=2, l2size=1 << 16, l3_ns=L3_NS, memory_ns=MEMORY_NS):
        done = subprocess.run(
            [sys.executable, "-m", "vmqos.cli.main", *COMMAND], stdout=subprocess.PIPE, text=True, check=True
        )
    subprocess.run(["umount", str(RESCTRL)], check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
