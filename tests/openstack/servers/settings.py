# SPDX-License-Identifier: Apache-2.0
"""Configuration files of oslo.config."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

Settings = Mapping[str, Mapping[str, object]]
"""Values by section and option."""


def write(path: Path, *settings: Settings) -> Path:
    """Write a configuration file; what comes later goes over what came before."""
    # oslo.config substitutes $NAME.
    parser = configparser.ConfigParser(interpolation=None)
    for part in settings:
        for section, options in part.items():
            if section != parser.default_section and not parser.has_section(section):
                parser.add_section(section)
            for option, value in options.items():
                parser[section][option] = str(value).replace("$", "$$")
    with path.open("w") as file:
        parser.write(file)
    return path
