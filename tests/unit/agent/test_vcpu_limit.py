# SPDX-License-Identifier: Apache-2.0
"""What is said of a flavor that names vCPUs; the threads themselves are looked at among the functional tests."""

from __future__ import annotations

import pytest

from vmqos.agent.inventory import ObservedVm
from vmqos.agent.vcpu_limit import UNNAMED, VcpuLimit, look_at_all, problem
from vmqos.agent.wish import Wish
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.openstack.extra_specs import CacheRequest

ASKED = frozenset({0, 1})
GONE = ObservedVm(VirtualMachine("a", "a", 1, Process(99999999, 1), None, False, None), frozenset({0}))


@pytest.mark.parametrize("there", [{0, 1}, {0, 1, 2}])
def test_vcpus_that_are_there_are_no_problem(there: set[int]) -> None:
    assert problem(ASKED, there) == ""


def test_vcpus_that_are_not_there_are_named_with_those_that_are() -> None:
    told = problem(frozenset({0, 4, 5}), {0, 1})
    assert "names 0,4-5" in told and "no vCPU 4-5" in told and "its vCPUs are 0-1" in told


def test_a_vm_none_of_whose_threads_bears_a_vcpus_name_says_so() -> None:
    assert problem(ASKED, ()) == UNNAMED


def test_vms_whose_flavors_name_no_vcpus_are_not_looked_at() -> None:
    wishes = {
        "a": Wish(request=CacheRequest(ways=2)),
        "b": Wish(),
        "c": Wish(request=CacheRequest(ways=2, vcpus=ASKED), hands_off=True),
    }
    assert look_at_all({}, wishes, {}) == {}


def test_a_vm_that_can_not_be_looked_at_keeps_what_was_known_of_it() -> None:
    wishes = {"a": Wish(request=CacheRequest(ways=2, vcpus=ASKED))}
    known = VcpuLimit(ASKED, ASKED, (frozenset({3}),))
    assert look_at_all({"a": GONE}, wishes, {"a": known}) == {"a": known}
    unknown = look_at_all({"a": GONE}, wishes, {})["a"]
    assert not unknown.present and unknown.problem


def test_a_problem_is_put_behind_those_that_are_there() -> None:
    assert Wish(problem="one").but("two") == Wish(problem="one; two")
    wish = Wish(problem="one")
    assert wish.but("") is wish
