# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with the configuration."""

from __future__ import annotations

from collections.abc import Iterable


class ConfigurationError(Exception):
    """An option has no value, or one that is not allowed; the message names file, section, option and value."""


class NotReadable(ConfigurationError):
    """A configuration file is there, and this user may not read it."""

    def __init__(self, files: Iterable[str]) -> None:
        names = ", ".join(files)
        super().__init__(f"this user may not read the configuration file: {names}; let the user read it, or use sudo")
