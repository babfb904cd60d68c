# SPDX-License-Identifier: Apache-2.0
"""Configuration files of oslo.config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

Settings = Mapping[str, Mapping[str, object]]
"""Values by section and option; a tuple is an option that is given several times."""


def write(path: Path, *settings: Settings) -> Path:
    """Write a configuration file; what comes later goes over what came before."""
    merged: dict[str, dict[str, object]] = {}
    for part in settings:
        for section, options in part.items():
            merged.setdefault(section, {}).update(options)
    lines = []
    for section, options in merged.items():
        lines.append(f"[{section}]")
        for option, value in options.items():
            for each in value if isinstance(value, tuple) else (value,):
                # oslo.config substitutes $NAME.
                lines.append(f"{option} = {str(each).replace('$', '$$')}")
    path.write_text("\n".join([*lines, ""]))
    return path
