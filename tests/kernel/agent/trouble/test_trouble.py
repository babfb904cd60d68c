# SPDX-License-Identifier: Apache-2.0
"""Random trouble for the agent on a kernel's own resctrl."""

from __future__ import annotations

import pytest

from tests.kernel.agent.trouble.stage import Stage
from tests.kernel.agent.trouble.story import SEED, STORIES, Story, play, told
from tests.kernel.pytest_guest import GuestMachine

pytestmark = [
    pytest.mark.guest(machines=("cascade-lake",), kernels=("6.12",)),
    pytest.mark.long,
    pytest.mark.timeout(2400),
]


@pytest.mark.parametrize("seed", range(SEED, SEED + STORIES))
def test_nothing_that_happens_breaks_a_promise(stage: Stage, guest_machine: GuestMachine, seed: int) -> None:
    story = Story(f"{guest_machine.name}-{guest_machine.kernel}", seed)
    outcome = play(story, stage)
    judge = stage.judge
    print(
        f"{outcome.events} events, {outcome.kills} deaths of the agent, {len(judge.signalled)} signals at writes, "
        f"{judge.looks} looks at {judge.promises} promises in force, {outcome.quiets} quiet moments, "
        f"the longest of {outcome.longest:.1f} s"
    )
    assert not outcome.violations, told(story, outcome)
