# SPDX-License-Identifier: Apache-2.0
"""Having the log follow the options of oslo.log."""

from __future__ import annotations

import logging
import re

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
        log.setup(conf, "vmqos")
    except (OSError, RuntimeError, TypeError, ValueError, log.LogConfigError) as error:
        # oslo.log takes away what was there before it makes what comes.
        root.handlers[:] = before
        raise LogRefused(_explain(error)) from error


def _explain(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"can't write the log to {error.filename} ([DEFAULT] log_file, log_dir): {error.strerror}"
    if found := _BAD_VALUE.match(str(error)):
        return f"{found[2]}: [DEFAULT] {found[1]}: {found[3]}"
    return f"there can be no log as the options of oslo.log in [DEFAULT] have it: {error}"
