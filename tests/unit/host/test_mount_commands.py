# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from vmqos.host.mount_commands import UNIT, is_mounted_in_a_service, mount_again, mount_with

OURS, ANOTHER = "mnt:[4026531841]", "mnt:[4026532200]"
RESCTRL = "105 76 0:45 / /sys/fs/resctrl rw,relatime shared:46 - resctrl resctrl rw"
OTHER = "76 72 0:22 / /sys ro,nosuid shared:9 master:4 - sysfs sysfs rw"


@pytest.fixture
def units(tmp_path: Path) -> tuple[str, str]:
    """A directory without our unit, and one with it."""
    (tmp_path / "with").mkdir()
    (tmp_path / "with" / UNIT).touch()
    return str(tmp_path / "without"), str(tmp_path / "with")


def test_where_our_unit_mounts_it_the_options_are_made_to_last(units: tuple[str, str]) -> None:
    line = mount_with("/sys/fs/resctrl", {"mba_MBps", "cdp"}, units)
    assert r"printf '[Mount]\nOptions=cdp,mba_MBps\n' > /etc/systemd/system/sys-fs-resctrl.mount.d/options.conf" in line
    assert line.endswith("; systemctl start vmqos-agent; }"), "the agent comes back whatever the mount did"
    assert r"Options=defaults\n" in mount_with("/sys/fs/resctrl", (), units)


@pytest.mark.parametrize(("path", "with_unit"), [("/sys/fs/resctrl", False), ("/mnt/it's", True)])
def test_elsewhere_it_is_unmounted_however_busy_it_is(units: tuple[str, str], path: str, with_unit: bool) -> None:
    line = mount_with(path, {"cdp"}, units if with_unit else units[:1])
    assert line.startswith("umount -l ") and "systemctl" not in line


@pytest.mark.parametrize("line", [mount_with("/mnt/it's", {"cdp"}, ()), mount_again("/mnt/a b"), mount_with("/m", ())])
def test_each_line_is_one_for_a_shell(line: str) -> None:
    subprocess.run(["sh", "-n", "-c", line], check=True)


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ({"1": (OURS, RESCTRL)}, False),
        ({"1": (OURS, OTHER), "305": (ANOTHER, f"{OTHER}\n{RESCTRL}")}, True),
        ({"305": (ANOTHER, OTHER), "306": (ANOTHER, OTHER)}, False),
        ({"305": (ANOTHER, OTHER.replace("/sys", "/mnt/resctrl"))}, False),
    ],
)
def test_a_mount_that_a_service_has_to_itself_is_found(
    tmp_path: Path, processes: dict[str, tuple[str, str]], expected: bool
) -> None:
    for pid, (namespace, mounts) in {"self": (OURS, ""), **processes}.items():
        (tmp_path / pid / "ns").mkdir(parents=True)
        os.symlink(namespace, tmp_path / pid / "ns" / "mnt")
        (tmp_path / pid / "mountinfo").write_text(f"{mounts}\n")
    (tmp_path / "4711").mkdir()
    assert is_mounted_in_a_service(str(tmp_path)) == expected
