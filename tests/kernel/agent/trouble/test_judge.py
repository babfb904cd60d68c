# SPDX-License-Identifier: Apache-2.0
"""The judge of trouble notices what another process does wrong while the agent is stopped."""

from __future__ import annotations

import os
import subprocess
import uuid

import pytest

from tests.campaign.trouble.verdicts import Kind
from tests.functional.conftest import WaitFor
from tests.kernel.agent.trouble.stage import Stage

pytestmark = [pytest.mark.guest(machines=("cascade-lake",), kernels=("6.12",)), pytest.mark.long]

OWN = {"hw:cache_ways": "2"}
EVERY_WAY = "L3:0=7ff;1=7ff"


def test_what_another_process_does_wrong_is_noticed(stage: Stage, wait_for: WaitFor) -> None:
    def noticed(text: str) -> None:
        wait_for(lambda: is_noticed(stage, text), f"the judge noticing that {text}")

    # Otherwise the kernel would refuse to give these ways to another group.
    stage.reload_agent({"kernel_exclusive": False, "default_ways_min": 2})
    first, second = (stage.start_vm(OWN).truth for _ in range(2))
    stage.be_quiet()
    assert not stage.violations()
    assert first.in_force and second.in_force
    rows = stage.agent.get("/v1/vms")["vms"]
    with stage.stopped_agent():
        write(stage, "schemata", EVERY_WAY)
        noticed("the default group has 7ff")
        first.in_force = second.in_force = False
        # That two VMs have the same ways is wrong whatever was promised.
        write(stage, f"{first.group}/schemata", EVERY_WAY)
        noticed("both have")
        write(stage, f"{first.group}/tasks", str(second.pid))
        noticed(f"1 tasks of {second.group} were moved to {first.group}")
        left = f"vmqos.{uuid.uuid4()}"
        os.mkdir(stage.root / left)
        found = stage.judge.unsettled(rows, stage.ways, 2)
        for kind, name in ((Kind.LEAK, left), (Kind.UNSERVED, second.group), (Kind.WORD, first.group)):
            assert any(one.kind is kind and name in one.text for one in found), f"{kind} of {name} among {found}"
    stage.be_quiet()
    assert not stage.outcome.violations, "the agent mends all of it"


def write(stage: Stage, path: str, text: str) -> None:
    """Write to a file of resctrl in another process, which the witness stops."""
    subprocess.run(["sh", "-c", 'echo "$1" >"$2"', "sh", text, str(stage.root / path)], check=True)


def is_noticed(stage: Stage, text: str) -> bool:
    """Whether the judge has noticed it since it was asked last."""
    if not any(text in violation.text for violation in stage.judge.violations):
        return False
    stage.judge.violations.clear()
    return True
