# SPDX-License-Identifier: Apache-2.0
"""Who gets which ways: values in, a :class:`Plan` out. No file, no clock, no log."""

from vmqos.allocation import caches
from vmqos.allocation.model import (
    Allocation,
    CreateGroup,
    Group,
    Layout,
    Plan,
    Policy,
    PromiseState,
    RemoveGroup,
    Request,
    SetExclusive,
    Split,
    Step,
    WhenFull,
    WriteMasks,
    WriteThrottles,
)
from vmqos.allocation.planner import plan, whatif
from vmqos.allocation.rights.closids import Closids, divide_closids
from vmqos.allocation.rights.free_room import FreeRoom, free_ways

__all__ = [
    "Allocation",
    "Closids",
    "CreateGroup",
    "FreeRoom",
    "Group",
    "Layout",
    "Plan",
    "Policy",
    "PromiseState",
    "RemoveGroup",
    "Request",
    "SetExclusive",
    "Split",
    "Step",
    "WhenFull",
    "WriteMasks",
    "WriteThrottles",
    "caches",
    "divide_closids",
    "free_ways",
    "plan",
    "whatif",
]
