# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from tests.unit.eventually import eventually
from vmqos.daemon.log_queue import LogQueue
from vmqos.visible_text import make_visible

LONG = 30.0


class Writer(logging.Handler):
    """Writes lines into a list, once the journal takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.takes = threading.Event()
        self.begun = threading.Event()
        self.lines: list[str] = []
        self.threads: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.begun.set()
        assert self.takes.wait(LONG)
        self.threads.add(threading.current_thread().name)
        self.lines.append(self.format(record))


@pytest.fixture
def writer() -> Iterator[Writer]:
    made = Writer()
    yield made
    # Otherwise the interpreter would wait for it at its end.
    made.takes.set()


@pytest.fixture
def logger(writer: Writer) -> logging.Logger:
    made = logging.Logger("of the tests")
    made.addHandler(writer)
    make_visible(made)
    return made


@pytest.fixture
def queue(logger: logging.Logger, writer: Writer) -> Iterator[LogQueue]:
    made = LogQueue(most=3)
    made.attach(logger)
    yield made
    writer.takes.set()
    made.close(LONG)


def test_a_line_is_written_by_another_thread_as_it_would_be_without_the_queue(
    queue: LogQueue, logger: logging.Logger, writer: Writer
) -> None:
    writer.takes.set()
    named = ["a"]
    try:
        raise KeyError("a fault")
    except KeyError:
        logger.exception("%s\n%s", named, 2)
    queue.close(LONG)
    assert writer.threads == {"log"}
    first, *traceback = writer.lines[0].split("\n")
    assert first == "['a']\\n2"
    assert traceback[0] == "    Traceback (most recent call last):" and traceback[-1] == "    KeyError: 'a fault'"


def test_a_line_says_what_was_so_when_it_was_logged(queue: LogQueue, logger: logging.Logger, writer: Writer) -> None:
    named = ["a"]
    logger.info("%s", named)
    named.append("b")
    writer.takes.set()
    queue.close(LONG)
    assert writer.lines == ["['a']"]


def test_no_thread_waits_for_a_journal_that_hangs_and_what_was_lost_is_counted(
    queue: LogQueue, logger: logging.Logger, writer: Writer
) -> None:
    logger.info("0")
    assert writer.begun.wait(LONG)
    for number in range(1, 9):
        logger.info("%d", number)
    writer.takes.set()
    eventually(lambda: len(writer.lines) == 4)
    logger.info("9")
    queue.close(LONG)
    lost = "5 lines of the log were lost here: what takes them took none for a while"
    assert writer.lines == ["0", "1", "2", "3", lost, "9"]


def test_a_daemon_ends_although_the_journal_hangs(queue: LogQueue, logger: logging.Logger, writer: Writer) -> None:
    logger.info("0")
    assert writer.begun.wait(LONG)
    queue.close(0.01)
    logger.info("it waits for nothing then, either")
    assert writer.lines == [] and queue.is_stuck
    writer.takes.set()
    eventually(lambda: not queue.is_stuck)


def test_handlers_that_take_the_place_of_others_get_the_lines_from_then_on(
    queue: LogQueue, logger: logging.Logger, writer: Writer
) -> None:
    writer.takes.set()
    logger.info("0")
    eventually(lambda: writer.lines == ["0"])
    other = Writer()
    other.takes.set()
    other.setLevel(logging.WARNING)
    # As oslo.log does when the configuration is read again.
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    logger.addHandler(other)
    queue.attach(logger)
    queue.attach(logger)
    logger.info("too low for it")
    logger.warning("1")
    queue.close(LONG)
    logger.warning("2")
    assert (writer.lines, other.lines) == (["0"], ["1", "2"])
    assert other.threads == {"log", threading.current_thread().name}


def test_a_filter_that_fails_does_not_end_the_log(
    queue: LogQueue, logger: logging.Logger, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    writer.takes.set()

    def fails(record: logging.LogRecord) -> bool:
        writer.removeFilter(fails)
        raise RuntimeError("a fault of ours")

    writer.addFilter(fails)
    logger.info("0")
    logger.info("1")
    queue.close(LONG)
    assert writer.lines == ["1"]
