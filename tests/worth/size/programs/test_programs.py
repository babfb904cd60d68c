# SPDX-License-Identifier: Apache-2.0
"""What is noted while real programs are sized, and the judge; ``python -m tests.worth size_programs`` runs them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.kernel.cachemodel import switch
from tests.kernel.cachemodel.counts import Counts, Curve, Served
from tests.kernel.inside import msr
from tests.worth.experiments import size_programs
from tests.worth.experiments.size_programs import figures, joined
from tests.worth.sections.size_programs import section
from tests.worth.size.programs import linux
from tests.worth.size.programs.cost import Done, cost
from tests.worth.size.programs.loads import PROGRAMS
from tests.worth.size.programs.watch import Step, Watch, truth, uncounted
from vmqos.insight import size as law
from vmqos.insight.model import Counts as Rates
from vmqos.insight.model import Sample

NONE = Served(0, 0, 0)


def counts(references: int, misses: int) -> Counts:
    return Counts(Served(0, references - misses, misses), NONE, NONE, 100 * references, 0, 0, 0)


def done(misses: int, *, distances: tuple[int, ...] = (600, 400), quiet: int = 100, kernel: int = 1000) -> Done:
    """In a second, a VM accessed the L3 1000 times, and missed so many of these.

    :param distances: how many it would have found with one way, and how many more with two.
    :param quiet: instructions for each access.
    :param kernel: the kernel's instructions.
    """
    served, beyond = Served(0, 1000 - misses, misses), 1000 - sum(distances)
    curve = Curve((*distances, *(0,) * (16 - len(distances))), beyond)
    return Done(1.0, Counts(served, NONE, NONE, 1000 * quiet, 0, 0, 0), curve, kernel, 4 * kernel)


BEFORE = done(400)
"""With one way, as the distances say."""


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
        Step(1, Done(0.0, counts(0, 0), Curve((0, 0, 0), 0), 0, 0)),
        Step(2, Done(1.0, counts(0, 0), Curve((40, 30, 20), 10), 0, 0)),
        Step(0, Done(2.0, counts(0, 0), Curve((40, 30, 30), 100), 0, 0)),
    ]
    assert truth(steps) == {1: 0.6, 2: 1.0}


def test_new_samples_get_what_the_model_counted_and_are_noted_by_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"counts": counts(1000, 100)}
    monkeypatch.setattr(switch, "counts", lambda cpu, rmid: now["counts"])
    monkeypatch.setattr(switch, "curve", lambda cpu, rmid, ways: Curve((0,) * ways, 0))
    monkeypatch.setattr(msr, "read", lambda cpu, register: 0)
    watch = Watch(7, "vm", cpu=1)

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
    watch = Watch(7, "vm", cpu=1)
    watch.steps += [
        Step(1, Done(0.0, counts(0, 0), Curve((0,) * 16, 0), 0, 0)),
        Step(2, Done(1.0, counts(1000, 600), Curve((40, *(0,) * 15), 60), 1000, 4000)),
        Step(3, Done(2.0, counts(2000, 1000), Curve((80, 20, *(0,) * 14), 100), 2000, 8000)),
    ]
    for ways, missed in ((1, 0.6), (2, 0.4), (3, 0.9)):
        rates = Rates(5000.0, 2000.0, 100.0, 100.0 * missed)
        watch.samples[ways] = [Sample(float(at), {0: 100.0 * ways}, 50.0, rates) for at in range(6)]
    kept = figures(watch, BEFORE)
    assert kept["missed"] == {"1": 0.6, "2": 0.4} and kept["true"] == {"1": 0.6, "2": 0.4}
    assert kept["cut"] and kept["ended"] == "" and kept["samples"] == 18
    assert kept["cost"] < 0, "with more ways it missed less than it would have with one"


@pytest.mark.parametrize(("tried", "missed", "cut"), [(3, 0.4, True), (8, 0.4, False), (3, law.SURE, False)])
def test_a_trial_that_ended_early_is_cut_short_unless_the_vm_needs_no_more(
    tried: int, missed: float, cut: bool
) -> None:
    point = SimpleNamespace(missed=missed)
    found = law.Size({1: missed}, {}, 1, True, True)
    sized: Any = SimpleNamespace(
        tried=tried, room=SimpleNamespace(most=8), points=(point,), found=found, ended="the agent did not answer"
    )
    watch = Watch(7, "vm", cpu=1)
    watch.steps += [Step(1, Done(0.0, counts(0, 0), Curve((0,) * 16, 0), 0, 0)), Step(0, BEFORE)]
    rates = Rates(5000.0, 2000.0, 100.0, 40.0)
    watch.samples[1] = [Sample(float(at), {0: 100.0}, 50.0, rates) for at in range(6)]
    assert figures(watch, BEFORE, sized)["cut"] is cut


@pytest.mark.parametrize(
    ("during", "part"),
    [
        (done(400), 0.0),
        (done(400, quiet=30), 0.0),
        (done(0), -112 / 180),
        (done(800), 112 / 404),
        (done(400, kernel=2_000_000), 0.002),
    ],
    ids=["as before", "more of the clock's ticks", "more ways", "lines were lost", "more of the kernel's work"],
)
def test_what_it_costs_to_be_asked_is_seen_beside_what_the_same_work_would_have_taken(
    during: Done, part: float
) -> None:
    assert cost(BEFORE, during, ways=1) == pytest.approx(part, abs=0.0005)


def test_what_the_distances_are_wrong_by_costs_nothing() -> None:
    """The kernel's lines are found whatever ways the VM has, so it misses less than its distances say."""
    assert cost(done(390), done(390), ways=1) == pytest.approx(0.0)


def test_a_program_that_fails_does_not_end_the_others_and_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def worker(name: str, said: str) -> Any:
        (tmp_path / name).write_text(said)
        return SimpleNamespace(console=tmp_path / name, resume=lambda: None)

    def started(node: Any, names: Any) -> dict[str, Any]:
        return {"gzip": worker("gzip", "ready\n..Kernel panic"), "sort": worker("sort", "ready\n..")}

    def size(node: Any, worker: Any, cpu: int, note: Any) -> None:
        note({"cpu": cpu})

    told: list[Any] = []
    monkeypatch.setattr(size_programs, "_started", started)
    monkeypatch.setattr(size_programs, "_size", size)
    monkeypatch.setattr(size_programs, "tell", told.append)
    monkeypatch.setattr(linux, "versions", dict)
    monkeypatch.setattr(switch, "on", lambda **knobs: nullcontext())
    with pytest.raises(RuntimeError, match=r"not sized to the end: gzip$"):
        size_programs.run(MagicMock())
    assert told == [{"size_programs": {"versions": {}, "programs": {"sort": {"cpu": 2}}}}]
    assert "Kernel panic" in capsys.readouterr().err


def test_of_the_programs_that_are_not_run_what_was_found_before_is_kept() -> None:
    before = {"versions": {"gzip": "1.13"}, "programs": {"SQLite": 1, "LZ4": 2}}
    found = {"versions": {"gzip": "1.13"}, "programs": {"gzip": 3, "LZ4": 4}}
    assert list(joined(before, found)["programs"].items()) == [("LZ4", 4), ("gzip", 3), ("SQLite", 1)]
    assert joined(None, found)["programs"] == {"LZ4": 4, "gzip": 3}


def test_what_was_found_with_other_versions_of_the_programs_is_forgotten() -> None:
    before = {"versions": {"gzip": "1.12"}, "programs": {"SQLite": 1}}
    found = {"versions": {"gzip": "1.13"}, "programs": {"gzip": 3}}
    assert joined(before, found) == found


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
    good |= {"knee without": 2, "cost": -0.1, "samples": 60, "cut": False, "is steady": True}
    found = {"versions": {"gzip": "1.13"}, "programs": {"gzip": good | changes}}
    assert [claim.holds for claim in section(found).claims] == held


def test_vms_that_seemed_to_do_other_work_are_told() -> None:
    one = {"missed": {"1": 0.9}, "true": {"1": 0.9}, "knee": 1, "true knee": 1, "knee without": 1, "cost": 0.0}
    one |= {"samples": 6, "cut": False}
    programs = {"gzip": one | {"is steady": True}, "sort": one | {"is steady": False}}
    assert "1 of 2 VMs seemed to do other work" in section({"versions": {}, "programs": programs}).left_out
