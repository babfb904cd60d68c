# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.insight.hosts import ALL, LIMIT, Did, history, host, step
from vmqos.insight import Cause, judge

USUAL = Did(cycles=1000, references=20, misses=1)
PAST = {
    "it misses more": (replace(USUAL, cycles=1500, misses=3), 0.0, Cause.CACHE),
    "it misses as before, and memory is full": (replace(USUAL, cycles=1500), LIMIT, Cause.BANDWIDTH),
    "it misses as before, and memory is idle": (replace(USUAL, cycles=1500), 0.0, Cause.NEITHER),
    "it does other work": (replace(USUAL, cycles=1500, references=30), 0.0, None),
    "it is hardly slower": (replace(USUAL, cycles=1100), 0.0, None),
}


@pytest.mark.parametrize("case", PAST)
def test_against_its_own_past_a_vm_suffers_or_not_if(case: str) -> None:
    after, moved, cause = PAST[case]
    told = history(40, vm=step(USUAL, after, 30), other=lambda _: Did(moved=moved))
    found = judge(host({"vm": ALL, "other": ALL}), told).vms["vm"].sufferings
    assert [one.cause for one in found] == ([] if cause is None else [cause])
    assert all(one.beside == "own past" and one.slower == pytest.approx(1.5) for one in found)


def test_a_vm_that_is_slower_than_others_of_its_flavor_suffers_without_any_past() -> None:
    slow = replace(USUAL, cycles=1600, misses=4)
    told = history(8, vm=lambda _: slow, **{f"other{n}": lambda _: USUAL for n in range(3)})
    (found,) = judge(host(dict.fromkeys(told, ALL)), told).vms["vm"].sufferings
    assert (found.beside, found.cause, found.slower) == ("flavor", Cause.CACHE, pytest.approx(1.6))


def test_others_of_the_flavor_that_do_other_work_are_no_measure() -> None:
    told = history(
        8, vm=lambda _: replace(USUAL, cycles=1600), one=lambda _: replace(USUAL, references=50), two=lambda _: USUAL
    )
    assert not judge(host(dict.fromkeys(told, ALL)), told).vms["vm"].sufferings


def test_without_a_pmu_nothing_is_said_of_how_fast_a_vm_is() -> None:
    told = history(40, False, vm=step(USUAL, replace(USUAL, cycles=1500, misses=3), 30))
    assert not judge(host({"vm": ALL}), told).vms["vm"].sufferings
