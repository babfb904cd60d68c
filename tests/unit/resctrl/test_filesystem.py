# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.filesystem, on plain directories; what needs resctrl is in tests/functional/resctrl_client."""

import os

import pytest

from vmqos.resctrl import exceptions, filesystem
from vmqos.resctrl.filesystem import Filesystem


@pytest.fixture
def fs(tmp_path):
    return Filesystem(str(tmp_path))


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


def test_parts_of_a_path_are_joined_and_empty_ones_leave_no_trace():
    assert filesystem.join("", "tasks") == "tasks"
    assert filesystem.join("vmqos.x", "", "tasks") == "vmqos.x/tasks"
    assert Filesystem("/sys/fs/resctrl").path("") == "/sys/fs/resctrl"
    assert Filesystem("/sys/fs/resctrl").path("", "info/L3") == "/sys/fs/resctrl/info/L3"


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 300_000])
def test_a_file_of_any_size_is_read_whole(fs, tmp_path, size):
    content = os.urandom(size)
    (tmp_path / "tasks").write_bytes(content)
    assert fs.read_bytes("tasks") == content


def test_a_file_that_no_kernel_writes_is_not_kept_whole(fs, tmp_path, monkeypatch):
    monkeypatch.setattr(filesystem, "_LONGEST", 100_000)
    (tmp_path / "tasks").write_bytes(b"x" * 100_000)
    assert len(fs.read_bytes("tasks")) == 100_000
    (tmp_path / "tasks").write_bytes(b"x" * 100_001)
    with pytest.raises(exceptions.Unreadable, match="EFBIG"):
        fs.read_bytes("tasks")


def test_a_text_that_is_no_utf8_is_still_read(fs, tmp_path):
    (tmp_path / "mode").write_bytes(b"share\xffable\n")
    assert fs.read("mode") == "share\ufffdable\n"


@pytest.mark.parametrize(("text", "written"), [("shareable", b"shareable\n"), ("shareable\n", b"shareable\n")])
def test_a_command_ends_with_one_line_break(fs, tmp_path, text, written):
    (tmp_path / "mode").touch()
    fs.write("mode", text)
    assert (tmp_path / "mode").read_bytes() == written


@pytest.mark.parametrize(
    "use",
    [
        lambda fs: fs.read("gone"),
        lambda fs: fs.read_bytes("gone", "tasks"),
        lambda fs: fs.write("gone/tasks", "1"),
        lambda fs: fs.mkdir("gone/mon_groups/m"),
        lambda fs: fs.rmdir("gone"),
        lambda fs: fs.rename("gone", "there"),
        lambda fs: fs.listdir("gone"),
        lambda fs: fs.directories("gone"),
    ],
    ids=["read", "read_bytes", "write", "mkdir", "rmdir", "rename", "listdir", "directories"],
)
def test_what_is_not_there_has_vanished(fs, tmp_path, use):
    with pytest.raises(exceptions.Vanished, match=f"{tmp_path}/gone"):
        use(fs)


def test_a_directory_that_is_no_file_is_unreadable(fs, tmp_path):
    (tmp_path / "info").mkdir()
    with pytest.raises(exceptions.Unreadable, match="EISDIR"):
        fs.read("info")


def test_only_directories_are_listed_as_directories(fs, tmp_path):
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "tasks").touch()
    (tmp_path / "link").symlink_to("a")
    assert fs.directories() == [".hidden", "a", "b"]
    assert sorted(fs.listdir("")) == [".hidden", "a", "b", "link", "tasks"]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (None, ""),
        ("ok\n", ""),
        ("No task 7\nError while processing task 7\n", "No task 7\nError while processing task 7"),
    ],
)
def test_the_kernels_reason_is_told_without_its_last_line_break(fs, tmp_path, content, status):
    if content is not None:
        (tmp_path / "info").mkdir()
        (tmp_path / "info" / "last_cmd_status").write_text(content)
    assert fs.last_cmd_status() == status


def test_no_descriptor_stays_open(fs, tmp_path):
    (tmp_path / "tasks").write_text("1\n")
    before = descriptors()
    fs.read("tasks")
    fs.write("tasks", "1")
    fs.directories()
    with pytest.raises(exceptions.Vanished):
        fs.read("gone")
    with fs.lock(exclusive=True):
        pass
    with pytest.raises(exceptions.LockTimeout), fs.lock(exclusive=True), fs.lock(exclusive=False, timeout=0):
        pass
    assert descriptors() == before


def test_the_lock_of_a_root_that_is_gone_is_refused(tmp_path):
    with pytest.raises(exceptions.Vanished), Filesystem(str(tmp_path / "gone")).lock(exclusive=False):
        pass
