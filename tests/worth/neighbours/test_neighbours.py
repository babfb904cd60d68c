# SPDX-License-Identifier: Apache-2.0
"""The judge itself, and a few mixes of it; ``python -m tests.worth.neighbours`` judges hundreds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.worth.native import Load, Order
from tests.worth.neighbours import campaign, judge, mixes, table, truth, watcher
from tests.worth.neighbours.machine import run
from tests.worth.neighbours.mixes import ALL_WAYS, SIZE, Mix, MixVm, Phase, Planted, Work
from vmqos.insight import Host, Sample, pairs

FEW = 8
"""Mixes of each kind: seconds, and enough that a law that is broken shows."""


def steady(load: Load, mask: int = ALL_WAYS, seed: int = 1) -> MixVm:
    return MixVm("m1", [Phase(1000, Work(load))], mask, seed)


STREAM = Load(Order.ENDLESS, instructions=10, overlap=10)
TORRENT = Load(Order.ENDLESS, instructions=4, overlap=50)
HOT = Load(Order.RANDOM, SIZE // 4, instructions=30)
MISSING = Load(Order.RANDOM, 8 * SIZE, instructions=30)
LAZY = Load(Order.RANDOM, SIZE // 64, instructions=300)


def mix(victim: Load, harm: Load, masks: tuple[int, int] = (ALL_WAYS, ALL_WAYS)) -> Mix:
    """A victim, and a neighbour that does harm from second 30 on."""
    return Mix(1, [steady(victim, masks[0]), steady(LAZY, masks[1], 2)], Planted(1, 30, "", Work(harm)), seconds=60)


def test_a_mix_is_the_same_each_time_and_another_seed_makes_another() -> None:
    assert mixes.planted(5) == mixes.planted(5) != mixes.planted(7)
    one, other = run(mixes.quiet(3)), run(mixes.quiet(3))
    assert one == other


def test_mixes_are_of_2_to_12_vms_with_phases_and_some_have_ways_of_their_own() -> None:
    drawn = [draw(seed) for draw in (mixes.planted, mixes.quiet) for seed in range(1, 150)]
    assert {len(one.vms) for one in drawn} == set(range(2, 13))
    assert {one.planted.meant for one in drawn if one.planted is not None} == {"cache", "bandwidth"}
    assert any(len(vm.phases) > 1 for one in drawn for vm in one.vms)
    assert all(vm.mask for one in drawn for vm in one.vms)
    assert any(len({vm.mask for vm in one.vms}) > 2 for one in drawn)


def test_what_fills_the_cache_harms_by_the_cache_and_nobody_behind_other_ways() -> None:
    (harm,) = truth.harm_done(mix(HOT, STREAM), 30).values()
    assert harm.slower > 1.3
    assert harm.causes == {truth.CACHE}
    assert not truth.harm_done(mix(HOT, STREAM, (0xFF00, 0x00FF)), 30)


def test_what_fills_the_channel_harms_by_bandwidth() -> None:
    (harm,) = truth.harm_done(mix(MISSING, TORRENT, (0xFFF0, 0x000F)), 30).values()
    assert harm.slower > 1.3
    assert harm.causes == {truth.BANDWIDTH}


@pytest.mark.parametrize(
    ("part", "right"), [(1.2, "cache"), (0.5, "cache bandwidth"), (0.1, "bandwidth"), (-1, "bandwidth")]
)
def test_of_a_harm_that_both_did_both_answers_are_right(part: float, right: str) -> None:
    assert truth.causes(part) == set(right.split())


def test_a_mix_in_which_a_vm_harms_another_is_not_quiet() -> None:
    calm = Mix(1, [steady(HOT), steady(LAZY, seed=2)], seconds=40)
    assert truth.is_quiet(calm)
    assert not truth.is_quiet(replace(calm, vms=[steady(HOT), steady(STREAM, seed=2)]))


@pytest.mark.parametrize("sight", ["pmu", "no pmu"])
def test_a_plain_culprit_is_named_and_an_accusation_that_the_model_does_not_confirm_is_false(sight: str) -> None:
    one = mix(HOT, STREAM)
    done = run(one)
    outcome = judge.judge(one, done, truth.harm_done(one, 30), judge.SIGHTS[sight])
    assert outcome.named is not None and outcome.named <= 12
    assert not outcome.false
    # The same accusation is false where the truth says that there is another cause, or no harm.
    other = {0: truth.Harm(1.5, frozenset({truth.BANDWIDTH}))}
    assert judge.judge(one, done, other, judge.SIGHTS[sight]).false
    calm = replace(one, planted=None)
    assert judge._judged(calm, run(calm), {}, 50, _accused(one, done, sight)).verdict == "false"


def _accused(one: Mix, done: Any, sight: str) -> Any:
    return pairs(
        judge.host(one, judge.SIGHTS[sight]),
        judge.history(judge.samples(done, judge.SIGHTS[sight], one.hardware.hz), 60),
    )[0]


def test_a_few_mixes_are_judged_as_they_have_to_be() -> None:
    found: campaign.Found = {}
    assert campaign.play(found, {"planted": FEW, "quiet": FEW}, 1, None, None)
    with_pmu, without = table.figures(found, "pmu"), table.figures(found, "no pmu")
    assert with_pmu["named"] == with_pmu["planted"] == FEW
    assert without["named"] >= FEW / 2
    assert not with_pmu["accused in quiet"] and not without["accused in quiet"]
    assert "8/8" in "\n".join(table.lines(found))


def test_the_time_may_be_too_short() -> None:
    assert not campaign.play({}, {"planted": 1}, 1, 0.0, None)


def test_what_is_kept_is_forgotten_when_a_law_has_changed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = tmp_path / "kept.json"
    found: campaign.Found = {}
    assert campaign.play(found, {"planted": 1}, 1, None, keep)
    assert json.dumps(campaign.kept(keep)) == json.dumps(found)
    assert campaign.chosen(found, {"planted": 1}, 1) == found
    assert campaign.chosen(found, {"planted": 1}, 2) == {}
    monkeypatch.setattr(campaign, "digest", lambda: "another")
    assert campaign.kept(keep) == {}


def held(*values: float) -> list[Sample]:
    return [Sample(float(second), {0: value}, None) for second, value in enumerate(values)]


def test_watchers_strategy_takes_who_lost_most_for_the_victim_and_who_gained_most_for_the_culprit() -> None:
    early, late = [1e6] * watcher.PERIOD, watcher.PERIOD
    history = {
        "steady": held(*early, *[1e6] * late),
        "loses": held(*early, *[0.6e6] * late),
        "loses most": held(*early, *[0.3e6] * late),
        "gains": held(*early, *[1.4e6] * late),
        "gains most": held(*early, *[1.8e6] * late),
    }
    (pair,) = watcher.pairs(Host({}, {}), history)
    assert (pair.culprit, pair.victim, pair.since) == ("gains most", "loses most", 10.0)
    assert pair.taken == pytest.approx(7e5)
    assert not watcher.pairs(Host({}, {}), {name: history[name] for name in ("steady", "gains most")})
    assert not watcher.pairs(Host({}, {}), {name: of[:-1] for name, of in history.items()})
