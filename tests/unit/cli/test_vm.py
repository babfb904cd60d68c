# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
import yaml  # type: ignore[import-untyped]

from tests.unit.cli import examples
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eevil\nsecond line " + "数" * 200


def test_the_list_has_a_line_for_each_vm_with_trouble_on_top(agent: FakeAgent, run: Run) -> None:
    ran = run("vm", "list")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    columns = [title.strip() for title in lines[1].split("|")[1:-1]]
    assert columns == ["UUID", "Name", "Flavor", "State", "Policy", "Ways", "Group", "Tasks", "Reason"]
    names = [line.split("|")[2].strip() for line in lines[3:-1]]
    assert names == ["huge", "web-1", "batch", "db-1", "plain"]


def test_json_and_yaml_are_the_agents_own_values(agent: FakeAgent, run: Run) -> None:
    expected = sorted(examples.vms(), key=lambda vm: vm["uuid"])
    for ran, load in ((run("vm", "list", "-f", "json"), json.loads), (run("vm", "list", "-f", "yaml"), yaml.safe_load)):
        assert sorted(load(ran.out), key=lambda vm: vm["uuid"]) == expected
    shown = json.loads(run("vm", "show", "web-1", "-f", "json").out)
    assert shown == examples.vms()[0] | {"task_list": examples.tasks(f"vmqos.{examples.WEB}")}


def test_columns_can_be_chosen_and_sorted(agent: FakeAgent, run: Run) -> None:
    ran = run("vm", "list", "-f", "value", "-c", "Name", "-c", "Ways", "--sort-column", "name", "--sort-descending")
    assert ran.out == "web-1 2\nplain -\nhuge 0 of 8\ndb-1 4\nbatch 2\n"
    assert json.loads(run("vm", "list", "-f", "json", "-c", "uuid", "--sort-column", "uuid").out)[0] == {
        "uuid": examples.WEB
    }


def test_csv_has_a_heading(agent: FakeAgent, run: Run) -> None:
    assert run("vm", "list", "-f", "csv", "-c", "State", "-c", "Tasks").out.splitlines()[0] == '"State","Tasks"'


def test_no_vm_is_an_empty_list_and_no_error(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"] = {"vms": []}
    assert run("vm", "list").status == 0
    assert json.loads(run("vm", "list", "-f", "json").out) == []
    assert run("vm", "list", "-f", "value").out == ""


@pytest.mark.parametrize("output", ["table", "csv", "value", "json", "yaml"])
@pytest.mark.parametrize("colour", ["", "1"])
def test_a_hostile_name_reaches_no_terminal(
    agent: FakeAgent, run: Run, output: str, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = examples.vms()[0] | {"instance_name": HOSTILE, "reason": HOSTILE, "flavor": HOSTILE, "last_error": HOSTILE}
    agent.answers["/v1/vms"] = {"vms": [vm]}
    agent.answers[f"/v1/vms/{examples.WEB}"] = vm | {"task_list": examples.tasks(HOSTILE)}
    monkeypatch.setenv("FORCE_COLOR", colour)
    for arguments in (("vm", "list"), ("vm", "show", "4f2c"), ("cache", "show")):
        shown = run(*arguments, "-f", output).out
        assert "\x1b[2J" not in shown
        assert "\x1b]" not in shown
        assert "\x07" not in shown
        assert "\u202e" not in shown
        if not colour:
            assert "\x1b" not in shown


def test_details_show_the_fields_and_below_them_the_threads(agent: FakeAgent, run: Run) -> None:
    shown = run("vm", "show", "4f2c").out
    assert f"| Control group        | vmqos.{examples.WEB} |" in shown
    assert "| 4321 | 4321 | qemu-system-x86 | (default) " in shown
    assert shown.index("Control group") < shown.index("CPU 0/KVM")


def test_one_field_can_be_picked_for_a_script(agent: FakeAgent, run: Run) -> None:
    assert run("vm", "show", "web-1", "-f", "value", "-c", "Masks").out == "0=3;1=3\n"
    assert "CPU 0/KVM" not in run("vm", "show", "web-1", "-c", "Masks").out


@pytest.mark.parametrize(
    ("wanted", "message"),
    [("nobody", "no running VM has the UUID or name 'nobody'"), ("9b3d", "'9b3d' fits 2 VMs"), ("\x1b[2J", r"\x1b[2J")],
)
def test_a_vm_that_can_not_be_told_is_one_line_on_stderr(agent: FakeAgent, run: Run, wanted: str, message: str) -> None:
    ran = run("vm", "show", wanted)
    assert (ran.status, ran.out) == (1, "")
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1
    assert "\x1b" not in ran.err


def test_what_not_every_host_has_is_a_column_where_a_vm_has_it(agent: FakeAgent, run: Run) -> None:
    granted = {"l2_masks": {"3": "f"}, "l2_ways_requested": 4, "vcpus_requested": "0-1", "vcpus": "0-1"}
    agent.answers["/v1/vms"]["vms"][0] |= granted
    columns = [title.strip() for title in run("vm", "list").out.splitlines()[1].split("|")[1:-1]]
    assert columns[5:9] == ["Ways", "L2 ways", "vCPUs", "Group"]
    heading, *lines = run("vm", "list", "-f", "csv").out.splitlines()
    assert heading.endswith('"Reason","L2 ways","Bandwidth","vCPUs"')
    assert [line.endswith('"","4","-","0-1"') for line in lines if "web-1" in line] == [True]
    assert "-\n" * 3 in run("vm", "list", "-f", "value", "-c", "Bandwidth").out
