# SPDX-License-Identifier: Apache-2.0
"""``info/L3/io_alloc`` and ``io_alloc_cbm``: which ways of the L3 devices fill (the kernel's ``ctrlmondata.c``).

AMD's SDCIAE confines devices to the ways of the highest class, which no group can have then. umount does not switch it
off and gives the class back all the same: after the next mount a group may have it, too.
"""

from __future__ import annotations

import errno

from vmqos.simulator.files import groups, schemata
from vmqos.simulator.files.state import Group, Mounted
from vmqos.simulator.hardware.resources import Schema
from vmqos.simulator.kernel.numbers import refusal
from vmqos.simulator.kernel.tree import Caller, File

_ROOT = Caller()
_TRUE, _FALSE = ("e", "y", "t", "1", "on"), ("d", "n", "f", "0", "of")


def files(mounted: Mounted, schema: Schema) -> list[File]:
    """The files of a cache whose devices can be confined; none where that can't be, or the kernel does not know how."""
    cache = schema.resource.cache
    if cache is None or not cache.io_alloc or not mounted.kernel.has_io_alloc:
        return []
    return [
        File(
            "io_alloc",
            0o644,
            _ROOT,
            lambda: "enabled\n" if schema.resource.io_alloc else "disabled\n",
            lambda data, caller: _switch(mounted, schema, _boolean(data.partition("\0")[0])),
        ),
        File(
            "io_alloc_cbm",
            0o644,
            _ROOT,
            lambda: _show(mounted, schema),
            lambda data, caller: _store(mounted, schema, data),
        ),
    ]


def closid_of(schema: Schema) -> int:
    """The class that devices have: the highest of the resource (``resctrl_io_alloc_closid``)."""
    return schema.num_closids - 1


def _boolean(text: str) -> bool:
    """``kstrtobool``: the first letter decides, that of ``enable`` too; of ``on`` and ``off`` the second one."""
    word = text.lower()
    if word.startswith(_TRUE):
        return True
    if word.startswith(_FALSE):
        return False
    raise refusal(errno.EINVAL)


def _switch(mounted: Mounted, schema: Schema, enable: bool) -> None:
    """``resctrl_io_alloc_write``."""
    mounted.status.clear()
    resource, closid = schema.resource, closid_of(schema)
    if resource.io_alloc is enable:
        return
    if closid >= mounted.closids:
        mounted.status.printf(f"io_alloc CLOSID (ctrl_hw_id) {closid} is not available\n")
        raise refusal(errno.EINVAL)
    if enable:
        owner = mounted.take_this_closid(closid)
        if owner is not None:
            name = owner.directory.name or "default"
            mounted.status.printf(f"CLOSID (ctrl_hw_id) {closid} for io_alloc is used by {name} group\n")
            raise refusal(errno.ENOSPC)
        resource.clear_staged()
        try:
            for domain in resource.domains:
                domain.staged[schema.use] = groups.initial_mask(mounted, schema, domain, closid)
        except OSError:
            resource.clear_staged()
            mounted.status.puts("Failed to initialize io_alloc allocations\n")
            mounted.free_closid(closid)
            raise
        _apply(mounted, schema, closid)
    else:
        mounted.free_closid(closid)
    resource.set_io_alloc(enable)


def _show(mounted: Mounted, schema: Schema) -> str:
    """``resctrl_io_alloc_cbm_show``."""
    mounted.status.clear()
    _check_enabled(mounted, schema)
    return f"{schemata.show_values(mounted, schema, closid_of(schema))}\n"


def _store(mounted: Mounted, schema: Schema, data: str) -> None:
    """``resctrl_io_alloc_cbm_write``."""
    if not data.endswith("\n"):
        raise refusal(errno.EINVAL)
    mounted.status.clear()
    _check_enabled(mounted, schema)
    schema.resource.clear_staged()
    # Masks are judged as those of a shareable group of that class.
    devices = Group(mounted.root, closid_of(schema))
    try:
        schemata.parse_values(mounted, devices, schema, data[:-1].partition("\0")[0], "Invalid domain {}\n")
        _apply(mounted, schema, devices.closid)
    finally:
        schema.resource.clear_staged()


def _apply(mounted: Mounted, schema: Schema, closid: int) -> None:
    """Put what is staged in force, under CDP for code and for data alike."""
    if mounted.cdp_enabled(schema.resource):
        for domain in schema.resource.domains:
            if schema.use in domain.staged:
                domain.staged[schema.use.peer] = domain.staged[schema.use]
    schema.resource.apply_staged(closid)
    schema.resource.clear_staged()


def _check_enabled(mounted: Mounted, schema: Schema) -> None:
    if not schema.resource.io_alloc:
        mounted.status.printf(f"io_alloc is not enabled on {schema.name}\n")
        raise refusal(errno.EINVAL)
