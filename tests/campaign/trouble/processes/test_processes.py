# SPDX-License-Identifier: Apache-2.0
"""Random trouble for the agent, its gateway, libvirtd and QEMU, as processes; the judge sits in the simulator."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.campaign.trouble import faults
from tests.campaign.trouble.processes import events, faulty_agent
from tests.campaign.trouble.processes import stage as stages
from tests.campaign.trouble.processes.events import EVENTS
from tests.campaign.trouble.processes.judging_simulator import VERDICTS
from tests.campaign.trouble.processes.migration import Migration
from tests.campaign.trouble.processes.stage import Stage
from tests.campaign.trouble.story import Outcome
from tests.campaign.trouble.verdicts import Kind
from tests.functional.agent.stopped import stopped
from tools.lab import processes
from tools.lab.program import Program

SECONDS = float(os.environ.get("VMQOS_TROUBLE_SECONDS", "10"))
"""For each machine, and until the agent was killed, a VM has left and one has come, each at least once."""
BETWEEN_TWO_QUIETS = 4
"""Events."""
GIVE_UP = 120.0
"""Seconds after which an agent that does nothing wrong is not waited for any longer."""
MACHINES = ("cascade-lake", "milan")


@pytest.mark.timeout(600 + SECONDS)
@pytest.mark.parametrize("simulator", MACHINES, indirect=True)
@pytest.mark.parametrize("seed", [int(os.environ.get("VMQOS_TROUBLE_SEED", "1"))])
def test_no_promise_is_broken_whichever_process_dies(stage: Stage, seed: int, outcomes: dict[str, Outcome]) -> None:
    luck = random.Random(seed)
    until = time.monotonic() + SECONDS
    with stages.load():
        while not stage.outcome.violations and (
            choice := EVENTS if time.monotonic() < until else events.lacking(stage)
        ):
            event = luck.choice(choice)
            stage.happened.append(event.__name__)
            event(stage, luck)
            stage.outcome.events += 1
            if stage.outcome.events % BETWEEN_TWO_QUIETS == 0:
                stage.settle()
        if not stage.outcome.violations:
            stage.settle()
    outcome = stage.close()
    outcomes[f"{stage.simulator.profile}, processes"] = outcome
    if outcome.violations:
        print("\n".join(stage.happened))
    again = f"VMQOS_TROUBLE_SEED={seed} python -m pytest {os.path.relpath(__file__)} -k {stage.simulator.profile}"
    assert not outcome.violations, "\n".join([*map(str, outcome.violations[:5]), f"play it again: {again}"])


def test_an_agent_that_lost_the_kernels_word_watches_anew_and_serves_all(stage: Stage) -> None:
    luck = random.Random(1)
    stage.start_vm(luck)
    stage.settle()
    for _ in range(2):
        stage.overflow_inotify(luck)
        stage.settle()
    assert "it is watched anew" in stage.agent.log.read_text()
    assert stage.actors and not stage.close().violations


def test_a_fault_that_this_version_logs_is_one_and_what_the_version_before_logs_is_none(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    luck = random.Random(1)
    stage.install(is_new=False)
    for program in (stage.agent, stage.agent.gateway):
        program.log.write_text("Traceback (most recent call last):\n")
    stage.install(is_new=True)
    stage.start_vm(luck)
    stage.settle()
    assert not stage.close().violations
    replace_agent(stage, faults.a_start_breaks_the_agent, monkeypatch)
    stage.start_vm(luck)
    stage.settle()
    found = stage.close().violations
    assert {violation.kind for violation in found} == {Kind.FAULT} and "a fault of ours" in found[0].text


def test_an_agent_that_gives_a_vm_up_before_it_has_left_is_noticed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.actors += [stage.run_vm(stage.host, {"hw:cache_ways": "2"}) for _ in range(2)]
    stage.tell_truth()
    stage.settle()
    replace_agent(stage, faults.a_vm_that_migrates_is_given_up, monkeypatch)
    stage.settle()
    leaving = stage.actors[0]
    with Migration(leaving.running, stage.other, undefines=False, bandwidth=events.SLOWLY) as migration:
        stage.others.append(stage.actor(migration.arriving, leaving.truth.specs))
        stage.tell_truth()
        # So it does not leave before.
        with stopped(migration.arriving.pid):
            what = "a verdict on a VM that has not left yet"
            processes.wait_until((stage.folder / VERDICTS).exists, what, GIVE_UP)
        migration.cancel()
    assert {violation.kind for violation in stage.close().violations} == {Kind.OVERLAP}


def replace_agent(stage: Stage, fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an agent with a fault take the place of the one that runs; the next start is of one without."""
    stage.agent.kill()
    launch = stage.agent._launch

    def with_fault(module: str, arguments: Sequence[str], log: Path) -> Program:
        return launch(faulty_agent.__name__, [fault.__name__, *arguments], log)

    with monkeypatch.context() as patch:
        patch.setattr(stage.agent, "_launch", with_fault)
        stage.agent.start()
