# SPDX-License-Identifier: Apache-2.0
"""The rules hold after every single step, whatever happens to a host.

A plain run tells a fixed number of stories, and some that hypothesis makes up. ``VMQOS_ORACLE_STORIES=100000`` in the
environment tells that many, other ones each time; a failure names its seed.
"""

from __future__ import annotations

import ast
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmqos.allocation
from tests.unit.allocation import brute_force, oracle
from tests.unit.allocation.machines import machine, request, uuid
from tests.unit.allocation.oracle import Broken, Host, Oracle, Parts, follow
from tests.unit.allocation.story import Story
from vmqos.allocation import Allocation, Plan, Policy, PromiseState, WriteMasks, reasons
from vmqos.group_names import vm_group
from vmqos.resctrl.bitmask import CapacityBitmask

STORIES = int(os.environ.get("VMQOS_ORACLE_STORIES", "300"))
FIRST = random.SystemRandom().randrange(1 << 40) if "VMQOS_ORACLE_STORIES" in os.environ else 0


def test_the_rules_hold_after_every_step_of_many_stories() -> None:
    told = set[str]()
    for seed in range(FIRST, FIRST + STORIES):
        tale = Story(random.Random(seed))
        try:
            tale.go()
        except Broken as broken:
            broken.add_note(f"with the seed {seed}")
            raise
        told |= {cache_ways.strip().split("(")[0] for cache_ways in tale.log}
    # And there was everything in them that a host goes through.
    for words in (
        "SetExclusive",
        "WriteThrottles",
        "RemoveGroup",
        "CreateGroup",
        "WriteMasks",
        "the agent starts anew",
    ):
        assert words in told
    for words in ("an outsider writes", "an outsider removes", "foreign", "cache", "resize", "pin", "stop", "Policy"):
        assert any(cache_ways.startswith(words) for cache_ways in told), words


@settings(max_examples=60)
@given(st.randoms(use_true_random=False))
def test_and_of_stories_that_are_made_as_short_as_can_be_when_one_fails(luck: random.Random) -> None:
    Story(luck).go(3)


@pytest.mark.parametrize("module", [oracle, brute_force], ids=lambda module: module.__name__.rpartition(".")[2])
def test_the_oracle_takes_values_from_the_planner_and_no_code(module: object) -> None:
    tree = ast.parse(Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8"))
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vmqos.allocation")
        for alias in node.names
    }
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert {name for name in modules if name.startswith("vmqos.allocation")} <= {"vmqos.allocation"}
    assert {getattr(vmqos.allocation, name).__module__ for name in names} <= {"vmqos.allocation.model", "types"}
    assert not {name for name in modules if name.startswith("tests")} - {"tests.unit.allocation.brute_force"}


def host(**masks: dict[int, set[int]]) -> Host:
    """A machine of 8 ways; the default group is called ``default``, VMs ``v`` and their number."""
    found = Host(machine(8, (0,)))
    names = {name: vm_group(uuid(int(name[1:]))) if name[0] == "v" else name.replace("default", "") for name in masks}
    found.groups = {
        names[name]: {cache: Parts(frozenset(ways), frozenset(ways)) for cache, ways in each.items()}
        for name, each in masks.items()
    }
    return found


def wrote(name: str, ways: set[int]) -> WriteMasks:
    return WriteMasks(name, {0: CapacityBitmask(sum(1 << way for way in ways))})


A, B = vm_group(uuid(1)), vm_group(uuid(2))


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        pytest.param(wrote("", {1, 2, 3}), 1, id="the default group takes a VM's way"),
        pytest.param(wrote("", {7}), 2, id="the default group goes below its floor"),
        pytest.param(wrote(A, {0, 2}), 3, id="a mask has a gap"),
        pytest.param(wrote(A, {0}), 4, id="a VM loses a way"),
        pytest.param(wrote("pqos", {6}), 7, id="a foreign group is written"),
    ],
)
def test_a_step_that_breaks_a_rule_is_told_by_its_number(step: WriteMasks, rule: int) -> None:
    found = host(default={0: {5, 6, 7}}, v1={0: {0, 1}}, pqos={0: {4}})
    watch = Oracle(found, [request(1, 2)], Policy(kernel_exclusive=False), calm=True)
    with pytest.raises(Broken) as broken:
        list(follow(watch, Plan((step,))))
    assert broken.value.rule == rule


@pytest.mark.parametrize(
    "verdict",
    [
        pytest.param(Allocation(PromiseState.PENDING), id="pending"),
        pytest.param(Allocation(PromiseState.DEGRADED, A, {0: CapacityBitmask(0b1110000)}), id="degraded"),
    ],
)
def test_the_default_group_may_follow_a_group_only_if_its_vm_is_given_no_ways(verdict: Allocation) -> None:
    watch = Oracle(host(default={0: {0, 1}}, v1={0: {0, 1}}), [request(1, 4)], Policy(), calm=False)
    steps = follow(watch, Plan((wrote(A, {4, 5, 6}), wrote("", {4, 5, 6})), allocations={uuid(1): verdict}))
    if verdict.masks:
        with pytest.raises(Broken, match="rule 1"):
            list(steps)
    else:
        assert len(list(steps)) == 2


@pytest.mark.parametrize(
    ("verdict", "rule"),
    [
        pytest.param(Allocation(PromiseState.KEPT, A, {0: CapacityBitmask(0b11)}), 16, id="kept with too few"),
        pytest.param(Allocation(PromiseState.KEPT, A, {0: CapacityBitmask(0b111)}), 16, id="other ways are told"),
        pytest.param(Allocation(PromiseState.PENDING), 9, id="a group is left that nobody needs"),
        pytest.param(Allocation(PromiseState.DEGRADED, B), 16, id="a group that is not there"),
    ],
)
def test_a_verdict_that_is_not_true_is_found_out(verdict: Allocation, rule: int) -> None:
    watch = Oracle(host(default={0: {5, 6, 7}}, v1={0: {0, 1}}), [request(1, 3)], Policy(), calm=True)
    with pytest.raises(Broken) as broken:
        watch.end(Plan(allocations={uuid(1): verdict}))
    assert broken.value.rule == rule


@pytest.mark.parametrize("agent", ["runs on", "starts anew", "forgets"])
def test_what_a_vm_had_on_a_cache_that_is_offline_is_known_only_to_an_agent_that_ran_before(
    monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    tale = Story(random.Random(1))
    # No agent is killed here.
    monkeypatch.setattr(tale.luck, "random", lambda: 1.0)
    tale.host, tale.policy = Host(machine(7, (0, 1))), Policy(kernel_exclusive=False)
    tale.vms = {1: request(1, 4, caches=(1,)), 2: request(2, 4)}
    tale.passes()
    tale.host.go_offline(1)
    # On the cache that is left, there is no room for it.
    tale.vms[1] = request(1, 4, caches=(0, 1))
    if agent == "starts anew":
        tale.restart()
    tale.passes()
    assert A not in tale.host.groups
    tale.host.come_online(1)
    tale.damaged = True
    if agent == "forgets":
        tale.known = {}
        with pytest.raises(Broken, match="rule 4"):
            tale.passes()
        return
    tale.passes()
    assert len(tale.host.ways(A, 1)) == (4 if agent == "runs on" else 0)


def test_who_waits_though_there_are_ways_is_found_out() -> None:
    watch = Oracle(host(default={0: {5, 6, 7}}), [request(1, 3)], Policy(), calm=True)
    with pytest.raises(Broken, match="rule 5"):
        watch.rest(Plan(allocations={uuid(1): Allocation(PromiseState.PENDING, reason=reasons.NO_SAFE_ORDER)}))
