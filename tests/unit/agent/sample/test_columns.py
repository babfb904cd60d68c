# SPDX-License-Identifier: Apache-2.0
"""What is remembered and told of a sweep is the same, whether its columns are used or each VM is looked at."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.telemetry.tree import ONE, THREE, TWO, Tree
from vmqos.agent.sample.hardware_counts import VmCounts
from vmqos.agent.sample.sampler import Telemetry
from vmqos.agent.serve.counters import Counters
from vmqos.resctrl.mount import Mount
from vmqos.telemetry import Snapshot, Sweeper

Change = Callable[[Tree, dict[str, Path]], object]
CHANCE = random.Random(7)


def lost(tree: Tree, groups: dict[str, Path]) -> None:
    tree.set(groups[ONE], "mbm_total_bytes", "Unassigned")


def back(tree: Tree, groups: dict[str, Path]) -> None:
    tree.set(groups[TWO], "mbm_local_bytes", 0, 1)


def came(tree: Tree, groups: dict[str, Path]) -> None:
    groups[THREE] = tree.vm(THREE, llc_occupancy=1, mbm_local_bytes=2, mbm_total_bytes=3)


def promised(tree: Tree, groups: dict[str, Path]) -> None:
    tree.control("vmqos.shared-ways2", "3")


def nothing(tree: Tree, groups: dict[str, Path]) -> None:
    pass


class Run:
    """A sampler over a tree, and one that is given the same sweeps without their columns."""

    def __init__(self, tree: Tree, counted: Mapping[str, VmCounts] | None, nodes: int) -> None:
        self.sweeps: list[Snapshot] = []
        executed = None if counted is None else lambda: counted
        self.fast, self.slow = (Telemetry(str(tree.root), 1.0, 60.0, minutes=5, executed=executed) for _ in range(2))
        self._sweeper: Sweeper = self.fast._sweeper
        self.fast._sweeper = self  # type: ignore[assignment]
        self.slow._sweeper = self  # type: ignore[assignment]
        self.told = {self.fast: Counters(), self.slow: Counters()}
        self._given: Snapshot | None = None

    def sweep(self) -> Snapshot:
        assert self._given is not None
        return self._given

    def step(self, wall: float) -> None:
        self._given = replace(self._sweeper.sweep(), wall=wall)
        self.sweeps.append(self._given)
        self.fast._sweep(True)
        self._given = replace(self._given, columns=None)
        self.slow._sweep(True)

    def both(self, ask: Callable[[Telemetry], Any]) -> None:
        assert ask(self.fast) == ask(self.slow)


@pytest.mark.parametrize("change", [nothing, lost, back, came, promised])
@pytest.mark.parametrize(
    "counted",
    [
        None,
        {
            ONE: VmCounts(0.0, (1, 1, 1, 1), (2.0, 1.0, 0.5, 0.25)),
            THREE: VmCounts(0.0, (1, 1, 1, 1), (0.0, 1.0, 0.5, 0.25)),
        },
    ],
    ids=["", "counted"],
)
@pytest.mark.parametrize("nodes", [0, 2])
def test_columns_tell_what_the_readings_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, counted: Any, nodes: int
) -> None:
    monkeypatch.setattr("vmqos.resctrl.mount.find", lambda path, **_: Mount(path, frozenset(), False, True))
    tree = Tree(tmp_path, nodes=nodes)
    groups = {uuid: tree.vm(uuid) for uuid in (ONE, TWO)}
    run = Run(tree, counted, nodes)
    for number in range(1, 22):
        if number == 8:
            change(tree, groups)
        for group in groups.values():
            for cache in tree.caches:
                tree.set(group, "llc_occupancy", CHANCE.randrange(10**9), cache)
                if not (change in (lost, back) and number == 8):
                    tree.set(group, "mbm_local_bytes", number * 10**8 + CHANCE.randrange(10**6), cache)
                    tree.set(group, "mbm_total_bytes", number * 2 * 10**8 + CHANCE.randrange(10**6), cache)
        run.step(1_800_000_000.0 + 9 * number)
        run.both(lambda one: {uuid: vars_of(rate) for uuid, rate in one.sampled()[1].items()})
        run.both(lambda one: (one.measured(), one._is_waiting))
        run.both(lambda one: run.told[one].telemetry(*one.sampled(), 1.0))
        run.both(lambda one: run.told[one].telemetry(one.sampled()[0], None, 1.0))
    used = [sweep.columns is not None for sweep in run.sweeps]
    assert used == [change is not lost or number < 8 for number in range(1, 22)], "later sweeps carry what was lost"
    for history in (lambda one: one._history, lambda one: one.recent._history):
        run.both(lambda one, of=history: repr(of(one).columns(0.0)))  # type: ignore[misc]
    run.both(lambda one: repr(one.minutes.copy()))
    assert len(run.fast._history.columns(0.0).times) == 21 and len(run.fast.minutes.copy().times) >= 2
    run._sweeper.close()


def vars_of(rate: Any) -> tuple[Any, ...]:
    return rate.total, rate.local, rate.remote, rate.seconds, rate.packages
