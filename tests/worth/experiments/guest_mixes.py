# SPDX-License-Identifier: Apache-2.0
"""Who slows whom, in a guest: generated mixes of real VMs, as the agent counts them and as insight judges that.

The native library runs the same mixes afterwards, outside (:mod:`tests.worth.neighbours.beside`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tests.worth.inside import tell
from tests.worth.neighbours import beside, campaign, carried
from tests.worth.neighbours.in_guest import host_apart, outcome, started
from tests.worth.neighbours.mixes import Mix
from tests.worth.node import Node

MIXES = 40
QUIET_EACH = 4
"""Of so many mixes, one is quiet."""
SECONDS = 2100.0
"""After which no other mix is begun; the next run goes on with those that are missing."""


def wanted(number: int = MIXES) -> Iterator[tuple[str, Mix]]:
    """The mixes, by key: kind and seed. No law was tuned to these seeds."""
    planted, quiet = (carried.drawn(kind, campaign.TEST_SEEDS) for kind in ("planted", "quiet"))
    for turn in range(number):
        kind, of = ("quiet", quiet) if turn % QUIET_EACH == QUIET_EACH - 1 else ("planted", planted)
        seed, mix = next(of)
        yield f"{kind} {seed}", mix


def run(node: Node) -> dict[str, Any]:
    """What came of each mix so far, by key; it is printed after each, so that a run that is cut short leaves it."""
    until = time.monotonic() + SECONDS
    found = beside.kept()
    with host_apart():
        for key, mix in wanted():
            if key in found or time.monotonic() > until:
                continue
            print(f"mix {len(found) + 1} of {MIXES}: {key}", flush=True)
            with started(node, mix) as vms:
                found[key] = outcome(vms)
            tell({"guest_mixes": found})
    return found
