# SPDX-License-Identifier: Apache-2.0
"""The caches' directories look like sysfs's."""

from __future__ import annotations

from pathlib import Path

from vmqos.simulator import sysfs
from vmqos.simulator.hardware.profiles import PROFILES


def test_every_cpu_has_its_caches(tmp_path: Path) -> None:
    sysfs.write(str(tmp_path / "cpu"), PROFILES["cascade-lake"].topology.fitted([0, 1, 2, 5]))
    shown = {
        f"{path.parent.parent.parent.name}/{path.parent.name}/{path.name}": path.read_text()
        for path in (tmp_path / "cpu").glob("cpu*/cache/index*/*")
    }
    assert len(shown) == 4 * 2 * 6
    assert shown["cpu5/index3/id"] == "1\n"
    assert shown["cpu5/index3/shared_cpu_list"] == "2,5\n"
    assert shown["cpu0/index3/size"] == "16896K\n"
    assert shown["cpu0/index3/ways_of_associativity"] == "11\n"
    assert shown["cpu0/index2/level"] == "2\n"
    assert shown["cpu0/index2/type"] == "Unified\n"
