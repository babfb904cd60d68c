# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from vmqos.agent.observe import flavor_request
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.observe.told_flavors import Found
from vmqos.daemon.log_once import LogOnce
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.hypervisor.model import NovaMetadata, Process, VirtualMachine
from vmqos.reason import Code


def vm(specs: dict[str, str] | None, **changes: object) -> VirtualMachine:
    metadata = NovaMetadata("gold", "w2", "project", specs)
    plain = VirtualMachine("u", "instance-1", 1, Process(1, 1), None, False, metadata)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_flavor_that_asks_for_nothing_is_no_problem() -> None:
    assert flavor_request.read(vm({"hw:cpu_policy": "dedicated"})) == flavor_request.FlavorRequest()


def test_ways_and_policy_are_acted_on() -> None:
    read = flavor_request.read(vm({"hw:cache_ways": "2", "hw:cache_policy": "shared"}))
    assert read.wants == CacheRequest(ways=2, policy=CachePolicy.SHARED) == read.asked
    assert not read.problem


def test_a_bad_value_is_a_problem_that_names_flavor_key_and_value() -> None:
    read = flavor_request.read(vm({"hw:cache_ways": "two"}))
    assert read.wants is None
    assert "w2" in read.problem.text and "hw:cache_ways" in read.problem.text and "two" in read.problem.text


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("hw:cacheways", "2", "hw:cache_ways"),
        ("hw_cache_ways", "2", "hw:cache_ways"),
        ("hw:cache_mode", "shared", "hw:cache_policy"),
        ("hw:memory_bandwidth_percent", "50", "hw:mem_bandwidth_percent"),
    ],
)
@pytest.mark.parametrize("beside", [{}, {"hw:cache_ways": "3"}])
def test_a_key_that_looks_like_one_of_ours_is_a_problem_that_names_it_and_what_is_meant(
    key: str, value: str, meant: str, beside: dict[str, str]
) -> None:
    read = flavor_request.read(vm({**beside, key: value}))
    assert read.wants is None
    assert read.problem.text == f"flavor w2: {key}={value!r}: there is no such extra spec, did you mean {meant}?"
    assert read.problem.code is Code.BAD_FLAVOR


def test_every_key_of_the_grammar_is_acted_on() -> None:
    specs = {"hw:cache_ways": "2", "hw:cache_vcpus": "0", "hw:l2_cache_ways": "1", "hw:mem_bandwidth_percent": "50"}
    read = flavor_request.read(vm(specs))
    wanted = CacheRequest(ways=2, vcpus=frozenset({0}), l2_ways=1, bandwidth_percent=50)
    assert read.wants == read.asked == wanted and not read.problem


def test_bandwidth_alone_is_a_request() -> None:
    read = flavor_request.read(vm({"hw:mem_bandwidth_percent": "50"}))
    assert read.wants == CacheRequest(bandwidth_percent=50) and not read.problem


def test_l2_ways_alone_are_a_request() -> None:
    read = flavor_request.read(vm({"hw:l2_cache_ways": "2"}))
    assert read.wants == read.asked == CacheRequest(l2_ways=2) and not read.problem


def test_an_older_nova_is_a_remark() -> None:
    read = flavor_request.read(vm(None))
    assert read.wants is None and not read.problem and "2025.2" in read.remark.text


def test_what_nova_s_api_says_stands_for_what_the_metadata_lack() -> None:
    read = flavor_request.read(vm(None), Found({"hw:cache_ways": "2"}))
    assert read.wants == CacheRequest(ways=2) and not (read.unknown or read.problem or read.remark)
    assert flavor_request.read(vm(None), Found({})) == flavor_request.FlavorRequest()
    bad = flavor_request.read(vm(None), Found({"hw:cache_ways": "two"}))
    assert bad.wants is None and "flavor w2" in bad.problem.text


def test_what_the_metadata_say_counts_whatever_nova_s_api_says() -> None:
    read = flavor_request.read(vm({"hw:cache_ways": "2"}), Found({"hw:cache_ways": "4"}))
    assert read.wants == CacheRequest(ways=2)


@pytest.mark.parametrize("error", ["", "Nova can't be reached"])
def test_a_flavor_that_nova_s_api_has_not_told_is_unknown(error: str) -> None:
    read = flavor_request.read(vm(None), Found(None, error))
    assert read.wants is None and read.asked is None
    assert "Nova's API has not told" in read.unknown.text and read.unknown.text.endswith(error)


def test_a_vm_that_libvirt_placed_needs_no_flavor() -> None:
    read = flavor_request.read(vm(None, has_cachetune=True), Found())
    assert read.hands_off and not read.unknown


def test_a_vm_that_nova_did_not_make_asks_for_nothing() -> None:
    assert flavor_request.read(vm({}, metadata=None)) == flavor_request.FlavorRequest()


def test_broken_metadata_is_a_problem() -> None:
    read = flavor_request.read(vm({"hw:cache_ways": "2"}, metadata_error="the extra spec has no name"))
    assert read.wants is None and "the extra spec has no name" in read.problem.text


def test_a_vm_that_libvirt_placed_is_left_alone() -> None:
    read = flavor_request.read(vm({}, has_cachetune=True))
    assert read.hands_off and "cachetune" in read.remark.text and not read.problem


def test_a_vm_that_libvirt_placed_and_that_asks_for_ways_has_a_problem() -> None:
    read = flavor_request.read(vm({"hw:cache_ways": "2"}, has_cachetune=True))
    assert read.hands_off and read.wants is None and "cachetune" in read.problem.text


def test_one_flavor_that_can_not_be_read_is_that_vms_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    readable = flavor_request.read

    def fail_for_one(described: VirtualMachine, found: Found | None) -> flavor_request.FlavorRequest:
        if described.uuid == "v":
            raise ZeroDivisionError("a fault of ours")
        return readable(described, found)

    monkeypatch.setattr(flavor_request, "read", fail_for_one)
    ways = {"hw:cache_ways": "2"}
    vms = {uuid: ObservedVm(vm(ways, uuid=uuid), frozenset({0})) for uuid in ("u", "v")}
    found = flavor_request.read_all(vms, None, LogOnce(logging.getLogger(__name__)))
    assert "a fault of ours" in found["v"].unknown.text
    assert found["u"].wants == CacheRequest(ways=2)
