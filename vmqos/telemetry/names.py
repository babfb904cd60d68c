# SPDX-License-Identifier: Apache-2.0
"""Whose a group is, by its name alone: the reader's half of :mod:`vmqos.group_names`."""

from __future__ import annotations

import re

_PREFIX = "vmqos."
_CLASS = f"{_PREFIX}shared-"
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def vm_of(name: str) -> str | None:
    """The UUID of the VM that the group of that name belongs to; ``None`` if it is no VM's."""
    if name.startswith(_PREFIX):
        uuid = name[len(_PREFIX) :]
        if _UUID.fullmatch(uuid):
            return uuid
    return None


def is_class(name: str) -> bool:
    """Whether the control group of that name is one that several VMs share."""
    return name.startswith(_CLASS)


def has_cap(name: str) -> bool:
    """Whether the class of that name grants L3 ways, and not memory bandwidth alone."""
    return name.startswith((f"{_CLASS}ways", f"{_CLASS}code"))


def is_ours(name: str) -> bool:
    """Whether the control group of that name is a VM's or a class, and no foreign one."""
    return is_class(name) or vm_of(name) is not None
