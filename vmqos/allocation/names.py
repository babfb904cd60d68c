# SPDX-License-Identifier: Apache-2.0
"""The names of control groups: what ours are called, and whose a group is by its name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vmqos.allocation.model import DEFAULT_GROUP, Owner

_PREFIX = "vmqos."
_SHARED = "shared-"
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_WORDS = {"ways": "ways", "code": "code", "data": "data", "l2ways": "l2", "mb": "percent", "mbps": "mbps"}
_PART = re.compile(rf"({'|'.join(_WORDS)})([1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a class grants, which is what it is called by: at least one of these.

    :ivar ways: a cap of that many L3 ways; 0 for all that the default group has.
    :ivar code: a cap of that many L3 ways for code, instead of ``ways``, with CDP.
    :ivar data: the same for data.
    :ivar l2: a cap of that many L2 ways; 0 for all that the default group has.
    :ivar percent: per cent of the memory bandwidth; 0 for no such limit.
    :ivar mbps: memory bandwidth in MB/s; 0 for no such limit.
    """

    ways: int = 0
    code: int = 0
    data: int = 0
    l2: int = 0
    percent: int = 0
    mbps: int = 0

    @property
    def cap(self) -> int:
        """How many L3 ways there are together; 0 for all that the default group has."""
        return self.ways or self.code + self.data


def vm_group(uuid: str) -> str:
    """The control group of the VM with that UUID; also the name of a VM's monitoring group."""
    return f"{_PREFIX}{uuid}"


def class_group(grant: Grant) -> str:
    """The control group of the VMs that share what is granted, such as ``vmqos.shared-ways2-mb50``."""
    parts = ((word, getattr(grant, field)) for word, field in _WORDS.items())
    return f"{_PREFIX}{_SHARED}" + "-".join(f"{word}{number}" for word, number in parts if number)


def class_grant(name: str) -> Grant | None:
    """What the class of that name grants; ``None`` if this is no such class."""
    parts = [_PART.fullmatch(part) for part in name.removeprefix(_PREFIX + _SHARED).split("-")]
    grant = Grant(**{_WORDS[part[1]]: int(part[2]) for part in parts if part})
    return grant if class_group(grant) == name and grant != Grant() else None


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
