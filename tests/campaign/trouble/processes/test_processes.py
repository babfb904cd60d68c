# SPDX-License-Identifier: Apache-2.0
"""Random trouble for the agent, its gateway, libvirtd and QEMU, as processes; the judge sits in the simulator."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.campaign.trouble.processes import stage as stages
from tests.campaign.trouble.processes.stage import EVENTS, Stage
from tests.campaign.trouble.story import Outcome

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
