# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.agent.observe.owed import Owed
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.hypervisor.model import Process, VirtualMachine


def observed(uuid: str) -> ObservedVm:
    return ObservedVm(VirtualMachine(uuid, uuid, 1, Process(1, 1), None, False, None), frozenset({0}))


@pytest.fixture
def owed() -> Owed:
    """Nothing is owed but what this test notes."""
    found = Owed()
    found.pay(found.claim(), {})
    return found


def test_the_first_pass_trusts_nothing() -> None:
    claim = Owed().claim()
    assert claim.everything and claim.is_news


def test_what_was_paid_is_owed_no_more(owed: Owed) -> None:
    owed.note()
    claim = owed.claim()
    assert claim.everything and claim.is_news
    owed.pay(claim, {})
    claim = owed.claim()
    assert not claim.everything and not claim.is_news


def test_what_a_failed_pass_claimed_is_owed_to_the_next_and_is_no_news(owed: Owed) -> None:
    owed.note()
    owed.claim()
    claim = owed.claim()
    assert claim.everything and not claim.is_news


def test_what_is_noted_during_a_pass_stays_owed_although_the_pass_ends_well(owed: Owed) -> None:
    owed.note()
    claim = owed.claim()
    owed.note()
    owed.pay(claim, {})
    claim = owed.claim()
    assert claim.everything and claim.is_news


def test_vms_have_changed_until_a_pass_that_knew_of_it_ends_well(owed: Owed) -> None:
    stays, goes = observed("stays"), observed("goes")
    owed.pay(owed.claim(), {"stays": stays, "goes": goes, "anew": observed("anew")})
    now = {"stays": stays, "anew": observed("anew"), "comes": observed("comes")}
    for _ in range(2):
        assert owed.changed(now) == {"goes", "anew", "comes"}
    owed.pay(owed.claim(), now)
    assert owed.changed(now) == frozenset()


def test_a_pass_that_leaves_the_audit_to_the_next_one_pays_for_its_vms_alone(owed: Owed) -> None:
    vms = {"a": observed("a")}
    owed.note()
    claim = owed.claim().without_audit()
    assert not claim.everything
    owed.pay(claim, vms)
    assert owed.changed(vms) == frozenset()
    rest = owed.claim()
    assert rest.everything and not rest.is_news
