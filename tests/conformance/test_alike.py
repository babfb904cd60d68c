# SPDX-License-Identifier: Apache-2.0
"""The net under the cases: whatever they did, both targets gave the same answer, asked for or not."""

from __future__ import annotations

import pytest

from tests.conformance.comparison import Recordings
from tests.conformance.items import group
from tests.conformance.machines import PAIRS, Pair

SHOWN = 20
"""Cases that are shown in full."""


@pytest.mark.parametrize(
    "pair", [pytest.param(pair, id=str(pair), marks=pytest.mark.xdist_group(group(pair))) for pair in PAIRS]
)
def test_the_simulator_and_the_kernel_answered_every_operation_alike(pair: Pair, recordings: Recordings) -> None:
    assert recordings.compared(pair), (
        f"nothing to compare: no case of {pair} ran on both the simulator and the kernel before this one"
    )
    found = list(recordings.differences(pair))
    assert not found, "\n\n".join([f"{len(found)} cases differ", *found[:SHOWN]])
