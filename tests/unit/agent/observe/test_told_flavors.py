# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.agent.observe.told_flavors import Found, ToldFlavors
from vmqos.hypervisor.model import NovaMetadata, Process, VirtualMachine

TWO = {"hw:cache_ways": "2"}


def vm(uuid: str = "u", pid: int = 7, start_time: int = 100) -> VirtualMachine:
    metadata = NovaMetadata("gold", "w2", "project", None)
    return VirtualMachine(uuid, "instance-1", 1, Process(pid, start_time), None, False, metadata)


@pytest.fixture
def answered() -> list[str]:
    return []


@pytest.fixture
def told(answered: list[str]) -> ToldFlavors:
    return ToldFlavors(True, answered.append)


def test_what_is_not_known_is_wanted_until_it_is_told(told: ToldFlavors, answered: list[str]) -> None:
    assert told.look_up([vm()]) == {"u": Found()}
    (wanted,) = told.wanted()
    assert wanted["uuid"] == "u"
    told.tell("u", wanted["process"], Found(TWO))
    assert answered == ["u"]
    assert told.look_up([vm()]) == {"u": Found(TWO)}
    assert told.wanted() == []


def test_a_vm_whose_flavor_can_not_be_told_goes_on_being_wanted(told: ToldFlavors, answered: list[str]) -> None:
    told.look_up([vm()])
    (wanted,) = told.wanted()
    for _ in range(2):
        told.tell("u", wanted["process"], Found(None, "Nova is away"))
    assert answered == ["u"], "the same trouble again is no news"
    assert told.look_up([vm()]) == {"u": Found(None, "Nova is away")}
    told.tell("u", wanted["process"], Found(TWO))
    assert answered == ["u", "u"]


def test_an_answer_that_is_not_wanted_is_refused(told: ToldFlavors, answered: list[str]) -> None:
    told.look_up([vm()])
    (wanted,) = told.wanted()
    with pytest.raises(LookupError):
        told.tell("v", wanted["process"], Found(TWO))
    with pytest.raises(LookupError):
        told.tell("u", "7-99", Found(TWO))
    told.tell("u", wanted["process"], Found(TWO))
    with pytest.raises(LookupError):
        told.tell("u", wanted["process"], Found({"hw:cache_ways": "9"}))
    assert told.look_up([vm()]) == {"u": Found(TWO)} and answered == ["u"]


def test_a_vm_with_a_new_process_has_a_flavor_that_is_not_known(told: ToldFlavors) -> None:
    told.look_up([vm()])
    (before,) = told.wanted()
    told.tell("u", before["process"], Found(TWO))
    assert told.look_up([vm(start_time=200)]) == {"u": Found()}
    (now,) = told.wanted()
    assert now["process"] != before["process"]


def test_a_vm_that_is_gone_is_forgotten(told: ToldFlavors) -> None:
    told.look_up([vm("u"), vm("v", 8)])
    told.look_up([vm("v", 8)])
    assert [wanted["uuid"] for wanted in told.wanted()] == ["v"]
