# SPDX-License-Identifier: Apache-2.0
"""A cache comes and goes with its CPUs: the promises follow at once, not with the next full audit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional.agent.steered_simulator import Steer, steered
from tests.functional.agent.test_lifecycle import EXCLUSIVE_4, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator

NEVER = {"agent": {"full_audit_interval": 3600.0}}

AT_ONCE = 60.0
"""Seconds, on a machine that is busy; a quick audit comes five times a second, a full one not for an hour."""


@pytest.fixture
def switch(simulator: Simulator) -> Iterator[Steer]:
    """Switches a CPU of the machine, by such as ``offline 1``."""
    with steered(simulator, "cascade-lake") as steer:
        yield steer


@pytest.fixture
def second(simulator: Simulator) -> int:
    """The CPU of the second cache."""
    cpus = sorted(int(path.name.removeprefix("cpu")) for path in simulator.sysfs.iterdir())
    assert len(cpus) == 2, f"this test switches the second of two CPUs, and the machine has {cpus}"
    return cpus[1]


def has_its_ways(tree: Tree, agent: Agent, uuid: str, name: str, caches: set[int]) -> bool:
    told = agent.get(f"/v1/vms/{uuid}")
    masks = tree.masks(name)
    return (
        told["state"] == "kept"
        and {int(cache): int(mask, 16) for cache, mask in told["masks"].items()} == masks
        and masks.keys() == caches == set(told["caches"])
        and {mask.bit_count() for mask in masks.values()} == {4}
        and not list(tree.violations([name]))
        and {cache["id"] for cache in agent.get("/v1/caches")["caches"]} == caches
    )


def test_promises_follow_a_cache_that_goes_and_comes_back(
    switch: Steer, make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor, second: int
) -> None:
    agent, vm = make_agent(NEVER), make_vm(EXCLUSIVE_4)
    agent.start()
    for action, caches in (("", {0, 1}), (f"offline {second}", {0}), (f"online {second}", {0, 1})) * 2:
        if action:
            switch(action)
        wait_for(
            lambda caches=caches: has_its_ways(tree, agent, vm.uuid, group(vm), caches),  # type: ignore[misc]
            f"the VM having its ways on {caches} after {action or 'its start'}",
            AT_ONCE,
        )


def test_a_cache_that_was_offline_when_the_agent_started_is_seen_when_it_comes(
    switch: Steer, make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor, second: int
) -> None:
    switch(f"offline {second}")
    agent, vm = make_agent(NEVER), make_vm(EXCLUSIVE_4)
    agent.start()
    wait_for(lambda: has_its_ways(tree, agent, vm.uuid, group(vm), {0}), "the VM having its ways on the one cache")
    switch(f"online {second}")
    wait_for(lambda: has_its_ways(tree, agent, vm.uuid, group(vm), {0, 1}), "the VM having its ways on both", AT_ONCE)
    (late,) = (cache for cache in agent.get("/v1/caches")["caches"] if cache["id"] == 1)
    assert str(second) in late["cpus"] and late["size_bytes"]
