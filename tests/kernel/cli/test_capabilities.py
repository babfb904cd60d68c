# SPDX-License-Identifier: Apache-2.0
"""``vmqos capabilities`` on the kernel's own resctrl tells what pqos tells."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.guest(pairs=("cascade-lake-newest", "broadwell-6.12", "sapphire-rapids-6.12", "milan-6.12")),
    pytest.mark.feature("capabilities"),
]


def capabilities() -> Any:
    command = [sys.executable, "-m", "vmqos.cli.main", "capabilities", "-f", "json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def pqos(*arguments: str) -> str:
    """What pqos says over the kernel's interface."""
    return subprocess.run(["pqos", "--iface=os", *arguments], capture_output=True, text=True, check=True).stdout


def number(text: str, name: str) -> int:
    """The first number of that name."""
    found = re.search(rf"{name}: (?:0x)?([0-9a-f]+)", text)
    assert found, text
    return int(found[1], 16 if f"{name}: 0x" in text else 10)


@pytest.mark.parametrize("options", ["debug", "cdp"])
def test_what_pqos_displays_and_shows_is_told(mount_resctrl: Callable[..., Path], options: str) -> None:
    root = mount_resctrl(options)
    # Whatever it is asked, pqos makes all groups that there can be, by these names.
    (root / "COS1").mkdir()
    (root / "COS1/cpus_list").write_text("1\n")
    displayed, shown, told = pqos("-D"), pqos("-s"), capabilities()
    assert told["mount_options"] == [options]
    name = "L3" if options == "debug" else "L3DATA"
    l3 = told["caches"][name]
    assert told["num_closids"] == number(displayed, "Num COS")
    # pqos divides by the cache's own ways, of which the emulated processor has more than its masks have bits.
    assert l3["way_bytes"] == l3["size_bytes"] // int(l3["cbm_mask"], 16).bit_count()
    assert int(l3["shareable_bits"], 16) == number(displayed, "Ways contention bit-mask")
    assert l3["cdp"] == {"debug": "off", "cdp": "on"}[options]
    assert f"CDP: {'enabled' if options == 'cdp' else 'disabled'}" in displayed
    for field, title in (("sets", "Num sets"), ("line_bytes", "Line size"), ("size_bytes", "Total size")):
        assert l3[field] == number(displayed[displayed.index("L3 Cache") :], title)
    default, other = told["groups"][:2]
    if options == "debug":
        assert (default["closid"], other["closid"]) == (0, 1)
        assert default["rmid"] == 0
        assert all(f"L3CA COS0 => MASK 0x{mask}" in shown for mask in default["schemata"]["L3"].values())
    assert (other["name"], other["cpus"]) == ("COS1", "1")
    assert re.search(r"Core 1, .*=> COS1", shown)
