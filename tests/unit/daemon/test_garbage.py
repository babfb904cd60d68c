# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

TOLD = """
import gc
from vmqos.daemon import garbage
before = gc.get_freeze_count()
garbage.spare_what_is_there()
print(gc.get_freeze_count() > before, gc.get_threshold()[0] == garbage.COLLECT_AFTER)
"""


def test_what_is_there_is_gone_through_no_more_and_the_young_ones_less_often() -> None:
    # In a process of its own: what is frozen stays so.
    done = subprocess.run([sys.executable, "-c", TOLD], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
