# SPDX-License-Identifier: Apache-2.0
"""How our groups are called, and whose a group is by its name.

::

    vmqos.<uuid>                 a VM's own control group; also the name of a VM's monitoring group, wherever it is
    vmqos.shared-<what it grants>  a class: the control group of several VMs, such as vmqos.shared-ways2-mb50
    vmqos.lock-<name>            a locked region
    vmqos.bench-<cache>-<mask>   the noisy-neighbour experiment, while it runs

The root of resctrl is the default group, whose name is empty. Every other name is another program's.
"""

from __future__ import annotations

import enum
import re

from vmqos.extra_specs import CachePolicy, CacheRequest

DEFAULT_GROUP = ""
"""The name of the default control group: the root of resctrl itself."""

PREFIX = "vmqos."
"""What the names of all our groups begin with."""

CLASS_PREFIX = f"{PREFIX}shared-"
LOCK_PREFIX = f"{PREFIX}lock-"
BENCH_PREFIX = f"{PREFIX}bench-"

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_FIELDS = {
    "ways": "ways",
    "code": "code_ways",
    "data": "data_ways",
    "l2ways": "l2_ways",
    "mb": "bandwidth_percent",
    "mbps": "bandwidth_mbps",
}
"""The words of a class's name, in their order, and the fields of a request that they stand for."""
_PART = re.compile(rf"({'|'.join(_FIELDS)})([1-9][0-9]*)")


class Owner(enum.Enum):
    """Whose a control group is."""

    DEFAULT = "default"
    VM = "vm"
    """``vmqos.<uuid>``: one VM's exclusive ways."""
    CLASS = "class"
    """``vmqos.shared-<what it grants>``: several VMs' cap."""
    FOREIGN = "foreign"
    """Another program's: its ways are taken, its files are never written."""


def vm_group(uuid: str) -> str:
    """The control group of the VM with that UUID; also the name of a VM's monitoring group."""
    return f"{PREFIX}{uuid}"


def vm_of(name: str) -> str | None:
    """The UUID of the VM whose own group, or monitoring group, has that name; ``None`` if it is no VM's."""
    if not name.startswith(PREFIX):
        return None
    uuid = name.removeprefix(PREFIX)
    return uuid if _UUID.fullmatch(uuid) else None


def class_group(grants: CacheRequest) -> str:
    """The control group of the VMs that share what is granted."""
    parts = ((word, getattr(grants, field)) for word, field in _FIELDS.items())
    return CLASS_PREFIX + "-".join(f"{word}{number}" for word, number in parts if number)


def class_request(name: str) -> CacheRequest | None:
    """What the class of that name grants; ``None`` if this is no such class."""
    parts = [_PART.fullmatch(part) for part in name.removeprefix(CLASS_PREFIX).split("-")]
    found = {_FIELDS[part[1]]: int(part[2]) for part in parts if part}
    if not found:
        return None
    grants = CacheRequest(policy=CachePolicy.SHARED, **found)
    return grants if class_group(grants) == name else None


def is_class(name: str) -> bool:
    """Whether the control group of that name is a class, one of a later version included."""
    return name.startswith(CLASS_PREFIX)


def owner_of(name: str) -> Owner:
    """Whose the control group of that name is; only names that we give are ours."""
    if name == DEFAULT_GROUP:
        return Owner.DEFAULT
    if is_class(name):
        return Owner.CLASS
    return Owner.VM if vm_of(name) is not None else Owner.FOREIGN
