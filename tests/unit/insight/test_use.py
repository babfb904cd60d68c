# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.insight.hosts import ALL, MIB, Did, history, host, step
from vmqos.insight import Use, judge

FITS = Did(held=4 * MIB, moved=1e7, misses=0.2)
STREAM = Did(held=30 * MIB, moved=8e9, misses=19)
STARVES = Did(held=30 * MIB, moved=3e9, misses=8)

CASES = {
    "it misses seldom": (lambda _: FITS, True, Use.FITS),
    "it misses nearly always": (lambda _: STREAM, True, Use.FILLS_WITHOUT_GAIN),
    "its ways are full and it misses often": (lambda _: STARVES, True, Use.STARVES),
    "it misses often with ways free": (lambda _: replace(STARVES, held=8 * MIB), True, Use.UNKNOWN),
    "it missed as much when it held less": (
        step(replace(STARVES, held=10 * MIB), STARVES, 20),
        True,
        Use.FILLS_WITHOUT_GAIN,
    ),
    "it missed more when it held less": (
        step(replace(STARVES, held=10 * MIB, misses=16), STARVES, 20),
        True,
        Use.STARVES,
    ),
    "it fetches next to nothing": (lambda _: FITS, False, Use.FITS),
    "it fetches much, with no PMU": (lambda _: STREAM, False, Use.UNKNOWN),
    "it fetched as much when it held less, with no PMU": (
        step(replace(STREAM, held=10 * MIB), STREAM, 20),
        False,
        Use.FILLS_WITHOUT_GAIN,
    ),
    "it fetched as much when it held less, and never held a way's worth": (
        step(replace(STREAM, held=MIB / 4), replace(STREAM, held=MIB / 2), 20),
        False,
        Use.UNKNOWN,
    ),
    "it fetched more when it held less, with no PMU": (
        step(replace(STARVES, held=10 * MIB, moved=6e9), STARVES, 20),
        False,
        Use.STARVES,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_cache_is_to_a_vm_that(case: str) -> None:
    did, pmu, use = CASES[case]
    found = judge(host({"vm": ALL}), history(40, pmu, vm=did)).vms["vm"]
    assert found.use is use
    assert found.evidence
    # Who starves and fills all the ways there are can be given no more of them.
    assert bool(found.advice) == (use is Use.FILLS_WITHOUT_GAIN)


@pytest.mark.parametrize("pmu", [True, False])
def test_a_vm_that_has_just_begun_holds_what_it_held_since_then(pmu: bool) -> None:
    known = history(40, pmu, vm=lambda _: FITS, other=lambda _: FITS)
    known["vm"] = known["vm"][-2:]
    found = judge(host({"vm": ALL, "other": ALL}), known).vms["vm"]
    assert found.evidence[0] == "it holds 4.0 MiB of the 32.0 MiB that it may fill"


def test_without_a_pmu_less_is_said_and_that_it_is_less() -> None:
    with_pmu, without = (
        judge(host({"vm": ALL}), history(40, pmu, vm=lambda _: STREAM)).vms["vm"] for pmu in (True, False)
    )
    assert with_pmu.confidence > without.confidence == 0.0
    assert any("nothing counts misses" in text for text in without.evidence)


def test_who_starves_is_advised_one_way_more_than_it_has() -> None:
    found = judge(host({"vm": 0xF}), history(40, vm=lambda _: replace(STARVES, held=8 * MIB))).vms["vm"]
    assert found.advice == "vmqos flavor set m1-NEW --cache-ways 5"


@pytest.mark.parametrize(
    ("mask", "held", "ways"), [(0xFFF, 24, 13), (0xFFF, 8, 5), (0x7FFF, 29, None), (ALL, 30, None)]
)
def test_no_more_ways_are_advised_than_there_are_nor_more_than_one_beyond_those_in_use(
    mask: int, held: int, ways: int | None
) -> None:
    tried = step(replace(STARVES, held=held * MIB / 2, misses=16), replace(STARVES, held=held * MIB), 20)
    found = judge(host({"vm": mask}), history(40, vm=tried)).vms["vm"]
    assert found.use is Use.STARVES
    assert found.advice == ("" if ways is None else f"vmqos flavor set m1-NEW --cache-ways {ways}")


def test_who_was_better_off_with_more_is_advised_as_much() -> None:
    robbed = step(replace(STARVES, held=12 * MIB, misses=1.5), replace(STARVES, held=4 * MIB), 20)
    found = judge(host({"vm": 0xFFF}), history(40, vm=robbed)).vms["vm"]
    assert found.advice == "vmqos flavor set m1-NEW --cache-ways 6"


def test_a_flavor_with_a_strange_name_is_quoted_in_commands() -> None:
    known = host({"vm": 0xF}, flavor="a b; reboot")
    found = judge(known, history(40, vm=lambda _: replace(STARVES, held=8 * MIB))).vms["vm"]
    assert "'a b; reboot-NEW'" in found.advice
