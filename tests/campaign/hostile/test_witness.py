# SPDX-License-Identifier: Apache-2.0
"""Harm of every kind that the witness looks for is noticed: it is planted here, by root's own hand."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import pytest

from tests.campaign.hostile.campaign import Campaign
from tests.campaign.hostile.families import neighbours
from tests.campaign.hostile.inputs import Attacker, Family, Hold, Input, Outcome, Result
from tests.campaign.hostile.stage import Stage
from tests.campaign.hostile.usage import MEMORY_MARGIN
from tests.campaign.hostile.witness import GIVE_UP, POLL, WITHIN, group_of

STOPPED = 3.0
"""Seconds for which a process is stopped."""

A_LITTLE_LATE = WITHIN + 0.4
"""Seconds: a little more than a VM may wait."""


class Plant(Protocol):
    """Try an input that is none of the campaign's.

    :param simulator_works: as of :class:`Input`.
    """

    def __call__(self, act: Callable[[Stage], Hold], simulator_works: bool = False) -> Outcome: ...


@pytest.fixture
def planted(campaign: Campaign) -> Plant:
    """Tries such inputs, which do not count in the campaign's table."""

    def plant(act: Callable[[Stage], Hold], simulator_works: bool = False) -> Outcome:
        planted = Input("planted", Attacker.NEIGHBOUR, act, simulator_works=simulator_works)
        family = Family("planted", "planted", (planted,))
        return Campaign(campaign.stage, campaign.witness).try_batch(family, family.inputs)[0]

    return plant


@contextlib.contextmanager
def stopped(stage: Stage, pid: int, seconds: float = STOPPED, *, in_a_resize: bool = False) -> Iterator[None]:
    """A process is stopped from now on, for some seconds in which the machine has a CPU for the witness.

    :param in_a_resize: whether these are seconds of one and the same resize of the witness's.
    """

    def let_go_on() -> None:
        until = time.monotonic() + GIVE_UP
        while time.monotonic() < until:
            since = stage.witness.resizes_since if in_a_resize else began
            if since is not None and stage.stalls.took(max(since, began)) >= seconds:
                break
            time.sleep(POLL)
        os.kill(pid, signal.SIGCONT)

    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    thread = threading.Thread(target=let_go_on)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def nothing(stage: Stage) -> Hold:
    yield


def agent_stops(stage: Stage) -> Hold:
    with stopped(stage, stage.pid):
        yield


def agent_stops_for_a_little_too_long(stage: Stage) -> Hold:
    with stopped(stage, stage.pid, A_LITTLE_LATE, in_a_resize=True):
        yield


def agent_stops_while_tasks_are_taken(stage: Stage) -> Hold:
    with contextlib.ExitStack() as leaving:
        # An agent that is stopped with the lock in its hands would keep the tasks from being taken.
        with neighbours.locked(stage.simulator.root):
            leaving.enter_context(stopped(stage, stage.pid, STOPPED + neighbours.TOLD_WITHIN))
        yield from neighbours.taken(stage, "foreign")


def resctrl_stops(stage: Stage) -> Hold:
    assert stage.simulator.pid is not None
    with stopped(stage, stage.simulator.pid):
        time.sleep(STOPPED + 0.5)
        yield


def agent_dies(stage: Stage) -> Hold:
    stage.agent.kill()
    yield


def gateway_dies(stage: Stage) -> Hold:
    stage.agent.gateway.kill()
    yield


def log_grows(text: bytes, stage: Stage) -> Hold:
    with stage.agent.log.open("ab") as log:
        log.write(text)
    yield


def unmended(change: Callable[[Stage], None], stage: Stage) -> Hold:
    """Something is changed while the agent is stopped, which would mend it within a moment."""
    with stopped(stage, stage.pid):
        change(stage)
        yield


def tasks_stray(stage: Stage) -> None:
    for tid in stage.witness.steady.tasks():
        (stage.simulator.root / "tasks").write_text(f"{tid}\n")


def masks_overlap(stage: Stage) -> None:
    for group in stage.tree.groups():
        # The kernel refuses masks that overlap an exclusive group's. Besides the two VMs' there may be that of one that
        # has just ended.
        (stage.simulator.root / group / "mode").write_text("shareable\n")
    whole = f"{stage.tree.every_way:x}"
    (stage.simulator.root / "schemata").write_text(f"L3:0={whole};1={whole}\n")


def promise_shrinks(stage: Stage) -> None:
    # Of the group's own ways, which no other group may have: the lowest.
    masks = stage.tree.masks(group_of(stage.witness.steady))
    text = ";".join(f"{cache}={mask & -mask:x}" for cache, mask in masks.items())
    (stage.simulator.root / group_of(stage.witness.steady) / "schemata").write_text(f"L3:{text}\n")


def test_an_input_that_does_nothing_does_no_harm(planted: Plant) -> None:
    outcome = planted(nothing)
    assert outcome.result is Result.HARMLESS, outcome.evidence


@pytest.mark.parametrize(
    ("act", "seen"),
    [
        pytest.param(agent_stops, "health", id="the agent is stopped for three seconds"),
        pytest.param(agent_stops_for_a_little_too_long, "resize took", id="the agent is stopped for a little too long"),
        pytest.param(
            agent_stops_while_tasks_are_taken, "the agent telling of it", id="the agent does not tell of taken tasks"
        ),
        pytest.param(resctrl_stops, "resize", id="resctrl hangs for three seconds"),
        pytest.param(agent_dies, "the agent has ended", id="the agent dies"),
        pytest.param(gateway_dies, "the gateway has ended", id="the gateway dies"),
        pytest.param(partial(log_grows, b"again\n" * 20_000), "the logs grew", id="the log is flooded"),
        pytest.param(partial(log_grows, b"\x1b[2J\n"), "control characters", id="the log moves the cursor"),
        pytest.param(partial(unmended, tasks_stray), "are not in", id="the tasks of a VM are moved away"),
        pytest.param(partial(unmended, masks_overlap), "shares ways", id="the default group gets the ways of a VM"),
        pytest.param(partial(unmended, promise_shrinks), "was promised 2 ways", id="a VM loses its ways"),
    ],
)
def test_planted_harm_is_noticed(planted: Plant, act: Callable[[Stage], Hold], seen: str) -> None:
    outcome = planted(act)
    assert outcome.result is Result.HARMED
    assert seen in outcome.evidence


def test_an_agent_that_is_late_is_noticed_where_the_simulators_own_work_is_allowed_for(planted: Plant) -> None:
    outcome = planted(agent_stops, simulator_works=True)
    assert outcome.result is Result.HARMED
    assert "resize took" in outcome.evidence


@pytest.mark.parametrize("program", ["the agent", "the gateway"])
def test_memory_beyond_the_margin_is_noticed(planted: Plant, campaign: Campaign, program: str) -> None:
    usage = campaign.witness.usage
    before = usage.memory
    usage.memory = before | {program: before[program] - 2 * MEMORY_MARGIN}
    try:
        outcome = planted(nothing)
    finally:
        usage.memory = before
    assert outcome.result is Result.HARMED
    assert f"{program} took" in outcome.evidence and "more memory" in outcome.evidence
