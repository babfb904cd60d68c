# SPDX-License-Identifier: Apache-2.0
"""What is noted while real programs are sized, and the judge; ``python -m tests.worth size_programs`` runs them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.cachemodel import switch
from tests.kernel.cachemodel.counts import Counts, Curve, Served
from tests.worth.experiments.size_programs import figures
from tests.worth.sections.size_programs import section
from tests.worth.size.programs import linux
from tests.worth.size.programs.loads import PROGRAMS
from tests.worth.size.programs.watch import Step, Watch, truth, uncounted
from vmqos.insight.model import Counts as Rates
from vmqos.insight.model import Sample

NONE = Served(0, 0, 0)


def counts(references: int, misses: int) -> Counts:
    return Counts(Served(0, references - misses, misses), NONE, NONE, 100 * references, 0, 0, 0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_ready_and_then_makes_rounds(name: str) -> None:
    program = PROGRAMS[name]
    made = linux.INIT.format(script=program.script).splitlines()
    assert "printf 'ready\\n'" in made and made[0] == "#!/bin/busybox sh"
    if program.python:
        compile(program.python, name, "exec")
        assert "    done()\n" in program.python
    else:
        assert program.round.endswith(">/dev/null") and "printf ." in program.script


def test_the_truth_is_of_what_was_done_with_each_number_of_ways() -> None:
    steps = [
        Step(1, Curve((0, 0, 0), 0), counts(0, 0)),
        Step(2, Curve((40, 30, 20), 10), counts(0, 0)),
        Step(0, Curve((40, 30, 30), 100), counts(0, 0)),
    ]
    assert truth(steps) == {1: 0.6, 2: 1.0}


def test_new_samples_get_what_the_model_counted_and_are_noted_by_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"counts": counts(1000, 100)}
    monkeypatch.setattr(switch, "counts", lambda cpu, rmid: now["counts"])
    monkeypatch.setattr(switch, "curve", lambda cpu, rmid, ways: Curve((0,) * ways, 0))
    watch = Watch(7, "vm")

    def told(*times: float) -> list[Any]:
        samples: list[Any] = [{"time": at, "occupancy": {"0": 1.0}, "bandwidth": 2.0, "counts": None} for at in times]
        watch.complete({"samples": {"vm": samples, "other": []}, "host": {}})  # type: ignore[typeddict-item]
        return samples

    assert told(1.0)[0]["counts"] is None
    watch.step(3)
    now["counts"] = counts(1400, 300)
    (one,) = told(2.0)
    assert one["counts"]["misses"] / one["counts"]["references"] == pytest.approx(0.5)
    assert told(2.0)[0]["counts"] is None, "it was there before"
    watch.step(4)
    told(3.0, 4.0)
    watch.step(0)
    told(5.0)
    assert {ways: [sample.time for sample in of] for ways, of in watch.samples.items()} == {3: [2.0], 4: [3.0, 4.0]}
    assert [step.ways for step in watch.steps] == [3, 4, 0]


def test_without_a_pmu_the_law_takes_as_many_samples_as_it_needs() -> None:
    samples = [Sample(float(at), {0: 100.0}, 50.0) for at in range(20)]
    assert len(uncounted(samples)) == 5


def test_of_a_run_that_is_cut_short_the_numbers_of_ways_that_were_tried_are_kept() -> None:
    watch = Watch(7, "vm")
    watch.steps += [
        Step(1, Curve((0,) * 16, 0), counts(0, 0)),
        Step(2, Curve((40, *(0,) * 15), 60), counts(1000, 600)),
        Step(3, Curve((80, 20, *(0,) * 14), 100), counts(2000, 1000)),
    ]
    for ways, missed in ((1, 0.6), (2, 0.4), (3, 0.9)):
        rates = Rates(5000.0, 2000.0, 100.0, 100.0 * missed)
        watch.samples[ways] = [Sample(float(at), {0: 100.0 * ways}, 50.0, rates) for at in range(6)]
    kept = figures(watch, counts(1000, 600))
    assert kept["missed"] == {"1": 0.6, "2": 0.4} and kept["true"] == {"1": 0.6, "2": 0.4}
    assert kept["cut"] and kept["ended"] == "" and kept["samples"] == 18
    assert kept["cost"] < 0, "with more ways more work is done in a cycle"


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({}, [True, True, True, True]),
        ({"missed": {"1": 0.84, "2": 0.2}}, [False, True, True, True]),
        ({"knee": 4}, [True, False, True, True]),
        ({"knee without": 4}, [True, True, False, True]),
        ({"cost": 0.02}, [True, True, True, False]),
        ({"cut": True}, [True, False, False, False]),
    ],
)
def test_what_is_wrong_does_not_hold(changes: dict[str, Any], held: list[bool]) -> None:
    good = {"missed": {"1": 0.9, "2": 0.2}, "true": {"1": 0.9, "2": 0.2}, "knee": 2, "true knee": 2}
    good |= {"knee without": 2, "cost": -0.1, "samples": 60, "cut": False}
    found = {"versions": {"gzip": "1.13"}, "programs": {"gzip": good | changes}}
    assert [claim.holds for claim in section(found).claims] == held
