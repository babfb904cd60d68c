# SPDX-License-Identifier: Apache-2.0
"""Ways that somebody has pseudo-locked are taken, also when their group is gone and its device was open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional.agent.steered_simulator import Steer, steered
from tests.functional.agent.test_lifecycle import EXCLUSIVE_4, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.simulator import Simulator

pytestmark = pytest.mark.feature("lock", machine="broadwell")

LOCKED = 0x3
TOO_MANY = {"hw:cache_ways": "13"}
"""Of Broadwell's 20 ways, 2 stay with the default group, 4 are the first VM's and 2 are locked."""


@pytest.fixture
def steer(simulator: Simulator) -> Iterator[Steer]:
    with steered(simulator, "broadwell") as steer:
        yield steer


@pytest.fixture
def locked(steer: Steer, tree: Tree) -> str:
    """A group of somebody who pseudo-locked two ways of cache 0."""
    (tree.root / "schemata").write_text("L3:0=ffffc\n")
    (tree.root / "realtime").mkdir()
    (tree.root / "realtime" / "mode").write_text("pseudo-locksetup\n")
    (tree.root / "realtime" / "schemata").write_text(f"L3:0={LOCKED:x}\n")
    assert tree.mode("realtime") == "pseudo-locked"
    return "realtime"


def test_pseudo_locked_ways_are_taken_until_the_kernel_lets_go_of_them(
    steer: Steer, make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor, locked: str
) -> None:
    agent, first = make_agent(), make_vm(EXCLUSIVE_4)
    agent.start()
    wait_for(lambda: agent.get(f"/v1/vms/{first.uuid}")["state"] == "kept", "the first VM being kept")
    second = make_vm(TOO_MANY)
    wait_for(lambda: locked in agent.get(f"/v1/vms/{second.uuid}")["reason"], "the reason naming the group")
    steer(f"open {locked}")
    (tree.root / locked).rmdir()
    wait_for(
        lambda: "pseudo-locked by a group that is gone" in agent.get(f"/v1/vms/{second.uuid}")["reason"],
        "the reason telling that the group is gone",
    )
    assert agent.get(f"/v1/vms/{second.uuid}")["state"] == "pending"
    assert not agent.get("/v1/health")["last_error"]
    assert "failed" not in agent.log.read_text()
    assert not any(tree.masks(name)[0] & LOCKED for name in ("", group(first)))
    (cache,) = (cache for cache in agent.get("/v1/caches")["caches"] if cache["id"] == 0)
    (left,) = (one for one in cache["groups"] if one["owner"] == "foreign")
    assert int(left["mask"], 16) == LOCKED and left["mode"] == "pseudo-locked"
    steer("close 0")
    wait_for(lambda: agent.get(f"/v1/vms/{second.uuid}")["state"] == "kept", "the second VM being kept")
    assert not list(tree.violations([group(first), group(second)]))


def test_an_agent_that_starts_finds_ways_that_were_left_locked(
    steer: Steer, make_agent: MakeAgent, tree: Tree, make_vm: MakeVm, wait_for: WaitFor, locked: str
) -> None:
    steer(f"open {locked}")
    (tree.root / locked).rmdir()
    vm, agent = make_vm({"hw:cache_ways": "16"}), make_agent()
    assert agent.run_once() == 0
    assert {mask.bit_count() for mask in tree.masks(group(vm)).values()} == {16}
    assert not any(tree.masks(name)[0] & LOCKED for name in ("", group(vm)))
    assert "failed" not in agent.log.read_text()
