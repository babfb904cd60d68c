# SPDX-License-Identifier: Apache-2.0
"""Which worker of pytest-xdist runs what: tests of one guest belong together, all others go where there is room.

The guest that takes longest goes first, and what needs none goes last, so that no worker rests long. Only pytest-xdist
itself has this imported: not every environment has it.
"""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling

from tests.kernel.lab.needed_guest import group_of


class GuestScheduling(LoadGroupScheduling):  # type: ignore[misc]  # pytest-xdist ships no types
    """``--dist loadgroup``, with a group for each machine and kernel, and for each module that boots one guest."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid) or super()._split_scope(nodeid)
