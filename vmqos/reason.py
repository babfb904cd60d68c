# SPDX-License-Identifier: Apache-2.0
"""Why a VM does not have all that its flavor asks for: a code for metrics and alerts, and a text for people.

A reason is made where it arises. Neither of its parts is ever computed from the other, so a text may be reworded.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace


class Code(enum.StrEnum):
    """Every code, the weightiest first: of a reason with several parts the weightiest part's code counts.

    The codes are labels of metrics. Alerts and dashboards know them: a code is added or retired in a release note.
    """

    NO_RESCTRL = "no-resctrl"
    """resctrl is not mounted, can't be written, or the kernel has none."""
    AGENT_FAULT = "agent-fault"
    """The agent met an error of its own."""
    NOT_READABLE = "not-readable"
    """The VM's threads can't be listed now."""
    FLAVOR_UNKNOWN = "flavor-unknown"
    """Nova has not told the flavor's extra specs yet."""
    NO_L3 = "no-l3"
    """resctrl can't partition this host's L3 caches."""
    CDP = "cdp"
    """resctrl is not mounted with cdp."""
    NO_L2 = "no-l2"
    """resctrl can't partition this host's L2 caches."""
    NOT_PINNED = "not-pinned"
    """L2 ways are asked for, and the VM's vCPUs are not pinned to cores."""
    NO_CACHE = "no-cache"
    """No cache that the VM can run on is online."""
    NO_BANDWIDTH = "no-bandwidth"
    """resctrl can't throttle this host's memory bandwidth."""
    BANDWIDTH_UNIT = "bandwidth-unit"
    """Bandwidth is asked for in a unit that this host does not know."""
    WAITS_FOR_CLOSID = "waits-for-closid"
    """A CLOSID is just being freed for the VM."""
    NO_CLOSID = "no-closid"
    """No CLOSID is left."""
    NO_SAFE_ORDER = "no-safe-order"
    """The ways are free, and masks can't be moved to make room without an overlap on the way."""
    IO_WAYS = "io-ways"
    """I/O devices fill ways of the VM."""
    OVERLAPPED = "overlapped"
    """Another group has ways of the VM."""
    CHANGED_OUTSIDE = "changed-outside"
    """Another program changed or removed the VM's group."""
    POOL_TOO_SMALL = "pool-too-small"
    """The pool is smaller than what the class may fill."""
    NO_WAYS = "no-ways"
    """Too few ways are free in one piece."""
    MORE_THAN_ALL = "more-than-all"
    """More ways are asked for than the cache has."""
    CACHETUNE = "cachetune"
    """libvirt placed the VM by cachetune or memorytune."""
    NO_VCPU = "no-vcpu"
    """The flavor names vCPUs that the VM does not have."""
    BAD_FLAVOR = "bad-flavor"
    """The flavor's extra specs are wrong."""
    BAD_METADATA = "bad-metadata"
    """Nova's metadata in the domain XML can't be read."""
    NO_EXTRA_SPECS = "no-extra-specs"
    """Nova wrote no extra specs into the domain XML, and its API is not asked."""
    UNREADABLE = "unreadable"
    """libvirt or /proc says something of the VM that can't be read."""
    FOREIGN_TASKS = "foreign-tasks"
    """Tasks of the VM are in a group that another program made."""
    REFUSED = "refused"
    """The kernel refused a write to resctrl."""
    TASKS_MISSING = "tasks-missing"
    """Not all tasks of the VM are in place yet."""
    RESERVED_WAYS = "reserved-ways"
    """The VM has ways that the operator reserved since."""
    PARTS_OVERLAP = "parts-overlap"
    """Code and data share ways, for the mask is too small for both."""
    TRIAL = "trial"
    """A trial limits the VM's memory bandwidth, or gives it more ways or some of its own; its promise is kept."""
    ROUNDED_UP = "rounded-up"
    """The VM gets more than it asks for, because the hardware knows steps."""
    OTHER = "other"
    """None of these."""


_WEIGHTS = {code: number for number, code in enumerate(Code)}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, or several that are told as one.

    :ivar code: the code; ``None`` where there is no reason.
    :ivar text: what is so, and what would help; empty where there is no reason.
    :ivar also: the codes of the others where several are told as one.
    """

    code: Code | None = None
    text: str = ""
    also: frozenset[Code] = field(default=frozenset(), compare=False, repr=False)

    def __bool__(self) -> bool:
        return self.code is not None

    def __str__(self) -> str:
        return self.text

    @property
    def label(self) -> str:
        """The code as a label of a metric; empty where there is no reason."""
        return self.code.value if self.code is not None else ""

    def has(self, code: Code) -> bool:
        """Whether this reason, or one of several, has that code."""
        return code is self.code or code in self.also

    def told_as(self, text: str) -> Reason:
        """The reason with a text that says more."""
        return replace(self, text=text)


NO_REASON = Reason()


def of_error(error: Exception) -> Reason:
    """What an exception says; its class knows the code, or else it is :attr:`Code.OTHER`."""
    code = getattr(error, "code", None)
    return Reason(code if isinstance(code, Code) else Code.OTHER, str(error))


def joined(*reasons: Reason) -> Reason:
    """One reason for several: all texts, each once, and the weightiest code."""
    there = dict.fromkeys(filter(None, reasons))
    codes = [reason.code for reason in there if reason.code is not None]
    if not codes:
        return NO_REASON
    weightiest = min(codes, key=_WEIGHTS.__getitem__)
    also = frozenset(codes).union(*(reason.also for reason in there)) - {weightiest}
    return Reason(weightiest, "; ".join(reason.text for reason in there), also)
