# SPDX-License-Identifier: Apache-2.0
"""Who gets which ways: values in, a :class:`Plan` out. No file, no clock, no log."""

from vmqos.allocation import caches
from vmqos.allocation.closids import Closids, divide_closids
from vmqos.allocation.free_room import FreeRoom, free_ways
from vmqos.allocation.model import (
    DEFAULT_GROUP,
    CreateGroup,
    Group,
    Layout,
    Owner,
    Plan,
    Policy,
    PromiseState,
    RemoveGroup,
    Request,
    SetExclusive,
    Split,
    Step,
    Verdict,
    WhenFull,
    WriteMasks,
    WriteThrottles,
)
from vmqos.allocation.planner import plan, whatif
from vmqos.allocation.throttle import grant
from vmqos.group_names import Grant, class_grant, class_group, owner_of, vm_group

__all__ = [
    "DEFAULT_GROUP",
    "Closids",
    "CreateGroup",
    "FreeRoom",
    "Grant",
    "Group",
    "Layout",
    "Owner",
    "Plan",
    "Policy",
    "PromiseState",
    "RemoveGroup",
    "Request",
    "SetExclusive",
    "Split",
    "Step",
    "Verdict",
    "WhenFull",
    "WriteMasks",
    "WriteThrottles",
    "caches",
    "class_grant",
    "class_group",
    "divide_closids",
    "free_ways",
    "grant",
    "owner_of",
    "plan",
    "vm_group",
    "whatif",
]
