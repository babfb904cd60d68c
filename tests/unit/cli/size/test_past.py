# SPDX-License-Identifier: Apache-2.0
"""``vmqos size --passive``, against an agent that is played."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent, serving

WAY = 1e6
GUIDE = Path(__file__).resolve().parents[4] / "doc/source/operator/size.rst"


class PastAgent(FakeAgent):
    """An agent that has samples of one VM.

    :ivar uuid: the VM.
    :ivar levels: what it held, in ways, and the share of its references that it missed then, one after the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self.uuid = examples.PLAIN
        self.levels = [(11.0, 0.5), (6.0, 0.9), (4.0, 0.92), (11.0, 0.5)]
        self.answers["/v1/neighbours/samples"] = lambda query: ("200 OK", json.dumps(self.samples()).encode())

    def samples(self) -> dict[str, Any]:
        rows = [level for level in self.levels for _ in range(6)]
        counts = {"cycles": 2e9, "instructions": 1e9, "references": 1e7}
        told = [
            {
                "time": 1e9 + 2 * at, "occupancy": {"0": ways * WAY}, "bandwidth": None,
                "counts": {**counts, "misses": 1e7 * missed},
            }
            for at, (ways, missed) in enumerate(rows)
        ]  # fmt: skip
        host = {
            "caches": {"0": {"size": int(16 * WAY), "ways": 16, "bandwidth": None}},
            "vms": {self.uuid: {"flavor": "m1", "masks": {"0": "7ff"}}},
            "memory_seconds": 1e-7,
            "memory_cycles": 250.0,
        }
        return {"host": host, "samples": {self.uuid: told}}


@pytest.fixture
def past(socket: str) -> Iterator[PastAgent]:
    agent = PastAgent()
    with serving(agent, socket):
        yield agent


def test_the_curve_is_told_as_far_as_the_vm_was_seen_and_nothing_is_tried(past: PastAgent, run: Run) -> None:
    ran = run("size", "plain", "--passive")
    assert (ran.status, ran.err) == (0, "")
    needs, shares, seen, _, titles, *bars, _, _ = ran.out.splitlines()
    assert needs == "plain gains by all 11 ways that its past tells of, and may gain by more."
    misses = "92.0 % with 4 ways, 50.0 % with 11 ways"
    assert shares == f"Of its references it misses {misses}. Less than 5 of 100 is no gain."
    held = "In the last 46 s it held what fits in between 4.0 and 11.0 of the 11 ways that it may fill."
    assert seen == f"Nothing was tried. {held}"
    assert titles.split() == ["Ways", "Misses"]
    assert [bar.split()[0] for bar in bars] == ["4", "6", "11"]
    assert bars[0].endswith("92.0 %, 5 samples ") and bars[2].endswith("50.0 %, 10 samples <")


def test_the_guide_shows_what_is_printed(past: PastAgent, run: Run) -> None:
    past.levels = [(11.0, 0.41), (8.1, 0.44), (6.2, 0.61), (3.1, 0.7), (8.1, 0.44), (11.0, 0.41)]
    shown = [line.strip().replace("batch-1", "plain") for line in GUIDE.read_text().splitlines()]
    printed = [line.strip() for line in run("size", "plain", "--passive").out.splitlines()[:8]]
    assert [line for line in printed if line not in shown] == []


@pytest.mark.parametrize(
    ("six", "four", "needs"),
    [
        (0.51, 0.54, "no more than 4 ways, the fewest that its past tells of"),
        (0.55, 0.9, "no more than 6 ways, and more than 4"),
    ],
)
def test_fewer_may_be_nearly_as_good(past: PastAgent, run: Run, six: float, four: float, needs: str) -> None:
    past.levels = [(11.0, 0.5), (6.0, six), (4.0, four)]
    assert run("size", "plain", "--passive").out.startswith(f"plain needs {needs}.\n")


def test_programs_get_an_object(past: PastAgent, run: Run) -> None:
    told = json.loads(run("size", "plain", "--passive", "-f", "json").out)
    assert [(one["ways"], one["samples"]) for one in told.pop("curve")] == [(4, 5), (6, 5), (11, 10)]
    assert told == {
        "vm": examples.PLAIN, "ways": 11, "fills": 11, "held_least": 4.0, "held_most": 11.0, "seconds": 46.0,
    }  # fmt: skip
    flat = run("size", "plain", "--passive", "-f", "value", "-c", "ways", "-c", "curve").out
    assert flat.split("\n")[:2] == ["11", "4=0.9200 6=0.9000 11=0.5000"]


def test_it_is_said_why_the_past_tells_nothing(past: PastAgent, run: Run) -> None:
    past.levels = [(5.0, 0.0), (4.0, 0.5)]
    ran = run("size", "plain", "--passive")
    assert ran.status == 1 and not ran.out
    assert "plain can't be sized: it held 45 % of what it may fill at most" in ran.err
    assert "between 4.0 and 5.0 of the 11 ways" in ran.err


@pytest.mark.parametrize(
    ("vm", "problem"), [("web-1", "it has ways of its own"), ("batch", "the agent has no samples of it")]
)
def test_a_vm_whose_past_can_tell_nothing_is_refused(past: PastAgent, run: Run, vm: str, problem: str) -> None:
    ran = run("size", vm, "--passive")
    assert ran.status == 1 and problem in ran.err


@pytest.mark.parametrize("more", [["--from", "1"], ["--most", "4"], ["--part", "code"]])
def test_what_tries_ways_does_not_go_with_it(past: PastAgent, run: Run, more: list[str]) -> None:
    ran = run("size", "plain", "--passive", *more)
    assert ran.status != 0 and "--passive is for one VM, and tries no ways" in ran.err
    assert "--passive is for one VM" in run("size", "--flavor", "m1.small", "--passive").err
