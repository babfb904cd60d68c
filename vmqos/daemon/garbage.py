# SPDX-License-Identifier: Apache-2.0
"""How often a daemon looks for garbage, and at what."""

from __future__ import annotations

import gc

COLLECT_AFTER = 5000
"""How many objects are made until the young ones are looked at for garbage. An answer about 200 VMs, and a scrape of
them, make some thousand that are not. Python's own is 700."""


def spare_what_is_there() -> None:
    """Have no collection of garbage go through what is there by now, and have fewer of them.

    A full one holds up every thread: the agent's that gives ways back, and the gateway's that answer.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
