# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.cli.vm import choice


@pytest.mark.parametrize(
    ("states", "flavors", "found"),
    [
        ((), (), ["web-1", "db-1", "batch", "huge", "plain"]),
        (("pending",), (), ["huge"]),
        (("pending", "none"), (), ["huge", "plain"]),
        ((), ("m1.cache",), ["web-1", "db-1", "batch", "huge", "plain"]),
        ((), ("m1",), []),
        (("degraded",), ("m1.cache",), []),
    ],
)
def test_vms_are_chosen_by_state_and_by_whole_flavor(
    states: tuple[str, ...], flavors: tuple[str, ...], found: list[str]
) -> None:
    assert [vm["instance_name"] for vm in choice.choose(examples.vms(), states, flavors)] == found


def test_every_format_lists_the_chosen_ones_in_its_usual_shape(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"]["vms"][0]["flavor"] = "c2.big"
    whole = json.loads(run("vm", "list", "-f", "json", "--long").out)
    assert sorted(whole, key=lambda vm: vm["uuid"]) == sorted(
        agent.answers["/v1/vms"]["vms"], key=lambda vm: vm["uuid"]
    )
    found = json.loads(run("vm", "list", "-f", "json", "--state", "pending", "kept", "--flavor", "m1.cache").out)
    assert [vm["instance_name"] for vm in found] == ["huge", "batch", "db-1"]
    assert found == [vm for vm in whole if vm in found]
    assert run("vm", "list", "-f", "value", "-c", "VM", "--state", "none", "--state", "pending").out == "huge\nplain\n"
    assert json.loads(run("vm", "list", "-f", "json", "--state", "degraded").out) == []


def test_a_state_that_there_is_not_is_wrong_usage(agent: FakeAgent, run: Run) -> None:
    ran = run("vm", "list", "--state", "happy")
    assert ran.status == 2
    assert "'happy'" in ran.err and "pending" in ran.err


def test_long_adds_columns_before_the_reason(agent: FakeAgent, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [title.strip() for title in run("vm", "list", "--long").out.splitlines()[1].split("|")[1:-1]]
    assert columns == [
        "UUID", "VM", "Flavor", "State", "Policy", "Ways", "Group", "Tasks",
        "Masks", "Monitoring group", "Project", "Since", "Instance name", "libvirt name", "Reason",
    ]  # fmt: skip
    heading = run("vm", "list", "--long", "-f", "csv").out.splitlines()[0]
    assert heading.endswith('"Instance name","libvirt name","Masks","Monitoring group","Project","Since"')
    assert "8d1f2ad9\n" in run("vm", "list", "--long", "-f", "value", "-c", "Project").out


def test_a_name_tells_a_vm_from_those_that_are_not_listed_too(agent: FakeAgent, run: Run) -> None:
    for vm in agent.answers["/v1/vms"]["vms"]:
        vm["instance_name"] = "web"
    assert run("vm", "list", "-f", "value", "-c", "VM", "--state", "pending").out == "web (9b3ddc11)\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--flavor", "m1"), "No VM of the flavor 'm1' runs here; the flavors that do are: m1.cache."),
        (("--flavor", "m1.cache", "--state", "degraded"), "No running VM of the flavor 'm1.cache' is in the state "),
        (("--state", "degraded"), "No running VM is in the state 'degraded'."),
    ],
)
def test_people_are_told_for_whom_a_list_is_empty(
    agent: FakeAgent, run: Run, words: tuple[str, ...], sentence: str
) -> None:
    ran = run("vm", "list", *words)
    assert (ran.status, ran.err) == (0, "") and ran.out.startswith(sentence) and ran.out.count("\n") == 1
    assert run("vm", "list", *words, "-f", "value").out == ""


def test_a_vm_without_a_flavor_is_no_flavor_that_runs(agent: FakeAgent, run: Run) -> None:
    vms = agent.answers["/v1/vms"]["vms"]
    vms[0]["flavor"] = ""
    told = run("vm", "list", "--flavor", "m1").out
    assert told == "No VM of the flavor 'm1' runs here; the flavors that do are: m1.cache.\n"
    for vm in vms:
        vm["flavor"] = ""
    assert run("vm", "list", "--flavor", "m1").out == "No VM of the flavor 'm1' runs here; no VM here has a flavor.\n"


def test_people_are_told_that_no_vm_runs(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"] = {"vms": []}
    assert run("vm", "list").out == "No VM runs here.\n"
    agent.answers["/v1/health"] = examples.health() | {"ages": {"vms": None, "pass": None}, "stale": ["vms", "pass"]}
    assert run("vm", "list").out == "No VM is known.\n"
