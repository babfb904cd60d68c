# SPDX-License-Identifier: Apache-2.0
"""Who gets which ways: values in, a :class:`Plan` out. No file, no clock, no log."""

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
    Step,
    Verdict,
    WhenFull,
    WriteMasks,
)
from vmqos.allocation.names import class_group, class_ways, owner_of, vm_group
from vmqos.allocation.planner import plan, whatif

__all__ = [
    "DEFAULT_GROUP",
    "CreateGroup",
    "FreeRoom",
    "Group",
    "Layout",
    "Owner",
    "Plan",
    "Policy",
    "PromiseState",
    "RemoveGroup",
    "Request",
    "SetExclusive",
    "Step",
    "Verdict",
    "WhenFull",
    "WriteMasks",
    "class_group",
    "class_ways",
    "free_ways",
    "owner_of",
    "plan",
    "vm_group",
    "whatif",
]
