# SPDX-License-Identifier: Apache-2.0
"""Files and directories behave as kernfs's do."""

from __future__ import annotations

import errno

import pytest

from vmqos.simulator.kernel.tree import PAGE_SIZE, Caller, Directory, File, find

ROOT = Caller()


def _file(name: str = "f", permissions: int = 0o644, **more: bool) -> File:
    return File(name, permissions, ROOT, lambda: "content\n", lambda data, caller: None, **more)


def test_a_directory_lists_in_the_order_of_the_kernels_hash() -> None:
    names = ["cpus", "cpus_list", "mode", "mon_data", "mon_groups", "schemata", "size", "tasks"]
    directory = Directory("g", 0o755, ROOT)
    for name in names:
        directory.add(_file(name))
    recorded = ["cpus_list", "mode", "schemata", "mon_data", "tasks", "size", "mon_groups", "cpus"]
    assert [node.name for node in directory] == recorded


def test_a_directory_has_a_link_for_each_directory_in_it() -> None:
    directory = Directory("g", 0o755, ROOT)
    directory.add(_file())
    directory.add(Directory("d", 0o755, ROOT))
    assert directory.links == 3


def test_everything_below_a_removed_directory_is_gone() -> None:
    root, group, file = Directory("", 0o755, ROOT), Directory("g", 0o755, ROOT), _file()
    group.add(file)
    root.add(group)
    root.remove("g")
    with pytest.raises(OSError) as refused:
        file.read()
    assert refused.value.errno == errno.ENODEV
    with pytest.raises(OSError) as refused:
        file.write(b"1", ROOT)
    assert refused.value.errno == errno.ENODEV


@pytest.mark.parametrize(("path", "code"), [("nowhere", errno.ENOENT), ("f/x", errno.ENOTDIR)])
def test_a_path_that_leads_nowhere_is_refused(path: str, code: int) -> None:
    root = Directory("", 0o755, ROOT)
    root.add(_file())
    with pytest.raises(OSError) as refused:
        find(root, path)
    assert refused.value.errno == code


def test_a_write_of_more_than_a_page_is_too_big() -> None:
    assert _file().write(b"x" * PAGE_SIZE, ROOT) == PAGE_SIZE
    with pytest.raises(OSError) as refused:
        _file().write(b"x" * (PAGE_SIZE + 1), ROOT)
    assert refused.value.errno == errno.E2BIG


def test_a_file_without_a_handler_takes_no_write() -> None:
    with pytest.raises(OSError) as refused:
        File("f", 0o644, ROOT, lambda: "").write(b"x", ROOT)
    assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    ("permissions", "writable", "reading", "writing"),
    [(0o444, True, False, True), (0o000, True, True, False), (0o644, False, False, True)],
)
def test_even_root_may_not_open_what_the_mode_denies(
    permissions: int, writable: bool, reading: bool, writing: bool
) -> None:
    with pytest.raises(OSError) as refused:
        _file(permissions=permissions, writable=writable).check_open(reading, writing)
    assert refused.value.errno == errno.EACCES


def test_a_name_that_is_taken_stays_taken() -> None:
    root, other = Directory("", 0o755, ROOT), Directory("o", 0o755, ROOT)
    root.add(_file("a"))
    other.add(_file("a"))
    node = root.get("a")
    assert node is not None
    with pytest.raises(OSError) as refused:
        root.move(node, other, "a")
    assert refused.value.errno == errno.EEXIST
    root.move(node, other, "b")
    assert other.get("b") is node and root.get("a") is None
