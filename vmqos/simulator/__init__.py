# SPDX-License-Identifier: Apache-2.0
"""An RDT machine in user space: resctrl as a FUSE filesystem with the kernel's rules, on any Linux host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vmqos.simulator.hardware.profiles import PROFILES, Profile
from vmqos.simulator.record import Record

if TYPE_CHECKING:
    from vmqos.simulator.service import serve

__all__ = ["PROFILES", "Profile", "Record", "serve"]


def __getattr__(name: str) -> Any:
    # libfuse is loaded when the simulator is served, not when the profiles are listed.
    if name == "serve":
        from vmqos.simulator.service import serve

        return serve
    raise AttributeError(name)
