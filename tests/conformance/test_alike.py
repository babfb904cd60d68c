# SPDX-License-Identifier: Apache-2.0
"""The net under the cases: whatever they did, both targets gave the same answer, asked for or not."""

from __future__ import annotations

import pytest

from tests.conformance.comparison import Recordings, cases_of
from tests.conformance.machines import PAIRS
from tests.kernel.lab.pair import Pair

SHOWN = 20
"""Cases that are shown in full."""


@pytest.mark.parametrize(
    "pair", [pytest.param(pair, id=str(pair), marks=pytest.mark.xdist_group(pair.group)) for pair in PAIRS]
)
def test_the_simulator_and_the_kernel_answered_every_operation_alike(
    pair: Pair, recordings: Recordings, request: pytest.FixtureRequest
) -> None:
    cases = cases_of(pair, request.session.items)
    assert cases, f"nothing to compare: no case of {pair} was asked for"
    found = list(recordings.differences(pair, cases))
    assert not found, "\n\n".join([f"{len(found)} of {len(cases)} cases differ", *found[:SHOWN]])
