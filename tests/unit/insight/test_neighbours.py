# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.insight.hosts import ALL, LIMIT, MIB, Did, history, host, step, turns
from vmqos.insight import Cause, pairs

QUIET_NOISE, NOISE = Did(held=1 * MIB, moved=1e8), Did(held=20 * MIB, moved=8e9, misses=18)
CALM = Did(held=10 * MIB, moved=2e8, cycles=1000, misses=0.5)
ROBBED = Did(held=4 * MIB, moved=2e9, cycles=2000, misses=5)
HUNGRY = Did(held=2 * MIB, moved=5e9, cycles=2000, misses=5)
SLOWED = replace(HUNGRY, moved=3e9, cycles=3400)
FLOOD = Did(held=1 * MIB, moved=LIMIT - 4e9)
OTHER = Did(held=2 * MIB, moved=3e8)
BOTH = {"noisy": ALL, "victim": ALL}


def steady(did: Did) -> object:
    return lambda second: did


@pytest.mark.parametrize("pmu", [True, False])
def test_who_fills_the_cache_of_another_is_named_with_the_cache_as_the_cause(pmu: bool) -> None:
    told = history(40, pmu, noisy=step(QUIET_NOISE, NOISE, 25), victim=step(CALM, ROBBED, 25), other=lambda _: OTHER)
    (found,) = pairs(host({**BOTH, "other": ALL}), told)
    assert (found.culprit, found.victim, found.cause, found.since) == ("noisy", "victim", Cause.CACHE, 25.0)
    assert found.slower == pytest.approx(2.0)
    assert found.taken == 6 * MIB
    assert found.confidence > (0.8 if pmu else 0.6)
    assert any("10.0 MiB" in text for text in found.evidence)
    assert found.advice == "vmqos flavor set m1-NEW --cache-ways 2 --policy shared"


@pytest.mark.parametrize("pmu", [True, False])
def test_who_fills_the_memory_channel_is_named_with_the_bandwidth_as_the_cause(pmu: bool) -> None:
    told = history(40, pmu, noisy=step(QUIET_NOISE, FLOOD, 25), victim=step(HUNGRY, SLOWED, 25))
    (found,) = pairs(host({"noisy": 0x1, "victim": ALL}), told)
    assert (found.culprit, found.victim, found.cause) == ("noisy", "victim", Cause.BANDWIDTH)
    assert found.slower == pytest.approx(1.7 if pmu else 5 / 3)
    assert found.advice == "vmqos flavor set m1-NEW --bandwidth-percent 30"


def test_with_a_pmu_a_channel_whose_limit_is_not_known_is_judged_by_the_most_it_ever_gave() -> None:
    told = history(40, noisy=step(QUIET_NOISE, FLOOD, 25), victim=step(HUNGRY, SLOWED, 25))
    (found,) = pairs(host(BOTH, limit=None), told)
    assert found.cause is Cause.BANDWIDTH
    assert "not known" in found.evidence[-1]


def test_with_a_pmu_a_victim_loses_the_lines_in_use_last_to_a_neighbour_that_brings_in_many() -> None:
    late, robbed = 31, replace(ROBBED, held=6 * MIB)
    told = history(45, noisy=step(QUIET_NOISE, NOISE, 25), victim=step(CALM, robbed, late))
    (found,) = pairs(host(BOTH), told)
    assert found.cause is Cause.CACHE
    most = history(45, noisy=step(QUIET_NOISE, NOISE, 25), victim=step(CALM, ROBBED, late))
    assert not pairs(host(BOTH), most), "the neighbour has little more than the victim lost"
    without = history(45, False, noisy=step(QUIET_NOISE, NOISE, 25), victim=step(CALM, robbed, late))
    assert not pairs(host(BOTH), without)
    waits = history(45, noisy=step(QUIET_NOISE, FLOOD, 25), victim=step(HUNGRY, SLOWED, late))
    assert not pairs(host(BOTH), waits), "a queue is there at once"


def test_with_a_pmu_a_victim_may_ask_the_l3_more_often_for_lines_that_left_the_l2_as_well() -> None:
    before, now = replace(CALM, references=12), replace(ROBBED, references=14)
    (found,) = pairs(host(BOTH), history(40, noisy=step(QUIET_NOISE, NOISE, 25), victim=step(before, now, 25)))
    assert found.cause is Cause.CACHE


INNOCENT = {
    "the victim walks through memory since": (
        step(replace(CALM, references=12), replace(ROBBED, references=16.5), 25),
        BOTH,
        40,
    ),
    "the victim does other work since": (step(CALM, replace(ROBBED, references=40), 25), BOTH, 40),
    "they share no way": (step(CALM, ROBBED, 25), {"noisy": 0xFF00, "victim": 0x00FF}, 40),
    "the victim is as fast as before": (step(CALM, replace(ROBBED, cycles=1050), 25), BOTH, 40),
    "the victim was slow before": (step(CALM, ROBBED, 15), BOTH, 40),
    "the victim gets slow later": (step(CALM, ROBBED, 33), BOTH, 45),
    "it gets slow somewhat later, and fetches a third of what the neighbour does": (
        step(CALM, replace(ROBBED, held=6 * MIB, moved=NOISE.moved / 3), 30),
        BOTH,
        45,
    ),
    "the victim holds more than before": (step(CALM, replace(ROBBED, held=12 * MIB), 25), BOTH, 40),
    "the victim is slow now and then anyway": (turns(CALM, ROBBED, [4, 12, 25]), BOTH, 40),
    "it lasts three seconds only": (step(CALM, ROBBED, 25), BOTH, 28),
    "misses do not cost what was lost": (step(CALM, replace(ROBBED, misses=0.55), 25), BOTH, 40),
}


@pytest.mark.parametrize("case", INNOCENT)
def test_a_neighbour_is_not_accused_if(case: str) -> None:
    victim, masks, seconds = INNOCENT[case]
    assert not pairs(host(masks), history(seconds, noisy=step(QUIET_NOISE, NOISE, 25), victim=victim))


GUESSED = {
    "the victim fetches no more than before": step(CALM, replace(ROBBED, moved=2.2e8), 25),
    "the victim is never calm": lambda second: replace(CALM if second < 25 else ROBBED, moved=(1e8, 9e8)[second % 2]),
    "the victim holds as much as before": step(CALM, replace(ROBBED, held=CALM.held), 25),
    "the victim fetches more than the neighbour brings in": step(CALM, replace(ROBBED, moved=9e9), 25),
    "what the victim fetches costs next to nothing": step(replace(CALM, moved=1e6), replace(ROBBED, moved=2e7), 25),
}


@pytest.mark.parametrize("case", GUESSED)
def test_without_a_pmu_a_neighbour_is_not_accused_if(case: str) -> None:
    told = history(40, False, noisy=step(QUIET_NOISE, NOISE, 25), victim=GUESSED[case])
    assert not pairs(host(BOTH), told)


def test_of_two_neighbours_who_rise_together_none_is_accused() -> None:
    told = history(
        40, noisy=step(QUIET_NOISE, NOISE, 25), too=step(QUIET_NOISE, NOISE, 25), victim=step(CALM, ROBBED, 25)
    )
    assert not pairs(host({**BOTH, "too": ALL}), told)


def test_of_two_neighbours_who_rise_one_after_the_other_the_one_is_accused_who_rose_as_the_victim_got_slow() -> None:
    told = history(
        45, noisy=step(QUIET_NOISE, NOISE, 28), before=step(QUIET_NOISE, NOISE, 26), victim=step(CALM, ROBBED, 28)
    )
    assert {found.culprit for found in pairs(host({**BOTH, "before": ALL}), told)} <= {"noisy"}


def test_another_victim_that_fetches_again_what_it_lost_is_no_culprit_and_hides_none() -> None:
    robbed = replace(ROBBED, moved=7e9)
    told = history(40, noisy=step(QUIET_NOISE, NOISE, 25), victim=step(CALM, robbed, 25), too=step(CALM, robbed, 25))
    found = pairs(host({**BOTH, "too": ALL}), told)
    assert {(one.culprit, one.victim) for one in found} == {("noisy", "victim"), ("noisy", "too")}


@pytest.mark.parametrize(("cycles", "accused"), [(1500, True), (1200, False)])
def test_a_victim_that_did_other_work_at_the_step_has_to_be_much_slower_than_at_another_time(
    cycles: float, accused: bool
) -> None:
    other, robbed = Did(held=10 * MIB, moved=2e8, references=50), replace(ROBBED, cycles=cycles)
    told = history(
        50,
        noisy=step(QUIET_NOISE, NOISE, 25),
        victim=lambda second: CALM if second < 15 else other if second < 32 else robbed,
    )
    assert bool(pairs(host(BOTH), told)) == accused


def test_without_a_pmu_a_memory_that_was_full_before_slows_nobody_more() -> None:
    told = history(
        40,
        False,
        noisy=step(Did(moved=8e9), Did(moved=16e9), 25),
        other=step(Did(moved=25e9), Did(moved=20e9), 25),
        victim=step(HUNGRY, SLOWED, 25),
    )
    assert not pairs(host({**BOTH, "other": ALL}), told)


def test_a_memory_that_is_not_near_its_limit_slows_nobody() -> None:
    told = history(40, noisy=step(QUIET_NOISE, FLOOD, 25), victim=step(HUNGRY, SLOWED, 25))
    assert not pairs(host(BOTH, limit=2 * LIMIT), told)


def test_a_culprit_that_works_in_turns_is_named_and_its_pauses_speak_against_nobody() -> None:
    bounds = [25, 35, 42, 52]
    told = history(60, noisy=turns(QUIET_NOISE, NOISE, bounds), victim=turns(CALM, ROBBED, bounds))
    (found,) = pairs(host(BOTH), told)
    assert (found.culprit, found.victim) == ("noisy", "victim")


def test_a_neighbour_that_came_up_before_without_effect_is_not_accused() -> None:
    told = history(60, noisy=turns(QUIET_NOISE, NOISE, [10, 22, 40]), victim=step(CALM, ROBBED, 40))
    assert not pairs(host(BOTH), told)


def test_a_vm_that_starts_is_a_culprit_like_another() -> None:
    told = dict(history(40, noisy=lambda _: NOISE, victim=step(CALM, ROBBED, 25)))
    told["noisy"] = told["noisy"][25:]
    (found,) = pairs(host(BOTH), told)
    assert found.culprit == "noisy"


@pytest.mark.parametrize(("ends", "until"), [(60, None), (34, 34)])
def test_a_culprit_that_is_quiet_again_is_known_to_be_and_was_one_all_the_same(ends: int, until: int | None) -> None:
    noisy, victim = turns(QUIET_NOISE, NOISE, [25, ends]), turns(CALM, ROBBED, [25, ends])
    told = history(40, noisy=noisy, victim=victim, other=lambda _: OTHER)
    (found,) = pairs(host({**BOTH, "other": ALL}), told)
    assert found.until == (None if until is None else told["noisy"][until].time)


def test_a_culprit_that_came_with_its_step_goes_on() -> None:
    told = dict(history(40, noisy=lambda _: NOISE, victim=step(CALM, ROBBED, 25)))
    told["noisy"] = told["noisy"][25:]
    (found,) = pairs(host(BOTH), told)
    assert found.until is None


def test_samples_that_are_missing_are_no_steps() -> None:
    told = dict(history(40, noisy=lambda _: NOISE, victim=lambda _: CALM))
    told["noisy"] = [sample for sample in told["noisy"] if not 10 <= sample.time < 16]
    assert not pairs(host(BOTH), told)


def test_no_history_says_nothing() -> None:
    assert pairs(host({}), {}) == []
    assert pairs(host(BOTH), {"noisy": [], "victim": []}) == []


def test_without_a_pmu_a_victim_of_the_cache_may_have_been_calm_for_few_seconds() -> None:
    other = replace(CALM, moved=3e9)
    told = history(
        40,
        False,
        noisy=step(QUIET_NOISE, NOISE, 25),
        victim=lambda second: other if second < 19 else CALM if second < 25 else ROBBED,
    )
    (found,) = pairs(host(BOTH), told)
    assert (found.culprit, found.victim, found.cause) == ("noisy", "victim", Cause.CACHE)


@pytest.mark.parametrize(("moved", "accused"), [(3e9, True), (4.2e9, False)])
def test_without_a_pmu_a_victim_of_the_memory_that_was_calm_for_few_seconds_has_to_be_much_slower(
    moved: float, accused: bool
) -> None:
    other, slowed = replace(HUNGRY, moved=9e9), replace(HUNGRY, moved=moved)
    told = history(
        40,
        False,
        noisy=step(QUIET_NOISE, FLOOD, 25),
        victim=lambda second: other if second < 19 else HUNGRY if second < 25 else slowed,
    )
    assert bool(pairs(host({"noisy": 0x1, "victim": ALL}), told)) == accused


def test_without_a_pmu_a_memory_that_became_full_before_the_step_slows_nobody_more() -> None:
    told = history(
        40,
        False,
        noisy=step(Did(moved=1e8), Did(moved=8e9), 25),
        other=step(Did(moved=1e9), Did(moved=30e9), 20),
        victim=step(HUNGRY, SLOWED, 25),
    )
    assert not pairs(host({**BOTH, "other": ALL}), told)


def test_without_a_pmu_what_a_victim_fetches_is_held_against_the_time_that_it_runs() -> None:
    """An eighth of a second of the clock is half of the time for a VM that runs for a quarter."""
    for ran, accused in ((None, False), (1.0, False), (0.25, True), (0.05, False)):
        calm, robbed = replace(CALM, moved=1e7, ran=ran), replace(ROBBED, moved=9e7, ran=ran)
        told = history(40, False, noisy=step(QUIET_NOISE, NOISE, 25), victim=step(calm, robbed, 25))
        found = pairs(host(BOTH), told)
        assert [one.slower for one in found] == ([pytest.approx(1 + 8e7 / 64 * 100e-9 / 0.25)] if accused else []), ran
    busy, slowed = replace(HUNGRY, moved=6e7, ran=0.25), replace(HUNGRY, moved=4e7, ran=0.5)
    told = history(40, False, noisy=step(QUIET_NOISE, FLOOD, 25), victim=step(busy, slowed, 25))
    (found,) = pairs(host({"noisy": 0x1, "victim": ALL}), told)
    assert found.cause is Cause.BANDWIDTH
    one_cpu = {"victim": step(replace(busy, ran=1.0), replace(slowed, ran=1.0), 25)}
    assert not pairs(host({"noisy": 0x1, "victim": ALL}), {**told, **history(40, False, **one_cpu)})


@pytest.mark.parametrize(("later", "accused"), [(3, True), (8.5, True), (9.9, False)])
def test_without_a_pmu_a_victim_that_runs_for_less_behind_the_step_may_lose_still_more_and_gets_none_back(
    later: float, accused: bool
) -> None:
    """What it fetches is no more then than at first, but costs it three times as much of the time that it runs."""
    calm = replace(CALM, moved=1e7, ran=1.0)
    robbed = replace(ROBBED, held=7 * MIB, moved=1.8e8, ran=1.0)
    then = replace(robbed, held=later * MIB, ran=0.4)

    def victim(second: int) -> Did:
        return calm if second < 25 else robbed if second < 30 else then

    found = pairs(host(BOTH), history(45, False, noisy=step(QUIET_NOISE, NOISE, 25), victim=victim))
    assert bool(found) == accused
    at_first = history(30, False, noisy=step(QUIET_NOISE, NOISE, 25), victim=victim)
    assert not pairs(host(BOTH), at_first), "it costs it less than may be suffered"


@pytest.mark.parametrize("pmu", [True, False])
@pytest.mark.parametrize(
    ("ran", "runs", "accused"),
    [(1.0, 0.35, True), (1.0, 0.3, False), (0.02, 0.001, True), (None, 0.2, True), (1.0, None, True)],
)
def test_a_vm_that_runs_much_less_from_the_step_on_changed_its_own_work(
    pmu: bool, ran: float | None, runs: float | None, accused: bool
) -> None:
    fit, robbed = replace(CALM, ran=ran), replace(ROBBED, ran=runs)
    told = history(40, pmu, noisy=step(QUIET_NOISE, NOISE, 25), victim=step(fit, robbed, 25))
    assert bool(pairs(host(BOTH), told)) == accused
    hungry, slowed = replace(HUNGRY, ran=ran), replace(SLOWED, ran=runs)
    told = history(40, pmu, noisy=step(QUIET_NOISE, FLOOD, 25), victim=step(hungry, slowed, 25))
    assert bool(pairs(host({"noisy": 0x1, "victim": ALL}), told)) == accused


def test_without_a_pmu_a_vm_to_which_another_one_leaves_the_memory_is_no_victim_of_the_cache() -> None:
    told = history(
        40,
        False,
        noisy=step(QUIET_NOISE, NOISE, 25),
        leaving=step(Did(moved=20e9), Did(moved=1e8), 25),
        victim=step(CALM, ROBBED, 25),
    )
    assert not pairs(host({**BOTH, "leaving": ALL}), told)
    del told["leaving"]
    assert pairs(host(BOTH), told)


@pytest.mark.parametrize("at", [16, 34])
def test_without_a_pmu_a_vm_that_leaves_the_memory_long_before_or_after_the_step_says_nothing_of_it(at: int) -> None:
    leaving = step(Did(moved=20e9), Did(moved=1e8), at)
    told = history(60, False, noisy=step(QUIET_NOISE, NOISE, 25), leaving=leaving, victim=step(CALM, ROBBED, 25))
    (found,) = pairs(host({**BOTH, "leaving": 0x1}), told)
    assert (found.culprit, found.victim, found.cause) == ("noisy", "victim", Cause.CACHE)


def test_without_a_pmu_a_victim_of_the_memory_is_slow_at_once() -> None:
    """A queue is there in the second in which it begins; a cache loses its lines one by one."""
    told = history(40, False, noisy=step(QUIET_NOISE, FLOOD, 25), victim=step(HUNGRY, SLOWED, 27))
    assert not pairs(host({"noisy": 0x1, "victim": ALL}), told)


def test_a_neighbour_that_adds_a_trickle_to_a_full_memory_is_not_accused() -> None:
    told = history(
        40,
        noisy=step(Did(moved=1e7), Did(moved=1e9), 25),
        other=lambda second: Did(moved=LIMIT - 4e9),
        victim=step(HUNGRY, SLOWED, 25),
    )
    assert not pairs(host({**BOTH, "other": ALL}), told)


def test_a_neighbour_that_brings_in_fewer_lines_than_the_victim_misses_more_is_not_accused() -> None:
    told = history(40, noisy=step(QUIET_NOISE, replace(NOISE, moved=1e9), 25), victim=step(CALM, ROBBED, 25))
    assert not pairs(host(BOTH), told)


def test_where_memory_is_full_a_victim_that_holds_nearly_as_much_is_not_robbed_of_cache() -> None:
    told = history(
        40,
        noisy=step(QUIET_NOISE, replace(FLOOD, held=3 * MIB), 25),
        victim=step(CALM, replace(ROBBED, held=9.5 * MIB, moved=3e9), 25),
    )
    assert not pairs(host(BOTH), told)
