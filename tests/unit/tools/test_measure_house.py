# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

A_FEW = 3
"""Functions that a thread beside the pass enters before a write, or after it."""


def test_the_way_to_the_first_writes_is_counted_alike_each_time(tmp_path: Path) -> None:
    saved = [tmp_path / name for name in ("first", "second")]
    for path in saved:
        subprocess.run([sys.executable, "-m", "tools.measure_house", "--save", str(path)], check=True)
    first, second = (json.loads(path.read_text()) for path in saved)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value == second[name] or abs(value - second[name]) <= A_FEW, name
    for kind in ("files", "functions"):
        assert 0 < first[f"first write of a schemata: {kind}"] <= first[f"first move of a task: {kind}"]
