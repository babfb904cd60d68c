# SPDX-License-Identifier: Apache-2.0
"""The names of our groups, and what a group's name tells about its owner.

::

    vmqos.<uuid>                 a VM's own control group; also a VM's monitoring group, in any control group
    vmqos.shared-<what it grants>  a class: the control group of several VMs, such as vmqos.shared-ways2-mb50
    vmqos.lock-<name>            a locked region
    vmqos.bench-<cache>-<mask>   the noisy-neighbour experiment, while it runs

The root of resctrl is the default group, whose name is empty. Every other name is another program's.
"""

from __future__ import annotations

import enum
import re
from typing import Any

from vmqos.extra_specs import CachePolicy, CacheRequest, resources

DEFAULT_GROUP = ""
"""The name of the default control group: the root of resctrl itself."""

PREFIX = "vmqos."
"""What the names of all our groups begin with."""

CLASS_PREFIX = f"{PREFIX}shared-"
LOCK_PREFIX = f"{PREFIX}lock-"
BENCH_PREFIX = f"{PREFIX}bench-"

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Owner(enum.Enum):
    """The owner of a control group."""

    DEFAULT = "default"
    VM = "vm"
    """``vmqos.<uuid>``: one VM's exclusive ways."""
    CLASS = "class"
    """``vmqos.shared-<what it grants>``: several VMs' cap."""
    FOREIGN = "foreign"
    """Another program's: its ways are taken, its files are never written."""


def vm_group(uuid: str) -> str:
    """The name of the control group of the VM with that UUID, and of its monitoring group."""
    return f"{PREFIX}{uuid}"


def vm_of(name: str) -> str | None:
    """The UUID of the VM whose control group or monitoring group has that name; ``None`` if no VM's group has."""
    if not name.startswith(PREFIX):
        return None
    uuid = name.removeprefix(PREFIX)
    return uuid if _UUID.fullmatch(uuid) else None


def class_group(grants: CacheRequest) -> str:
    """The name of the class that grants this to its VMs."""
    return CLASS_PREFIX + resources.class_name(grants)


def class_request(name: str) -> CacheRequest | None:
    """What the class of that name grants; ``None`` if this is no such class."""
    amounts = resources.class_parts(name.removeprefix(CLASS_PREFIX))
    if amounts is None:
        return None
    fields: dict[str, Any] = {**amounts, "policy": CachePolicy.SHARED}
    grants = CacheRequest(**fields)
    return grants if class_group(grants) == name else None


def is_class(name: str) -> bool:
    """Whether the control group of that name is a class, also one that only a later version of vmqos makes."""
    return name.startswith(CLASS_PREFIX)


def owner_of(name: str) -> Owner:
    """The owner of the control group of that name; only groups with names that vmqos gives are ours."""
    if name == DEFAULT_GROUP:
        return Owner.DEFAULT
    if is_class(name):
        return Owner.CLASS
    return Owner.VM if vm_of(name) is not None else Owner.FOREIGN
