# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from vmqos import regular_file


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def test_of_a_file_no_more_is_read_than_wanted(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"a\r\n\xff" * 10_000)
    link.symlink_to(path)
    for one in (str(path), str(link)):
        assert regular_file.read(one, 1 << 20) == b"a\r\n\xff" * 10_000
        assert regular_file.read(one, 3) == b"a\r\n"


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, listen], ids=["FIFO", "directory", "socket"])
def test_what_is_no_file_is_neither_read_nor_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "it"
    make(path)
    with pytest.raises(OSError):
        regular_file.read(str(path), 1)
    with pytest.raises(OSError):
        regular_file.check_replaceable(str(path))


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero", "/dev/tty"])
def test_a_device_is_neither_read_nor_replaced(device: str) -> None:
    with pytest.raises(OSError):
        regular_file.read(device, 1)
    with pytest.raises(OSError, match="it is no regular file"):
        regular_file.check_replaceable(device)


def test_a_file_a_link_and_nothing_may_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(os.devnull)
    for name in ("file", "link", "nothing"):
        regular_file.check_replaceable(str(tmp_path / name))
