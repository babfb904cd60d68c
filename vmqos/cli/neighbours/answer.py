# SPDX-License-Identifier: Apache-2.0
"""Verdicts that are made here, as the agent's API would tell them."""

from __future__ import annotations

from typing import cast

from vmqos.insight import Insight, plain
from vmqos.local_api import contract


def of(
    found: Insight, *, time: float, interval: float, samples: int, counted: bool, traffic_counted: bool
) -> contract.Neighbours:
    """The answer to ``GET /v1/neighbours``.

    :param time: of the newest sample, in seconds since 1970.
    :param interval: seconds from one sample to the next.
    :param samples: how many there are of the VM that has most.
    :param counted: whether there are hardware events, and ``traffic_counted`` whether there is traffic with memory.
    """
    basis = {"counted": counted, "traffic_counted": traffic_counted}
    told = {"time": time, "interval": interval, "samples": samples, **basis, **plain(found)}
    return cast(contract.Neighbours, told)
