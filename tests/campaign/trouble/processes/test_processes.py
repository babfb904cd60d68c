# SPDX-License-Identifier: Apache-2.0
"""Random trouble for the agent, its gateway, libvirtd and QEMU, as processes; the judge sits in the simulator."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.campaign.trouble.processes import faulty_agent
from tests.campaign.trouble.processes import stage as stages
from tests.campaign.trouble.processes.stage import EVENTS, Stage
from tests.campaign.trouble.story import Outcome
from tests.campaign.trouble.verdicts import Kind

SECONDS = float(os.environ.get("VMQOS_TROUBLE_SECONDS", "10"))
"""For each machine, and until the agent was killed at least once."""
BETWEEN_TWO_QUIETS = 4
"""Events."""
MACHINES = ("cascade-lake", "milan")


@pytest.mark.timeout(600 + SECONDS)
@pytest.mark.parametrize("simulator", MACHINES, indirect=True)
@pytest.mark.parametrize("seed", [int(os.environ.get("VMQOS_TROUBLE_SEED", "1"))])
def test_no_promise_is_broken_whichever_process_dies(stage: Stage, seed: int, outcomes: dict[str, Outcome]) -> None:
    luck, happened = random.Random(seed), list[str]()
    until = time.monotonic() + SECONDS
    with stages.load():
        while not stage.outcome.violations and (
            time.monotonic() < until or not (stage.outcome.kills and stage.outcome.quiets)
        ):
            event = luck.choice(EVENTS)
            happened.append(event.__name__)
            event(stage, luck)
            stage.outcome.events += 1
            if stage.outcome.events % BETWEEN_TWO_QUIETS == 0:
                stage.settle()
    outcome = stage.close()
    outcomes[f"{stage.simulator.profile}, processes"] = outcome
    if outcome.violations:
        print("\n".join(happened))
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
    stage.agent.kill()
    with monkeypatch.context() as patch:
        # It has a module of its own, and all else is as it is.
        launch = stage.agent._launch
        patch.setattr(stage.agent, "_launch", lambda _, *given: launch(faulty_agent.__name__, *given))
        stage.agent.start()
    stage.start_vm(luck)
    stage.settle()
    found = stage.close().violations
    assert {violation.kind for violation in found} == {Kind.FAULT} and "a fault of ours" in found[0].text
