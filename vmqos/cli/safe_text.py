# SPDX-License-Identifier: Apache-2.0
"""What of a stranger's text may reach a terminal.

Whoever starts a VM chooses its name, and could choose one that moves the cursor, hides a line or retitles the window of
the operator who lists it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.cells import cell_len

from vmqos.visible_text import neutralise

__all__ = ["display_name", "distinct_names", "neutralise", "pad", "shorten"]


def shorten(text: str, width: int, ellipsis: str) -> str:
    """The text cut to at most ``width`` terminal columns, its end replaced by ``ellipsis`` where it was longer.

    A character may be two columns wide (East Asian wide, emoji) or none (combining marks).
    """
    if cell_len(text) <= width:
        return text
    room, kept = max(width - cell_len(ellipsis), 0), ""
    for character in text:
        if cell_len(kept + character) > room:
            break
        kept += character
    return (kept + ellipsis) if cell_len(kept + ellipsis) <= width else ellipsis[:width]


def pad(text: str, width: int) -> str:
    """The text, filled with blanks to ``width`` terminal columns."""
    return text + " " * (width - cell_len(text))


def display_name(vm: Mapping[str, Any]) -> str:
    """What to call a VM: Nova's instance name, else libvirt's."""
    return neutralise(vm["instance_name"] or vm["name"])


def distinct_names(vms: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """A name for each VM by UUID; names that several VMs bear carry the beginning of the UUID."""
    names = {vm["uuid"]: display_name(vm) for vm in vms}
    taken = list(names.values())
    return {uuid: name if taken.count(name) == 1 else f"{name} ({uuid[:8]})" for uuid, name in names.items()}
