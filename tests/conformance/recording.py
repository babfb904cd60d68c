# SPDX-License-Identifier: Apache-2.0
"""The record of what a case did and what it was answered, in a form that two targets can be compared by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

COUNTERS = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")
_SOMEBODY = "<somebody>"
_A_NUMBER = "<a number>"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    :ivar op: such as ``write``.
    :ivar path: below the mount point.
    :ivar data: what was written, the new name, the mount options.
    :ivar errno: the name of the error, ``None`` if it succeeded.
    :ivar status: ``info/last_cmd_status`` after it, ``None`` if it was not read.
    :ivar content: what was read.
    """

    op: str
    path: str
    data: str
    errno: str | None
    status: str | None
    content: Any = None

    def __str__(self) -> str:
        return f"{self.op} {self.path!r} {self.data!r}"

    @property
    def answer(self) -> str:
        """What it was answered, for people."""
        return f"errno {self.errno}, last_cmd_status {self.status!r}, content {self.content!r}"

    def as_json(self) -> dict[str, Any]:
        """A mapping that :meth:`from_json` turns back."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Operation:
        """The opposite of :meth:`as_json`."""
        return Operation(**values)


class Names:
    """Names for the tasks of a case, whose ids are other ones each time."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def add(self, tid: int, name: str) -> None:
        """Call a task by a name."""
        self._names[tid] = f"<{name}>"

    def tids(self) -> frozenset[int]:
        """The tasks that have a name."""
        return frozenset(self._names)

    def in_text(self, text: str) -> str:
        """``text`` with a name in place of each known id, however it is written."""
        return _NUMBER.sub(lambda match: self._name(match[0]), text)

    def _name(self, number: str) -> str:
        if number[:2] in ("0x", "0X"):
            return self._names.get(int(number, 16), number)
        octal = number.startswith("0") and set(number) <= set("01234567")
        return self._names.get(int(number, 8 if octal else 10), number)

    def of_list(self, text: str, default_group: bool) -> list[str]:
        """The content of a ``tasks`` file; of the default group's, only who has a name."""
        found = [self._names.get(int(word), _SOMEBODY) for word in text.split()]
        return sorted(name for name in found if name != _SOMEBODY or not default_group)


def comparable(names: Names, path: str, content: Any) -> Any:
    """What was read from a file, without what is another thing each time."""
    file = path.rpartition("/")[2]
    if file == "tasks" and isinstance(content, str):
        return names.of_list(content, default_group=path == "tasks")
    # Which RMID is free next depends on what was done before, and how long ago.
    volatile = file in COUNTERS or (file == "mon_hw_id" and content != "0\n")
    if volatile and isinstance(content, str) and content.strip().isdigit():
        return _A_NUMBER
    return content


def differences(simulator: list[Operation], kernel: list[Operation]) -> list[str]:
    """In what two recordings of one case differ, for people; an empty list if in nothing."""
    found = []
    for number, (ours, theirs) in enumerate(zip(simulator, kernel, strict=False), 1):
        if ours == theirs:
            continue
        if (ours.op, ours.path, ours.data) != (theirs.op, theirs.path, theirs.data):
            found.append(f"operation {number}: the simulator was asked {ours}\n  the kernel {theirs}")
            # From here on each was asked something else.
            return found
        found.append(f"operation {number}: {ours}\n  simulator: {ours.answer}\n  kernel:    {theirs.answer}")
    if len(simulator) != len(kernel):
        found.append(f"{len(simulator)} operations on the simulator, {len(kernel)} on the kernel")
    return found
