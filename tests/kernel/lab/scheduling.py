# SPDX-License-Identifier: Apache-2.0
"""Which worker of pytest-xdist runs what: tests of one guest belong together, all others go where there is room."""

from __future__ import annotations

import re

from xdist.scheduler import LoadGroupScheduling

from tests.kernel.lab.machines import KERNELS, MACHINES

_GUEST = re.compile(rf"\[((?:{'|'.join(map(re.escape, MACHINES))})-(?:{'|'.join(map(re.escape, KERNELS))}))[-\]@]")


class GuestScheduling(LoadGroupScheduling):  # type: ignore[misc]  # pytest-xdist ships no types
    """``--dist loadgroup``, with a group for each machine and kernel."""

    def _split_scope(self, nodeid: str) -> str:
        guest = _GUEST.search(nodeid)
        return guest[1] if guest else super()._split_scope(nodeid)
