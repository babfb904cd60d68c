# SPDX-License-Identifier: Apache-2.0
"""Cache pseudo-locking: memory that the kernel loads into ways which no task may fill from then on.

A control group goes into the mode ``pseudo-locksetup``; the mask of one cache that is then written to its schemata is
locked, its mode becomes ``pseudo-locked``, and the memory can be mapped through a device of the group's name (the
kernel's ``Documentation/filesystems/resctrl.rst``, "Cache Pseudo-Locking").
"""

from __future__ import annotations

import os
import re
import stat

from vmqos.resctrl import cpuinfo, groups, schemata
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem

SETUP = "pseudo-locksetup"
"""The mode of a group that waits for the mask to be locked: it has no masks, but a CLOSID."""
LOCKED = "pseudo-locked"
"""The mode of a group with a locked region: it has neither tasks nor a CLOSID."""
MODES = frozenset({SETUP, LOCKED})
"""The modes of groups whose tasks can't be read."""

MOST_BYTES = 4 << 20
"""The largest region: one piece of memory from kzalloc(), so KMALLOC_MAX_SIZE (``pseudo_lock_region_alloc``)."""

DEVICES = "/dev/pseudo_lock"

_PROCESSORS = {
    0x4F: "Broadwell-EP and -EX (L3; Xeon E5 v4, E7 v4)",
    0x5C: "Goldmont (L2; Atom x5-E39xx, Pentium N4200)",
    0x7A: "Goldmont Plus (L2; Pentium J5005, N5000)",
}
"""Models of Intel's family 6 whose prefetchers the kernel can switch off (``get_prefetch_disable_bits``)."""

_FIELD = re.compile(r"^(vendor_id|cpu family|model|model name)\s*: *(.*)$", re.MULTILINE)


def why_processor_cannot(proc: str = "/proc") -> str:
    """Why the kernel can lock nothing on this processor; empty where it can.

    :param proc: where procfs is mounted.
    """
    try:
        first = cpuinfo.first_cpu(proc).decode(errors="replace")
    except OSError as error:
        first, unknown = "", f"unknown ({error.strerror})"
    else:
        unknown = "unknown"
    fields = dict(_FIELD.findall(first))
    name = fields.get("model name") or unknown
    model = fields.get("model", "")
    known = fields.get("vendor_id") == "GenuineIntel" and fields.get("cpu family") == "6"
    if known and model.isascii() and model.isdecimal() and int(model) in _PROCESSORS:
        return ""
    return f"the kernel can switch off the prefetchers of {'; '.join(_PROCESSORS.values())} alone; this one is {name}"


def prepare(fs: Filesystem, name: str) -> None:
    """Make a control group whose next mask is locked.

    :raises vmqos.resctrl.exceptions.GroupExists: if the name is taken.
    :raises vmqos.resctrl.exceptions.NoClosidLeft: if every CLOSID is taken: a group needs one until it is locked.
    :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses; there is no such group then.
    """
    groups.create(fs, name)
    try:
        groups.set_mode(fs, name, SETUP)
    except BaseException:
        groups.remove(fs, name)
        raise


def lock(fs: Filesystem, name: str, resource: str, cache_id: int, mask: CapacityBitmask) -> None:
    """Lock these ways of one cache; no other group may have any of them.

    The whole cache is written back and invalidated (WBINVD) on the way, for everybody.

    :raises vmqos.resctrl.exceptions.MasksOverlap: if another group has one of the ways, or devices fill it.
    :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses for any other reason; the group then stays as
        it was.
    """
    groups.write_values(fs, name, resource, {cache_id: mask})


def read_sizes(fs: Filesystem, name: str) -> dict[str, dict[int, int]]:
    """The bytes of a group's masks, by resource and cache id.

    :raises vmqos.resctrl.exceptions.Vanished: if there is no such group.
    :raises vmqos.resctrl.exceptions.InvalidSchemata: if the file can't be understood.
    """
    found = schemata.parse(fs.read(name, "size"))
    return {resource: schemata.numbers_of(found, resource) for resource in found}


def device(name: str) -> str:
    """The path of the device of a group's region; it is there once the region is locked, but for a simulated one's."""
    return f"{DEVICES}/{name}"


def is_device(path: str) -> bool:
    """Whether the path is a device's."""
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False
