# SPDX-License-Identifier: Apache-2.0
"""Bad input gets a clear error and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.agent import Agent
from tools.lab.vms import NOVA_NAMESPACE

GOOD = {"hw:cache_ways": "2"}


@pytest.mark.parametrize("value", ["two", "-1", "0", "", "2.0", "1e1", "9" * 400])
def test_a_bad_value_degrades_its_vm_alone(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, value: str
) -> None:
    bad, good = make_vm({"hw:cache_ways": value}), make_vm(GOOD)
    wait_for_vm(good, "kept")
    told = wait_for_vm(bad, "degraded")
    assert "hw:cache_ways" in told["reason"] and "test" in told["reason"]
    assert tree.groups() == [f"vmqos.{good.uuid}"]


def test_more_ways_than_the_machine_has_are_pending_with_the_numbers(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    greedy, good = make_vm({"hw:cache_ways": "999"}), make_vm(GOOD)
    wait_for_vm(good, "kept")
    wait_for_vm(greedy, "pending", reason="999", group="", masks={})
    assert tree.groups() == [f"vmqos.{good.uuid}"]


@pytest.mark.parametrize(
    "metadata",
    [
        f'<metadata><nova:instance xmlns:nova="{NOVA_NAMESPACE}">neither flavor nor name</nova:instance></metadata>',
        f'<metadata><nova:instance xmlns:nova="{NOVA_NAMESPACE}"><nova:flavor><nova:extraSpecs><nova:extraSpec>2'
        "</nova:extraSpec></nova:extraSpecs></nova:flavor></nova:instance></metadata>",
    ],
)
def test_metadata_that_makes_no_sense_degrades_its_vm_alone(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, metadata: str
) -> None:
    bad, good = make_vm(metadata=metadata), make_vm(GOOD)
    wait_for_vm(good, "kept")
    assert wait_for_vm(bad, "degraded")["reason"]
    assert tree.groups() == [f"vmqos.{good.uuid}"]


@pytest.mark.parametrize(
    "metadata", ["", "<metadata/>", '<metadata><x:y xmlns:x="urn:other">&lt;no&gt; &amp;</x:y></metadata>']
)
def test_a_vm_that_nova_did_not_make_asks_for_nothing(
    agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm, metadata: str
) -> None:
    vm = make_vm(metadata=metadata)
    assert wait_for_vm(vm, "none")["flavor"] == ""


def test_an_older_nova_is_named_as_the_reason(agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    vm = make_vm(None)
    wait_for_vm(vm, "none", reason="2025.2")


def test_a_hostile_name_is_just_a_name(agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    name = "\"><script>alert('1')</script> ../../etc/passwd \u202e"
    vm = make_vm(GOOD, display_name=name)
    assert wait_for_vm(vm, "kept")["instance_name"] == name


@pytest.mark.parametrize(
    ("section", "option", "value", "told"),
    [
        ("allocation", "when_full", "maybe", ["[allocation] when_full", "pend, share"]),
        ("allocation", "default_ways_min", "-3", ["[allocation] default_ways_min", "1 to 32"]),
        ("agent", "audit_interval", "often", ["[agent] audit_interval", "often"]),
    ],
)
def test_the_agent_refuses_a_bad_configuration(
    make_agent: MakeAgent, section: str, option: str, value: str, told: list[str]
) -> None:
    agent = make_agent({section: {option: value}})
    assert agent.run_once() == 1
    said = agent.log.read_text()
    for words in (str(agent.config_file), *told):
        assert words in said
    assert "Traceback" not in said


def test_without_resctrl_the_agent_says_what_mends_it(make_agent: MakeAgent, tmp_path: Path) -> None:
    agent = make_agent({"resctrl": {"path": tmp_path}})
    assert agent.run_once() == 1
    said = agent.log.read_text()
    assert str(tmp_path) in said and "mount" in said and "Traceback" not in said


def test_a_new_configuration_that_is_bad_is_not_used(
    agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    agent.configure({"allocation": {"default_ways_min": "many"}})
    agent.reload()
    wait_for(lambda: "the new configuration is not used" in agent.log.read_text(), "the agent saying so")
    vm = make_vm(GOOD)
    wait_for_vm(vm, "kept")


def test_a_new_configuration_is_used(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm, wait_for: WaitFor
) -> None:
    vm = make_vm({"hw:cache_ways": "5"})
    wait_for_vm(vm, "kept")
    late = make_vm({"hw:cache_ways": "3"})
    assert wait_for_vm(late, "kept")
    vm.domain.destroy()
    agent.configure({"allocation": {"default_ways_min": 8}})
    agent.reload()
    # A VM that is seen before that has its way, and keeps it.
    wait_for(lambda: "configuration read again" in agent.log.read_text(), "the configuration being read")
    greedy = make_vm({"hw:cache_ways": "1"})
    wait_for_vm(greedy, "pending", reason="8")
    agent.configure({"allocation": {"default_ways_min": 2}})
    agent.reload()
    wait_for_vm(greedy, "kept")
