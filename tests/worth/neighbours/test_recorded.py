# SPDX-License-Identifier: Apache-2.0
"""What was counted in a guest is judged without it; the native library stands in for the guest here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.worth.native import Load, Order
from tests.worth.neighbours import beside, in_guest
from tests.worth.neighbours.machine import Run, run
from tests.worth.neighbours.mixes import ALL_WAYS, SIZE, Mix, MixVm, Phase, Planted, Work
from tests.worth.neighbours.recorded import WHOLE, NotRunError, Recorded, packed, unpacked

HOT = Load(Order.RANDOM, SIZE // 4, instructions=30)
LAZY = Load(Order.RANDOM, SIZE // 64, instructions=300)
STREAM = Load(Order.ENDLESS, instructions=10, overlap=10)
KEY = "planted 100004"
UNPLANTED = ((), False)


@pytest.fixture(scope="module")
def mix() -> Mix:
    """A victim, and a neighbour that fills the cache from second 15 on."""
    vms = [MixVm("m1", [Phase(1000, Work(load))], ALL_WAYS, seed) for seed, load in enumerate((HOT, LAZY))]
    return Mix(1, vms, Planted(1, 15, "cache", Work(STREAM)), seconds=32)


@pytest.fixture(scope="module")
def recorded(mix: Mix) -> Recorded:
    whole = run(mix)
    return Recorded({WHOLE: whole, UNPLANTED: run(mix, planted=False)}, whole)


def of_guest(recorded: Recorded, said: dict[str, Any]) -> dict[str, Any]:
    """As a guest tells it."""
    return {"masks": [ALL_WAYS] * 2, "instructions": [30, 10], "recorded": packed(recorded), **said}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mix: Mix) -> Path:
    """Where it is kept what was counted."""
    monkeypatch.setattr(beside, "KEPT", tmp_path / "build/kept.json")
    monkeypatch.setattr(beside, "RECORDED", tmp_path / "build/recorded.json")
    monkeypatch.setattr(beside, "mix_of", lambda *_: mix)
    monkeypatch.setattr(beside, "natively", lambda *_: {})
    return beside.RECORDED


def test_what_was_counted_is_the_same_when_it_is_unpacked(recorded: Recorded) -> None:
    text = packed(recorded)
    again = unpacked(text)
    assert again.seen.vms == recorded.seen.vms
    assert {key: one.vms for key, one in again.runs.items()} == {key: one.vms for key, one in recorded.runs.items()}
    assert len(text) < 16_000, "it goes through the guest's console, with all mixes before it"


def test_the_same_law_says_the_same_without_the_guest(mix: Mix, recorded: Recorded, kept: Path) -> None:
    whole = recorded.runs[WHOLE]
    said = in_guest.judged(mix, whole, whole, recorded.run)
    assert said["said"][in_guest.PMU_OF_THE_L3]["named"] is not None
    beside.record({KEY: of_guest(recorded, {"done": {}, "said": {}})})
    (found,) = beside.again().values()
    assert {name: found[name] for name in said} == said


def test_a_mix_is_left_out_that_was_not_run_without_who_is_accused_now(
    recorded: Recorded, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # With the two exchanged in what is seen, VM 0 is accused.
    exchanged = Run(recorded.seen.vms[::-1], {})
    beside.record({KEY: of_guest(Recorded(recorded.runs, exchanged), {})})
    assert beside.again() == {}
    assert "has to be run in a guest again: no run without [0]" in capsys.readouterr().out


def test_of_a_run_that_was_not_made_it_is_said_which(mix: Mix, recorded: Recorded) -> None:
    with pytest.raises(NotRunError, match=r"no run without \[1\]"):
        recorded.run(mix, absent=[1])
    assert recorded.run(mix, planted=False) is recorded.runs[UNPLANTED]


def test_what_was_counted_stays_out_of_the_results_and_beside_that_of_earlier_runs(
    recorded: Recorded, kept: Path
) -> None:
    first = beside.complete({KEY: of_guest(recorded, {})})
    # The next guest goes on: of what it was handed, it has not counted anything.
    second = beside.complete({KEY: first[KEY]["guest"], "quiet 1": of_guest(recorded, {})})
    assert all("recorded" not in one["guest"] for one in second.values())
    assert set(beside.kept()) == set(beside.recorded()) == {KEY, "quiet 1"}
    assert "recorded" not in json.dumps(beside.kept())


def test_what_was_counted_is_forgotten_when_the_mixes_have_changed(
    recorded: Recorded, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside.record({KEY: of_guest(recorded, {})})
    assert list(beside.recorded()) == [KEY]
    monkeypatch.setattr(beside, "RUNNING", ("carried",))
    assert beside.recorded() == {}
