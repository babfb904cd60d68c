# SPDX-License-Identifier: Apache-2.0
"""What a VM still finds in ways that it left; with the model of the caches in tests/worth/size."""

from __future__ import annotations

import math

import pytest

from vmqos.cli.size.leaving import counts, is_gone

FITS = 1000.0


@pytest.mark.parametrize(
    ("left", "fits", "does"),
    [(0.0, FITS, True), (30.0, FITS, True), (31.0, FITS, False), (math.nan, FITS, True), (9e9, math.nan, True)],
)
def test_a_number_of_ways_counts_if_little_is_left_in_others_or_that_is_not_known(
    left: float, fits: float, does: bool
) -> None:
    assert counts(left, fits) is does


@pytest.mark.parametrize(
    ("left", "is_over"),
    [
        ([], False),
        ([30.0], True),
        ([5000.0] * 4, False),
        ([5000.0] * 5, True),
        ([5000.0, 4800.0, 4600.0, 4400.0, 4200.0], False),
        ([5000.0, 4980.0, 4960.0, 4940.0, 4901.0], True),
        ([5000.0, 2500.0, 30.0], True),
        ([math.nan] * 9, False),
    ],
    ids=["no look", "little", "too few", "it stays", "it goes", "it goes slowly", "it is gone", "not counted"],
)
def test_it_is_waited_while_what_a_vm_left_goes_and_no_longer(left: list[float], is_over: bool) -> None:
    assert is_gone(left, FITS) is is_over
