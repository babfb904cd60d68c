# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from vmqos.agent.mount_commands import UNIT, mount_with


@pytest.fixture
def units(tmp_path: Path) -> tuple[str, str]:
    """A directory without our unit, and one with it."""
    (tmp_path / "with").mkdir()
    (tmp_path / "with" / UNIT).touch()
    return str(tmp_path / "without"), str(tmp_path / "with")


def test_where_our_unit_mounts_it_the_options_are_made_to_last(units: tuple[str, str]) -> None:
    line = mount_with("/sys/fs/resctrl", {"mba_MBps", "cdp"}, units)
    assert r"printf '[Mount]\nOptions=cdp,mba_MBps\n' > /etc/systemd/system/sys-fs-resctrl.mount.d/options.conf" in line
    # The agent comes back whatever the mount did.
    assert line.endswith("systemctl restart sys-fs-resctrl.mount; systemctl start vmqos-agent")
    assert r"Options=defaults\n" in mount_with("/sys/fs/resctrl", (), units)


@pytest.mark.parametrize(("path", "with_unit"), [("/sys/fs/resctrl", False), ("/mnt/it's", True)])
def test_elsewhere_it_is_unmounted_however_busy_it_is(units: tuple[str, str], path: str, with_unit: bool) -> None:
    line = mount_with(path, {"cdp"}, units if with_unit else units[:1])
    assert line.startswith("umount -l ") and "systemctl" not in line
