# SPDX-License-Identifier: Apache-2.0
"""What of a stranger's text may reach a terminal.

The user who starts a VM chooses its name. That name could move the cursor, hide a line, or retitle the window of the
operator who lists the VM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def squeeze(text: str, width: int, ellipsis: str) -> str:
    """The text cut to at most ``width`` terminal columns, its middle replaced by ``ellipsis`` where it was longer.

    This is for names: those of one kind often begin alike, and what tells two VMs of one name apart stands at the end.
    """
    if cell_len(text) <= width:
        return text
    room = width - cell_len(ellipsis)
    if room < 2:
        return shorten(text, width, ellipsis)
    tail = ""
    for character in reversed(text):
        if cell_len(character + tail) > room // 2:
            break
        tail = character + tail
    return shorten(text, width - cell_len(tail), ellipsis) + tail


def pad(text: str, width: int) -> str:
    """The text, filled with blanks to ``width`` terminal columns."""
    return text + " " * (width - cell_len(text))


def display_name(vm: Mapping[str, Any]) -> str:
    """What to call a VM: Nova's instance name, else libvirt's."""
    return neutralise(vm["instance_name"] or vm["name"])


def distinct_names(vms: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """A name for each VM by UUID; a name that several VMs bear carries as much of the UUID as tells them apart."""
    names = {vm["uuid"]: display_name(vm) for vm in vms}
    bearers: dict[str, list[str]] = {}
    for uuid, name in names.items():
        bearers.setdefault(name, []).append(uuid)
    return {
        uuid: name if len(bearers[name]) == 1 else f"{name} ({neutralise(_beginning(uuid, bearers[name]))})"
        for uuid, name in names.items()
    }


def _beginning(uuid: str, others: Sequence[str]) -> str:
    """As much of a UUID as none of the others begins with, to the end of one of its parts."""
    parts = uuid.split("-")
    for count in range(1, len(parts)):
        beginning = "-".join(parts[:count])
        if sum(other.startswith(beginning) for other in others) == 1:
            return beginning
    return uuid
