# SPDX-License-Identifier: Apache-2.0
"""Who slows whom, asked from a real agent over the simulator: what it judges by is what a recording has."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.test_commands import WAYS_2, read, settled, vmqos, while_fresh
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.agent import Agent

INTERVAL = 0.2
SAMPLES = 12


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """An agent that looks at the counters often."""
    made = make_agent({"telemetry": {"interval": str(INTERVAL)}})
    made.start()
    return made


def test_what_is_said_of_vms_at_rest_can_be_recorded_and_is_said_again(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, tmp_path: Path
) -> None:
    own, other = make_vm(WAYS_2, display_name="own"), make_vm(display_name="other")
    wait_for(lambda: settled(agent, own.uuid), "the VM having its ways")
    told: dict[str, Any] = {}

    def is_judged() -> bool:
        told.clear()
        told.update(read(agent, "neighbours"))
        # While they start, they are not at rest: on a slow machine one may seem to slow the other then.
        is_at_rest = not told["pairs"] and {vm["uuid"] for vm in told["vms"]} == {own.uuid, other.uuid}
        return told["samples"] >= SAMPLES and is_at_rest

    wait_for(is_judged, "some samples of both VMs")
    assert (told["pairs"], told["interval"], told["counted"]) == ([], INTERVAL, False)
    said = while_fresh(lambda: vmqos(agent, "neighbours"))
    assert (said.returncode, said.stderr) == (0, "")
    assert "No VM slows another" in said.stdout and "without hardware events" in said.stdout

    samples = agent.get("/v1/neighbours/samples")
    caches = {vm["masks"].keys() == {"0", "1"} for vm in samples["host"]["vms"].values()}
    assert caches == {True}
    masks = {uuid: int(vm["masks"]["0"], 16) for uuid, vm in samples["host"]["vms"].items()}
    assert masks[own.uuid].bit_count() == 2 and not masks[own.uuid] & masks[other.uuid]

    numbers = itertools.count()

    def is_said_again() -> bool:
        """The verdict follows the samples: what is recorded is what is told now, unless that changes meanwhile."""
        file = tmp_path / f"recording-{next(numbers)}.jsonl"
        now = read(agent, "neighbours")
        done = vmqos(agent, "record", "--seconds", "0", "-o", str(file))
        assert done.returncode == 0, done
        text = file.read_text()
        assert own.uuid not in text and "own" not in text
        again = vmqos(agent, "replay", str(file), "-f", "json")
        assert again.returncode == 0, again
        replayed = json.loads(again.stdout)
        (last,) = replayed if isinstance(replayed, list) else (replayed,)
        assert last["pairs"] == [] and len(last["vms"]) == 2
        return sorted(vm["use"] for vm in last["vms"]) == sorted(vm["use"] for vm in now["vms"])

    wait_for(is_said_again, "the replay saying what the agent said")


def test_a_vm_that_has_ended_is_in_no_verdict(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> None:
    one, other = make_vm(WAYS_2), make_vm(WAYS_2)
    wait_for(lambda: settled(agent, one.uuid, other.uuid), "both VMs having their ways")
    wait_for(lambda: len(read(agent, "neighbours")["vms"]) == 2, "a verdict on both")
    one.domain.destroy()
    wait_for(lambda: [vm["uuid"] for vm in read(agent, "neighbours")["vms"]] == [other.uuid], "one VM less")
    wait_for(lambda: one.uuid not in agent.get("/v1/neighbours/samples")["samples"], "its samples being forgotten")
