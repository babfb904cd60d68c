# SPDX-License-Identifier: Apache-2.0
"""What an operator can do, as a command.

A neighbour that fills the cache is capped, not its victim walled in: a cap costs one class for all who have it, and
those who stream lose nothing by it, while ways of its own for each victim are soon all given. Of the memory's
bandwidth, only a limit on the one who takes it helps.
"""

from __future__ import annotations

import shlex

from vmqos.insight.model import Cause

CAP_WAYS = 2
"""Ways for all who are capped together: the fewest that every cache can give."""
LIMIT = 30
"""Percent of the memory bandwidth: enough to go on with, and far from what fills a channel."""
NO_FLAVOR = "FLAVOR"


def against(cause: Cause, flavor: str) -> str:
    """What to do about a culprit of this flavor. A running VM gets it when it is resized to the flavor."""
    name = shlex.quote(flavor or NO_FLAVOR)
    if cause is Cause.BANDWIDTH:
        return f"vmqos flavor set {name} --bandwidth-percent {LIMIT}"
    return f"vmqos flavor set {name} --cache-ways {CAP_WAYS} --policy shared"


def for_more(flavor: str, ways: int, there: int) -> str:
    """What to do for a VM that starves; empty where it needs all the ways there are, which no VM can have for itself.

    :param ways: how many it needs at least.
    """
    return f"vmqos flavor set {shlex.quote(flavor or NO_FLAVOR)} --cache-ways {ways}" if ways < there else ""
