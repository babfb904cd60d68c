# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from vmqos.host import describe
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities, Monitoring
from vmqos.resctrl.filesystem import Filesystem

L3 = CacheResource("L3", 16, CapacityBitmask(0x7FF), 1, CapacityBitmask(0x600), False, (0, 1))


def test_capabilities_are_told_as_they_were_read() -> None:
    told = describe.offered(Capabilities({"L3": L3}, {}, Monitoring(32, ("llc_occupancy",), 65536)))
    assert told["num_closids"] == 16 and told["caches"]["L3"]["cache_ids"] == [0, 1]
    assert told["monitoring"]["events"] == ["llc_occupancy"] and told["bandwidths"] == {}
    assert describe.offered(Capabilities())["monitoring"] is None


def test_the_lock_is_free_while_tasks_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for directory in ("", "group", "group/mon_groups/inside"):
        (tmp_path / directory).mkdir(parents=True, exist_ok=True)
        for name, text in (("mode", "shareable"), ("schemata", "L3:0=f"), ("tasks", "1\n2\n"), ("cpus_list", "")):
            (tmp_path / directory / name).write_text(text)
    read, read_of = describe.tasks.read_tasks, list[str]()

    def read_tasks(filesystem: Filesystem, directory: str) -> set[int]:
        with Filesystem(str(tmp_path)).lock(exclusive=True, timeout=0):
            read_of.append(directory)
        return read(filesystem, directory)

    monkeypatch.setattr(describe.tasks, "read_tasks", read_tasks)
    default, group = describe.control_groups(Filesystem(str(tmp_path)), 1.0)
    assert sorted(read_of) == ["", "group", "group/mon_groups/inside"]
    assert (default["tasks"], group["tasks"], group["monitoring_groups"][0]["tasks"]) == (2, 2, 2)
