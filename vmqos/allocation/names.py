# SPDX-License-Identifier: Apache-2.0
"""The names of control groups: what ours are called, and whose a group is by its name."""

from __future__ import annotations

import re

from vmqos.allocation.model import DEFAULT_GROUP, Owner

_PREFIX = "vmqos."
_SHARED = "shared-"
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CLASS_WAYS = re.compile(r"ways([1-9][0-9]*)")


def vm_group(uuid: str) -> str:
    """The control group of the VM with that UUID; also the name of a VM's monitoring group."""
    return f"{_PREFIX}{uuid}"


def class_group(ways: int) -> str:
    """The control group of the VMs that share a cap of that many L3 ways, 1 or more."""
    return f"{_PREFIX}{_SHARED}ways{ways}"


def class_ways(name: str) -> int | None:
    """How many L3 ways the class of that name grants; ``None`` if this is no such class."""
    found = _CLASS_WAYS.fullmatch(name.removeprefix(_PREFIX + _SHARED))
    return int(found[1]) if found and name.startswith(_PREFIX + _SHARED) else None


def owner_of(name: str) -> Owner:
    """Whose the control group of that name is; only names that we give are ours."""
    if name == DEFAULT_GROUP:
        return Owner.DEFAULT
    if not name.startswith(_PREFIX):
        return Owner.FOREIGN
    rest = name.removeprefix(_PREFIX)
    if rest.startswith(_SHARED):
        return Owner.CLASS
    return Owner.VM if _UUID.fullmatch(rest) else Owner.FOREIGN
