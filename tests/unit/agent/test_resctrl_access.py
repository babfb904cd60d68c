# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import grp
import logging
import stat
from pathlib import Path

import pytest

from vmqos.agent import resctrl_access
from vmqos.agent.resctrl_access import Closer, gid_of, may_read

MINE = grp.getgrgid(0).gr_name


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("before", "after"),
    [(0o555, 0o750), (0o755, 0o750), (0o751, 0o750), (0o700, 0o700), (0o550, 0o550)],
)
def test_only_what_is_open_to_others_is_closed(tmp_path: Path, before: int, after: int) -> None:
    tmp_path.chmod(before)
    Closer(str(tmp_path), grp.getgrgid(tmp_path.stat().st_gid).gr_name).close()
    assert mode(tmp_path) == after


@pytest.mark.parametrize("group", ["", "no-such-group"])
def test_without_a_group_the_permissions_are_left_alone(tmp_path: Path, group: str) -> None:
    tmp_path.chmod(0o755)
    Closer(str(tmp_path), group).close()
    assert mode(tmp_path) == 0o755


def test_it_is_closed_again_when_it_was_opened(tmp_path: Path) -> None:
    closer = Closer(str(tmp_path), grp.getgrgid(tmp_path.stat().st_gid).gr_name)
    for _ in range(2):
        tmp_path.chmod(0o555)
        closer.close()
        assert mode(tmp_path) == 0o750


def test_a_failure_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    closer = Closer(str(tmp_path / "gone"), MINE)
    with caplog.at_level(logging.WARNING):
        closer.close()
        closer.close()
    assert len(caplog.records) == 1 and "stays open to all users" in caplog.text


def test_whether_a_user_may_read_is_told_by_owner_group_and_mode(tmp_path: Path) -> None:
    assert may_read("no-such-user", str(tmp_path)) is None
    tmp_path.chmod(0o750)
    assert may_read("root", str(tmp_path)) is True
    assert may_read("nobody", str(tmp_path)) is False
    tmp_path.chmod(0o754)
    assert may_read("nobody", str(tmp_path)) is False, "without x nothing in it can be opened"
    tmp_path.chmod(0o755)
    assert may_read("nobody", str(tmp_path)) is True


def test_a_group_that_does_not_exist_has_no_number() -> None:
    assert gid_of(MINE) == 0
    assert gid_of("no-such-group") is None and gid_of("") is None
    assert resctrl_access.MODE == 0o750
