# SPDX-License-Identifier: Apache-2.0
"""Having the log follow the options of oslo.log."""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from oslo_config import cfg
from oslo_log import log

_BAD_VALUE = re.compile(r"Value for option (\w+) from LocationInfo\(.*?detail='(.*?)'\) is not valid: (.*)", re.DOTALL)
"""What oslo.config says of a bad value; the error itself carries none of its parts."""


class LogRefused(Exception):
    """There can be no log as the options of oslo.log have it; the message names the option where that is known."""


def set_up(conf: cfg.ConfigOpts) -> None:
    """Have the root logger's handlers be those that the configuration asks for.

    :raises LogRefused: if they can't be had; the handlers from before stay then.
    """
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        with _no_wait_for_a_fifo(conf):
            log.setup(conf, "vmqos")
    except (OSError, RuntimeError, TypeError, ValueError, log.LogConfigError) as error:
        # oslo.log takes away what was there before it makes what comes.
        root.handlers[:] = before
        raise LogRefused(_explain(error)) from error


@contextmanager
def _no_wait_for_a_fifo(conf: cfg.ConfigOpts) -> Iterator[None]:
    """Make sure that oslo.log opens no FIFO for which it would wait until another program opens the other end.

    :raises LogRefused: if the configuration of the log is a FIFO.
    :raises OSError: if the log is one, and no program reads it.
    """
    named = conf.log_config_append
    if named and _is_fifo(named):
        raise LogRefused(f"there can be no log as {named} has it ([DEFAULT] log_config_append): it is a FIFO")
    path = os.path.join(conf.log_dir or "", conf.log_file or "")
    if named or not conf.log_file or not _is_fifo(path):
        yield
        return
    try:
        opened = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.ENXIO, "it is a FIFO, and no program reads it", path) from error
    # Closed before oslo.log has it open, too, its reader would take that for the end.
    try:
        yield
    finally:
        os.close(opened)


def _is_fifo(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        # oslo.log says what is wrong.
        return False


def _explain(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"can't write the log to {error.filename} ([DEFAULT] log_file, log_dir): {error.strerror}"
    if found := _BAD_VALUE.match(str(error)):
        return f"{found[2]}: [DEFAULT] {found[1]}: {found[3]}"
    return f"there can be no log as the options of oslo.log in [DEFAULT] have it: {error}"
