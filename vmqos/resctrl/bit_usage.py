# SPDX-License-Identifier: Apache-2.0
"""Reading ``info/L3/bit_usage``: the ways that are pseudo-locked, also those of groups that are gone.

A pseudo-locked region outlives its group if a process has ``/dev/pseudo_lock/NAME`` open when the group is removed: its
last user would free it (``rdtgroup_kn_put``), but closing the device does not look (``pseudo_lock_dev_release``, up to
Linux 7.2 at least). The kernel refuses every mask that meets it, as it did before
(``rdtgroup_cbm_overlaps_pseudo_locked``).
"""

from __future__ import annotations

from vmqos.resctrl import exceptions
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem

_PSEUDO_LOCKED = "P"
"""``rdt_bit_usage_show`` in the kernel writes one letter a way, that of the highest way first."""


def read_pseudo_locked(fs: Filesystem, resource: str = "L3") -> dict[int, CapacityBitmask]:
    """The pseudo-locked ways by cache id; caches without any are left out.

    Nothing where the resource can't be partitioned, or the kernel (before 4.19) does not say.

    :raises vmqos.resctrl.exceptions.UnexpectedContent: if the file can't be understood.
    """
    path = f"info/{resource}/bit_usage"
    try:
        text = fs.read(path).strip()
    except exceptions.Vanished:
        return {}
    try:
        return parse_pseudo_locked(text)
    except ValueError as error:
        raise exceptions.UnexpectedContent(path=fs.path(path), text=text, expected="use of ways") from error


def parse_pseudo_locked(text: str) -> dict[int, CapacityBitmask]:
    """Read such as ``0=SSSSSSSSSPP;1=SSSSSSSSSSS``.

    :raises ValueError: if it is none such.
    """
    found = {}
    for entry in filter(None, text.split(";")):
        cache, equals, letters = entry.strip().partition("=")
        if not equals:
            raise ValueError(entry)
        bits = int("".join("01"[letter == _PSEUDO_LOCKED] for letter in letters) or "0", 2)
        if bits:
            found[int(cache)] = CapacityBitmask(bits)
    return found
