# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess

import pytest
import yaml  # type: ignore[import-untyped]

from tests.unit.cli.conftest import Run
from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eevil\nsecond line " + "数" * 200


def test_the_list_has_a_line_for_each_vm_with_trouble_on_top(agent: FakeAgent, run: Run) -> None:
    ran = run("vm", "list")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    columns = [title.strip() for title in lines[1].split("|")[1:-1]]
    assert columns == ["UUID", "VM", "Flavor", "State", "Policy", "Ways", "Group", "Tasks", "Reason"]
    names = [line.split("|")[2].strip() for line in lines[3:-1]]
    assert names == ["huge", "web-1", "batch", "db-1", "plain"]


def test_json_and_yaml_are_the_agents_own_values(agent: FakeAgent, run: Run) -> None:
    expected = sorted(examples.vms(), key=lambda vm: vm["uuid"])
    for ran, load in ((run("vm", "list", "-f", "json"), json.loads), (run("vm", "list", "-f", "yaml"), yaml.safe_load)):
        assert sorted(load(ran.out), key=lambda vm: vm["uuid"]) == expected
    shown = json.loads(run("vm", "show", "web-1", "-f", "json").out)
    assert shown == examples.vms()[0] | {"task_list": examples.tasks(f"vmqos.{examples.WEB}")}


def test_columns_can_be_chosen_and_sorted(agent: FakeAgent, run: Run) -> None:
    ran = run("vm", "list", "-f", "value", "-c", "VM", "-c", "Ways", "--sort-column", "vm", "--sort-descending")
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


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("name", ["$(echo run)", "`echo run`", '"; echo run; "', "back\\slash", "\\", "$HOME", "it's"])
def test_a_shell_that_evaluates_the_fields_has_the_name_and_runs_nothing(
    agent: FakeAgent, run: Run, shell: str, name: str
) -> None:
    agent.answers[f"/v1/vms/{examples.WEB}"] = examples.vms()[0] | {"instance_name": name, "task_list": []}
    ran = run("vm", "show", "4f2c", "-f", "shell")
    script = 'eval "$1"; printf %s "$instance_name"'
    evaluated = subprocess.run([shell, "-c", script, shell, ran.out], capture_output=True, text=True, check=False)
    assert (ran.status, evaluated.stdout, evaluated.stderr) == (0, name, "")


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
    assert heading.endswith('"Reason","L2 ways","Bandwidth","vCPUs","Instance name","libvirt name"')
    assert ['"","4","-","0-1",' in line for line in lines if "web-1" in line] == [True]
    assert "-\n" * 3 in run("vm", "list", "-f", "value", "-c", "Bandwidth").out


def test_a_name_means_the_same_with_every_format(agent: FakeAgent, run: Run) -> None:
    (fields,) = [vm for vm in json.loads(run("vm", "list", "-f", "json").out) if vm["uuid"] == examples.WEB]
    for column, key in (("Instance name", "instance_name"), ("libvirt name", "name")):
        listed = run("vm", "list", "-f", "value", "-c", "UUID", "-c", column).out.splitlines()
        assert f"{examples.WEB} {fields[key]}" in listed
        assert run("vm", "show", examples.WEB, "-f", "value", "-c", column).out == f"{fields[key]}\n"
    for command in (("vm", "list"), ("vm", "show", examples.WEB)):
        ran = run(*command, "-f", "value", "-c", "Name", "-c", "State")
        assert (ran.status, ran.out) == (2, "")
        assert "there is no column 'Name' with this format; there are: UUID, " in ran.err


def test_a_column_can_be_chosen_where_no_vm_runs(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"] = {"vms": []}
    ran = run("vm", "list", "-f", "json", "-c", "uuid")
    assert (ran.status, json.loads(ran.out)) == (0, [])


def test_vms_of_one_name_are_told_apart(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"] = {"vms": [vm | {"instance_name": "web"} for vm in examples.vms()[:2]]}
    assert sorted(run("vm", "list", "-f", "value", "-c", "VM").out.splitlines()) == ["web (4f2c1a9e)", "web (7d01e4c2)"]


def test_each_cache_is_told_with_what_the_vm_holds_of_its_ways_there(agent: FakeAgent, run: Run) -> None:
    uneven = examples.counters(
        ways={"0": 4, "1": 4},
        allocated_bytes=12582912,
        caches={"0": {"llc_occupancy": 6186598}, "1": {"llc_occupancy": 0}},
        totals={"llc_occupancy": 6186598},
    )
    agent.answers["/v1/telemetry"]["vms"][examples.WEB] = uneven
    shown = " ".join(run("vm", "show", "web-1").out.split())
    assert "| Cache occupancy | cache 0 ==========  98%, 5.9 MiB of 6 MiB |".replace("  ", " ") in shown
    assert "| | cache 1 ---------- 0%, 0 B of 6 MiB |" in shown
    assert run("vm", "show", "web-1", "-f", "value", "-c", "Cache occupancy").out == "0=6186598/6291456;1=0/6291456\n"


@pytest.mark.parametrize(
    ("counters", "told"),
    [
        (None, "unknown: the VM is in no group that is monitored"),
        (examples.counters(policy=None, ways={}), "3 MiB of all caches together"),
        (
            examples.counters(
                policy=None, totals={"llc_occupancy": None}, missing={"llc_occupancy": "unavailable"}, ways={}
            ),
            "unknown: the hardware has no valid value now",
        ),
    ],
)
def test_a_vm_without_ways_of_its_own_has_an_occupancy_all_the_same(
    counters: object, told: str, agent: FakeAgent, run: Run
) -> None:
    agent.answers["/v1/telemetry"]["vms"] = {examples.WEB: counters} if counters else {}
    assert f"| Cache occupancy      | {told} " in run("vm", "show", "web-1").out


def test_the_agents_reason_is_told_of_a_vm_that_no_group_counts(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/telemetry"]["vms"] = {}
    agent.answers[f"/v1/vms/{examples.WEB}"] |= {"monitoring_group": None, "unmonitored_reason": "no RMID is left"}
    shown = run("vm", "show", "web-1").out
    assert "| Cache occupancy      | unknown: no RMID is left " in shown
    assert "| Monitoring group     | none: no RMID is left " in shown


def test_an_agent_without_counters_still_shows_the_vm(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/telemetry"] = lambda query: ("503 Service Unavailable", b'{"error": "resctrl is not mounted"}')
    ran = run("vm", "show", "web-1")
    assert (ran.status, ran.err) == (0, "")
    assert "| Cache occupancy      | unknown: vmqos-agent can't answer (HTTP 503): resctrl is not mounted" in ran.out


OLD = {"ages": {"vms": 200.0, "pass": None, "counters": 3.0}, "stale": ["vms", "pass"], "unserved": {}}


@pytest.mark.parametrize(
    "command",
    [
        ("vm", "list"),
        ("vm", "list", "-f", "json"),
        ("vm", "show", "web-1"),
        ("plan", "--flavor-spec", "hw:cache_ways=2"),
    ],
)
def test_what_is_old_is_printed_with_a_warning_and_a_status_of_its_own(
    command: tuple[str, ...], agent: FakeAgent, run: Run
) -> None:
    fresh = run(*command)
    assert (fresh.status, fresh.err) == (0, "")
    agent.answers["/v1/health"] = examples.health() | OLD
    ran = run(*command)
    assert (ran.status, ran.out) == (3, fresh.out)
    assert ran.err == (
        "vmqos: what follows is old, although vmqos-agent answers: it last looked at all VMs 3 min 20 s ago and has "
        "not ended a pass without an error yet; see 'journalctl -u vmqos-agent'\n"
    )


def test_only_what_a_command_shows_can_be_old(agent: FakeAgent, run: Run) -> None:
    ages = {"vms": 0.5, "pass": 0.5, "counters": 75.0}
    agent.answers["/v1/health"] = examples.health() | {"ages": ages, "stale": ["counters"]}
    assert run("vm", "list").status == run("cache", "show").status == 0
    assert run("vm", "show", "web-1").status == 3
    agent.answers["/v1/health"] = examples.health() | OLD | {"stale": ["pass"]}
    assert run("cache", "show").status == 3


@pytest.mark.parametrize(
    ("ages", "told"),
    [
        ({"vms": None, "pass": None}, "it has not looked at all VMs yet and has not ended a pass without an error yet"),
        ({"vms": 0.1, "pass": None}, "it has not ended a pass without an error yet"),
    ],
)
def test_an_agent_that_has_just_been_started_does_not_say_that_no_vm_runs(
    ages: dict[str, float | None], told: str, agent: FakeAgent, run: Run
) -> None:
    agent.answers["/v1/vms"] = {"vms": []}
    agent.answers["/v1/health"] = examples.health() | {"ages": ages | {"counters": None}, "stale": []}
    ran = run("vm", "list")
    assert (ran.status, ran.out) == (3, "No VM is known.\n") and told in ran.err


def test_a_vm_that_is_not_served_is_a_warning(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/health"] = examples.health() | {"unserved": {examples.HUGE: "its process\ncan't be read"}}
    ran = run("vm", "list")
    assert ran.status == 0
    assert ran.err == f"vmqos: VM {examples.HUGE} runs and is not served: its process\\ncan't be read\n"


@pytest.mark.parametrize("wanted", [examples.HUGE, examples.HUGE[:6].upper()])
def test_a_vm_that_is_not_served_is_told_to_run_by_who_asks_for_it(agent: FakeAgent, run: Run, wanted: str) -> None:
    agent.answers["/v1/vms"] = {"vms": []}
    agent.answers["/v1/health"] = examples.health() | {"unserved": {examples.HUGE: "its process\ncan't be read"}}
    ran = run("vm", "show", wanted)
    why = f"VM {examples.HUGE} runs and is not served, so nothing is known of it: its process\\ncan't be read"
    assert (ran.status, ran.out, ran.err) == (1, "", f"vmqos: {why}\n")
    assert "no running VM has the UUID or name 'web'" in run("vm", "show", "web").err


def test_where_no_vm_is_served_it_is_not_said_that_none_runs(agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/vms"] = {"vms": []}
    agent.answers["/v1/health"] = examples.health() | {"unserved": {examples.HUGE: "its process can't be read"}}
    assert run("vm", "list").out == "No VM is known.\n"


@pytest.mark.parametrize(
    "health", [{}, {"status": "ok"}, None, examples.health() | {"stale": None, "ages": None, "unserved": None}]
)
def test_an_agent_that_tells_no_ages_is_believed(health: object, agent: FakeAgent, run: Run) -> None:
    agent.answers["/v1/health"] = health
    ran = run("vm", "list")
    assert (ran.status, ran.err) == (0, "")
