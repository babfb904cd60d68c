# SPDX-License-Identifier: Apache-2.0
"""What of a stranger's text reaches the log; of a terminal, see tests/unit/cli/show/test_safe_text.py."""

from __future__ import annotations

import io
import json
import logging

import pytest
from oslo_config import cfg
from oslo_log import log
from oslo_log.formatters import ContextFormatter, JSONFormatter

from vmqos.visible_text import make_visible

HOSTILE = "\x1b]0;owned\x07\r\n2026-11-22 00:00:00 ERROR all is lost\x85\u202e\udcff"
HARMLESS = r"\x1b]0;owned\x07\r\n2026-11-22 00:00:00 ERROR all is lost\x85\u202e\udcff"

CONF = cfg.ConfigOpts()
log.register_options(CONF)


@pytest.fixture
def logger() -> logging.Logger:
    found = logging.Logger("hostile")
    for _ in range(2):
        handler = logging.StreamHandler(io.StringIO())
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        found.addHandler(handler)
    make_visible(found)
    make_visible(found)
    return found


def written(logger: logging.Logger) -> list[str]:
    texts = [handler.stream.getvalue() for handler in logger.handlers if isinstance(handler, logging.StreamHandler)]
    assert texts[0] == texts[1]
    return str(texts[0]).split("\n")[:-1]


def test_a_record_is_one_line_of_visible_characters(logger: logging.Logger) -> None:
    logger.warning("process %d (%s)", 7, HOSTILE)
    assert written(logger) == [f"WARNING process 7 ({HARMLESS})"]


def test_a_text_without_arguments_may_hold_percent_signs(logger: logging.Logger) -> None:
    logger.warning(f"100 %s {HOSTILE}")
    assert written(logger) == [f"WARNING 100 %s {HARMLESS}"]


def test_the_lines_of_a_traceback_are_indented_and_visible(logger: logging.Logger) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("it failed: %s", "\x1b")
    first, *others = written(logger)
    assert first == r"ERROR it failed: \x1b"
    assert all(line.startswith("    ") for line in others)
    assert others[-1] == r"    2026-11-22 00:00:00 ERROR all is lost\x85\u202e\udcff"
    assert any(line.endswith(r"ValueError: \x1b]0;owned\x07\r") for line in others)
    assert "".join(others).isprintable()


def test_an_error_that_is_being_handled_is_not_told_twice(logger: logging.Logger) -> None:
    for handler in logger.handlers:
        handler.setFormatter(ContextFormatter(fmt="%(levelname)s %(message)s", config=CONF))
    make_visible(logger)
    try:
        raise OSError("the disk is full")
    except OSError as error:
        logger.error("can't write: %s", error)
    (line,) = written(logger)
    assert line.endswith(" ERROR hostile [-] can't write: the disk is full")


def test_a_log_in_json_keeps_its_level(logger: logging.Logger) -> None:
    for handler in logger.handlers:
        handler.setFormatter(JSONFormatter())
    make_visible(logger)
    logger.error("lost")
    (line,) = written(logger)
    told = json.loads(line)
    assert (told["levelno"], told["levelname"], told["message"]) == (logging.ERROR, "ERROR", "lost")


def test_an_error_itself_may_be_the_message(logger: logging.Logger) -> None:
    logger.error(ValueError(HOSTILE))
    assert written(logger) == [f"ERROR {HARMLESS}"]


def test_a_record_whose_arguments_do_not_fit_is_still_written(logger: logging.Logger) -> None:
    logger.error("%d", "\x1b")
    (line,) = written(logger)
    assert line.isprintable() and "%d" in line
