# SPDX-License-Identifier: Apache-2.0
"""What a judge of trouble can say."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """What can be wrong."""

    OVERLAP = "overlap"
    """A promise that was in force was broken by a write of the agent's, or a VM was moved to ways that are not its
    own."""
    LEAK = "leak"
    """A group is left that no VM needs."""
    UNSERVED = "unserved"
    """A VM has not what it could have, a second after all was quiet."""
    WORD = "wrong word"
    """The API tells something that is not so."""
    FAULT = "fault"
    """The agent met an error of its own."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


LASTING = {
    *("no-l3", "cdp", "no-l2", "not-pinned", "no-cache", "no-bandwidth", "bandwidth-unit", "no-closid", "io-ways"),
    *("overlapped", "pool-too-small", "no-ways", "more-than-all", "cachetune", "no-vcpu", "bad-flavor", "rounded-up"),
    *("foreign-tasks", "reserved-ways", "parts-overlap", "no-safe-order"),
}
"""The codes of reasons that may last although all is quiet: what the VM asks for can't be had here and now."""
