# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import io
import logging
import os

import pytest

from vmqos.daemon.log_queue import LogQueue
from vmqos.daemon.log_trouble import QUIET, TroubledHandler

FULL = os.strerror(errno.ENOSPC)


class Disk(io.StringIO):
    """A file on a disk that may be full."""

    name = "/var/log/vmqos.log"
    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, FULL)
        return super().write(text)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("tests", logging.WARNING, __file__, 1, text, arguments, None)


def test_a_full_disk_is_one_line_on_standard_error_however_many_lines_are_logged(
    capfd: pytest.CaptureFixture[str],
) -> None:
    logger, queue = logging.Logger("of the tests"), LogQueue()
    logger.addHandler(logging.FileHandler("/dev/full", delay=True))
    queue.attach(logger)
    for number in range(5):
        logger.warning("line %s", number)
    queue.close(30)
    assert capfd.readouterr().err == f"the log can't be written to /dev/full: {FULL}; lines are lost until it can\n"


def test_a_log_that_is_written_again_is_told_and_so_is_the_next_trouble_after_a_while(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk, clock = Disk(), Clock()
    handler = TroubledHandler(logging.StreamHandler(disk), clock)

    def told(*, is_full: bool, seconds: float = 1.0) -> str:
        disk.is_full, clock.now = is_full, clock.now + seconds
        handler.write(record("a line"))
        return capsys.readouterr().err

    lost = f"the log can't be written to {disk.name}: {FULL}; lines are lost until it can\n"
    again = f"the log is written to {disk.name} again\n"
    assert told(is_full=False) == ""
    assert [told(is_full=True) for _ in range(3)] == [lost, "", ""]
    assert [told(is_full=False) for _ in range(2)] == [again, ""]
    # A disk that takes one line and not the next is not told of at each of them.
    assert [told(is_full=full) for full in (True, False, True, False)] == [""] * 4
    assert told(is_full=True, seconds=QUIET) == lost


def test_an_error_of_the_programs_own_is_told_as_python_does(capsys: pytest.CaptureFixture[str]) -> None:
    TroubledHandler(logging.StreamHandler(Disk())).write(record("%d", "no number"))
    assert "--- Logging error ---" in capsys.readouterr().err
