# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import grp
import logging
import os
import stat
from pathlib import Path

import pytest

from vmqos.host import resctrl_access
from vmqos.host.resctrl_access import Closer, gid_of, may_read
from vmqos.resctrl.mount import Mount

MINE = grp.getgrgid(0).gr_name


@pytest.fixture
def resctrl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is taken for a mounted resctrl; ``tests/functional/agent/test_strangers.py`` has a real one."""
    found = Mount(str(tmp_path), frozenset(), read_only=False, simulated=True)
    monkeypatch.setattr(resctrl_access.mount, "find", lambda path, writable: found)
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("before", "after"),
    [(0o555, 0o750), (0o755, 0o750), (0o751, 0o750), (0o700, 0o700), (0o550, 0o550)],
)
def test_only_what_is_open_to_others_is_closed(resctrl: Path, before: int, after: int) -> None:
    resctrl.chmod(before)
    Closer(str(resctrl), grp.getgrgid(resctrl.stat().st_gid).gr_name).close()
    assert mode(resctrl) == after


@pytest.mark.parametrize("group", ["", "no-such-group"])
def test_without_a_group_the_permissions_are_left_alone(resctrl: Path, group: str) -> None:
    resctrl.chmod(0o755)
    Closer(str(resctrl), group).close()
    assert mode(resctrl) == 0o755


@pytest.mark.parametrize(("may_write", "after"), [(True, 0o555), (False, 0o755)])
def test_without_a_group_the_owner_gets_the_right_to_write_where_it_is_needed(
    resctrl: Path, monkeypatch: pytest.MonkeyPatch, may_write: bool, after: int
) -> None:
    # Whether root has CAP_DAC_OVERRIDE; tests/packages tries it without.
    monkeypatch.setattr(resctrl_access.os, "access", lambda path, mode: may_write)
    resctrl.chmod(0o555)
    Closer(str(resctrl), "").close()
    assert mode(resctrl) == after


def test_it_is_closed_again_when_it_was_opened(resctrl: Path) -> None:
    closer = Closer(str(resctrl), grp.getgrgid(resctrl.stat().st_gid).gr_name)
    for _ in range(2):
        resctrl.chmod(0o555)
        closer.close()
        assert mode(resctrl) == 0o750


def test_a_directory_that_is_no_resctrl_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o755)
    Closer(str(tmp_path), MINE).close()
    assert mode(tmp_path) == 0o755 and not caplog.records


@pytest.mark.parametrize("group", [MINE, ""])
def test_of_a_root_that_is_not_there_the_pass_tells(
    tmp_path: Path, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    Closer(str(tmp_path / "gone"), group).close()
    assert not caplog.records


def test_a_failure_is_told_once(
    resctrl: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str, mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    resctrl.chmod(0o755)
    monkeypatch.setattr(resctrl_access.os, "chmod", refuse)
    closer = Closer(str(resctrl), MINE)
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
