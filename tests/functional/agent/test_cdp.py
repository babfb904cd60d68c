# SPDX-License-Identifier: Apache-2.0
"""Ways for code and for data, on machines whose resctrl is mounted with cdp, and on one where it is not."""

from __future__ import annotations

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, all_in, group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeVm, WaitFor
from tools.lab.agent import Agent

pytestmark = pytest.mark.feature("cdp")

CODE_AND_DATA = {"hw:cache_code_ways": "1", "hw:cache_data_ways": "3"}

WITH = pytest.mark.parametrize(
    "simulator", [("cascade-lake", "cdp"), ("sapphire-rapids", "cdp"), ("milan", "cdp")], indirect=True
)
WITHOUT = pytest.mark.parametrize("simulator", ["cascade-lake", "minimal"], indirect=True)


def parts(tree: Tree, name: str = "") -> dict[int, tuple[int, int]]:
    """The group's masks for code and for data by cache id."""
    code, data = tree.values("L3CODE", name), tree.values("L3DATA", name)
    return {cache: (int(code[cache], 16), int(data[cache], 16)) for cache in code}


def parts_on(tree: Tree, name: str, caches: set[int]) -> list[tuple[int, int]]:
    return [masks for cache, masks in parts(tree, name).items() if cache in caches]


@WITH
def test_code_and_data_fill_ways_of_their_own_that_nobody_else_fills(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    apart, both, shared = (
        make_vm(CODE_AND_DATA),
        make_vm(EXCLUSIVE_2),
        make_vm({**CODE_AND_DATA, "hw:cache_policy": "shared"}),
    )
    # The masks of one may have to move for another one.
    wait_for_vm(both, "kept", group=group(both))
    wait_for_vm(shared, "kept", group="vmqos.shared-code1-data3")
    told = wait_for_vm(apart, "kept", group=group(apart))
    caches = set(map(int, told["masks"]))
    own = parts(tree, group(apart))
    for cache in caches:
        code, data = own[cache]
        assert (code.bit_count(), data.bit_count()) == (1, 3) and not code & data
        assert (f"{code:x}", f"{data:x}") == (told["code_masks"][str(cache)], told["data_masks"][str(cache)])
    assert all(code == data and code.bit_count() == 2 for code, data in parts_on(tree, group(both), caches))
    assert all_in(tree, group(apart), apart) and all_in(tree, group(both), both)
    for mine in (group(apart), group(both)):
        for other in {"", *tree.groups()} - {mine}:
            for cache in caches:
                ours, theirs = parts(tree, mine)[cache], parts(tree, other)[cache]
                assert not (ours[0] | ours[1]) & (theirs[0] | theirs[1]), (mine, other, cache)


@WITH
def test_when_the_vms_are_gone_the_default_group_has_all_ways_for_code_and_data_again(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    before = parts(tree)
    vm = make_vm(CODE_AND_DATA)
    wait_for_vm(vm, "kept")
    assert parts(tree) != before
    vm.domain.destroy()
    wait_for(lambda: tree.groups() == [] and parts(tree) == before, "the default group having its ways back")


@WITH
def test_there_are_half_as_many_classes(agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    wait_for_vm(make_vm(CODE_AND_DATA), "kept")
    said = int((tree.root / "info/L3CODE/num_closids").read_text())
    limits = [int(file.read_text()) for file in tree.root.glob("info/*/num_closids")]
    assert agent.get("/v1/capabilities")["num_closids"] == min(limits) <= said


@pytest.mark.feature("cdp", kept=False)
@WITHOUT
def test_without_cdp_a_vm_waits_and_is_told_what_helps(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    told = wait_for_vm(make_vm(CODE_AND_DATA), "pending", group="", reason="to be mounted with cdp")
    assert "'sudo vmqos doctor' tells how" in told["reason"]
    assert tree.groups() == []


@pytest.mark.parametrize("simulator", [("cascade-lake", "cdp")], indirect=True)
def test_an_agent_that_starts_anew_changes_nothing(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vms = [make_vm(CODE_AND_DATA), make_vm({**CODE_AND_DATA, "hw:cache_policy": "shared"})]
    for vm in vms:
        wait_for_vm(vm, "kept")
    before = {name: parts(tree, name) for name in ("", *tree.groups())}
    agent.stop()
    agent.start()
    for vm in vms:
        wait_for_vm(vm, "kept")
    assert {name: parts(tree, name) for name in ("", *tree.groups())} == before
