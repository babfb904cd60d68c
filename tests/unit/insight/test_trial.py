# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import random

import pytest

from tests.unit.insight.hosts import MIB, Did
from vmqos.insight.model import Cause
from vmqos.insight.trial import LEAST, Outcome, Phase, Verdict, judge

CALM, ROBBED = Did(held=6 * MIB, moved=60e6, cycles=1000), Did(held=2 * MIB, moved=600e6, cycles=2000, misses=6)
LOUD, LIMITED = Did(held=8 * MIB, moved=4e9), Did(held=4 * MIB, moved=8e8)


def phase(victim: Did, culprit: Did, count: int = 5, *, pmu: bool = True, noise: float = 0.01, seed: int = 1) -> Phase:
    """Samples of both VMs, which vary by a part."""
    chance = random.Random(seed)

    def vary(value: float) -> float:
        return value * chance.uniform(1 - noise, 1 + noise)

    def several(did: Did) -> list[Did]:
        return [
            Did(vary(did.held), vary(did.moved), vary(did.cycles), did.references, vary(did.misses))
            for _ in range(count)
        ]

    return Phase(
        [did.sample(float(second), pmu) for second, did in enumerate(several(victim))],
        [did.sample(float(second), pmu) for second, did in enumerate(several(culprit))],
    )


def tried(
    before: Did = ROBBED,
    during: Did = CALM,
    after: Did = ROBBED,
    *,
    limited: Did = LIMITED,
    cause: Cause | None = Cause.CACHE,
    count: int = 5,
    pmu: bool = True,
    noise: float = 0.01,
) -> Outcome:
    options = {"pmu": pmu, "noise": noise}
    return judge(
        phase(before, LOUD, count, seed=1, **options),  # type: ignore[arg-type]
        phase(during, limited, count, seed=2, **options),  # type: ignore[arg-type]
        phase(after, LOUD, count, seed=3, **options),  # type: ignore[arg-type]
        cause,
    )


def test_a_vm_that_is_faster_while_its_neighbour_is_held_back_and_slow_again_after_was_slowed_by_it() -> None:
    found = tried()
    assert found.verdict is Verdict.CONFIRMED and found.faster == pytest.approx(2.0, rel=0.05)
    assert found.reason.startswith("cycles for an instruction: ") and found.reason.endswith(" after the trial")
    by_name = {figure.name: figure for figure in found.figures}
    assert set(by_name) == {"cycles_per_instruction", "misses_per_instruction", "traffic", "held", "traffic_of_culprit"}
    figure = by_name["cycles_per_instruction"]
    assert (figure.before, figure.during, figure.after) == pytest.approx((2.0, 1.0, 2.0), rel=0.02)
    assert by_name["traffic_of_culprit"].during == pytest.approx(8e8, rel=0.02)


def test_a_vm_that_is_as_slow_as_ever_meanwhile_was_not_slowed_by_it() -> None:
    found = tried(during=ROBBED)
    assert found.verdict is Verdict.NOT_CONFIRMED and found.faster == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("worse", [1.1, 2.0])
def test_a_vm_that_is_slower_meanwhile_was_not_slowed_by_it(worse: float) -> None:
    found = tried(during=Did(held=ROBBED.held, moved=ROBBED.moved, cycles=worse * ROBBED.cycles))
    assert found.verdict is Verdict.NOT_CONFIRMED


def test_a_vm_that_stays_fast_after_the_trial_may_be_faster_for_another_reason() -> None:
    found = tried(after=CALM)
    assert found.verdict is Verdict.UNCLEAR and "too noisy to tell" in found.reason


def test_a_vm_that_was_fast_before_the_trial_shows_nothing() -> None:
    assert tried(before=CALM).verdict is Verdict.UNCLEAR


@pytest.mark.parametrize("gain", [1.02, LEAST - 0.001])
def test_less_than_the_least_factor_is_no_confirmation(gain: float) -> None:
    during = Did(held=ROBBED.held, moved=ROBBED.moved, cycles=ROBBED.cycles / gain)
    assert tried(during=during).verdict is not Verdict.CONFIRMED


def test_what_varies_by_more_than_it_differs_is_unclear() -> None:
    slightly = Did(held=ROBBED.held, moved=ROBBED.moved, cycles=ROBBED.cycles / 1.2)
    assert tried(during=slightly, noise=0.02).verdict is Verdict.CONFIRMED
    assert tried(during=slightly, noise=0.5).verdict is Verdict.UNCLEAR


def test_noise_alone_seldom_confirms_anything() -> None:
    wrong = sum(
        judge(
            phase(ROBBED, LOUD, noise=0.3, seed=3 * number),
            phase(ROBBED, LIMITED, noise=0.3, seed=3 * number + 1),
            phase(ROBBED, LOUD, noise=0.3, seed=3 * number + 2),
            Cause.CACHE,
        ).verdict
        is Verdict.CONFIRMED
        for number in range(1000)
    )
    assert wrong <= 10


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_samples_say_nothing(count: int) -> None:
    found = tried(count=count)
    assert found.verdict is Verdict.UNCLEAR and math.isnan(found.faster)
    assert found.reason == "there are too few samples before and during and after"


@pytest.mark.parametrize("pmu", [True, False])
def test_a_neighbour_that_moved_as_much_as_ever_was_not_held_back(pmu: bool) -> None:
    found = tried(limited=LOUD, pmu=pmu)
    assert found.verdict is Verdict.UNCLEAR
    assert found.reason.startswith("the limit did not hold the neighbour back, which moved ")


def test_a_neighbour_that_is_not_counted_can_be_convicted_and_not_acquitted() -> None:
    before, during, after = (
        Phase(phase(did, LOUD, seed=at).victim, []) for at, did in enumerate((ROBBED, CALM, ROBBED))
    )
    assert judge(before, during, after, None).verdict is Verdict.CONFIRMED
    found = judge(before, Phase(phase(ROBBED, LOUD, seed=7).victim, []), after, None)
    assert found.verdict is Verdict.UNCLEAR
    assert found.reason.endswith("; whether the limit held the neighbour back was not measured")


def test_another_work_meanwhile_says_nothing() -> None:
    found = tried(during=Did(held=6 * MIB, moved=60e6, cycles=1000, references=30))
    assert found.verdict is Verdict.UNCLEAR and found.reason.startswith("the VM did other work meanwhile")


@pytest.mark.parametrize("cause", [Cause.CACHE, None])
def test_without_a_pmu_a_victim_of_the_cache_holds_more_and_fetches_less(cause: Cause | None) -> None:
    assert tried(pmu=False, cause=cause).verdict is Verdict.CONFIRMED
    assert tried(pmu=False, cause=cause, during=ROBBED).verdict is Verdict.NOT_CONFIRMED
    resting = Did(held=ROBBED.held, moved=CALM.moved)
    found = tried(pmu=False, cause=cause, during=resting)
    assert found.verdict is Verdict.UNCLEAR and "held of the cache" in found.reason


def test_without_a_pmu_a_victim_of_the_memory_gets_more() -> None:
    slow, fast = Did(moved=2e9), Did(moved=4e9)
    assert tried(slow, fast, slow, pmu=False, cause=Cause.BANDWIDTH).verdict is Verdict.CONFIRMED
    assert tried(slow, slow, slow, pmu=False, cause=Cause.BANDWIDTH).verdict is Verdict.NOT_CONFIRMED
    assert tried(fast, slow, fast, pmu=False, cause=Cause.BANDWIDTH).verdict is Verdict.NOT_CONFIRMED


def test_without_a_pmu_a_victim_of_which_nothing_is_said_is_not_acquitted_for_getting_more() -> None:
    slow, fast = Did(held=2 * MIB, moved=2e9), Did(held=2 * MIB, moved=4e9)
    found = tried(slow, fast, slow, pmu=False, cause=None)
    assert found.verdict is Verdict.CONFIRMED and found.faster == pytest.approx(2.0, rel=0.05)
    assert tried(slow, slow, slow, pmu=False, cause=None).verdict is Verdict.NOT_CONFIRMED
    assert tried(slow, fast, fast, pmu=False, cause=None).verdict is Verdict.UNCLEAR


FEW_WAYS = Did(held=2 * MIB, moved=4.4e9)
"""A thief that has few ways misses more, and holds less."""


@pytest.mark.parametrize("pmu", [True, False])
def test_a_neighbour_with_few_ways_need_not_move_less_but_has_to_hold_less(pmu: bool) -> None:
    before, during, after = phase(ROBBED, LOUD, pmu=pmu), phase(CALM, FEW_WAYS, pmu=pmu), phase(ROBBED, LOUD, pmu=pmu)
    found = judge(before, during, after, Cause.CACHE, confined=True)
    assert found.verdict is Verdict.CONFIRMED
    assert found.figures[-1].name == "held_of_culprit"
    assert (found.figures[-1].before, found.figures[-1].during) == pytest.approx((8 * MIB, 2 * MIB), rel=0.02)
    kept = judge(before, phase(CALM, LOUD, pmu=pmu), after, Cause.CACHE, confined=True)
    assert kept.verdict is Verdict.UNCLEAR
    assert kept.reason.startswith("few ways did not hold the neighbour back, which held 8.0 MiB before and ")
    # A limit is none where as much is moved as before.
    assert judge(before, during, after, Cause.CACHE).verdict is Verdict.UNCLEAR


def test_a_confined_neighbour_whose_cache_is_not_counted_is_not_acquitted() -> None:
    phases = [Phase(phase(ROBBED, LOUD, seed=seed).victim, []) for seed in range(3)]
    found = judge(*phases, Cause.CACHE, confined=True)  # type: ignore[misc]
    assert found.verdict is Verdict.UNCLEAR
    assert found.reason.endswith("; whether few ways held the neighbour back was not measured")
