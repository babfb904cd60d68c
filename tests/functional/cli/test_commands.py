# SPDX-License-Identifier: Apache-2.0
"""The commands against a real agent, real VMs and the simulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from tools.lab.workspace import CHECKOUT

WAYS_2 = {"hw:cache_ways": "2"}
CAP_2 = {"hw:cache_ways": "2", "hw:cache_policy": "shared"}

OLD = 3
"""The exit status where what is printed is old."""


def vmqos(agent: Agent, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator would, without a terminal."""
    environment = {key: value for key, value in os.environ.items() if key not in ("VMQOS_SOCKET", "FORCE_COLOR")}
    command = [sys.executable, "-m", "vmqos.cli.main", "--config-file", str(agent.config_file), *arguments]
    return subprocess.run(command, cwd=CHECKOUT, env=environment, text=True, capture_output=True, check=False)


def while_fresh(run: Callable[[], subprocess.CompletedProcess[str]]) -> subprocess.CompletedProcess[str]:
    """What a command does while its agent looks.

    Status 3 says that the agent did not look for some seconds: this machine stood still, and the command is run again.
    """
    deadline = time.monotonic() + 60
    while (done := run()).returncode == OLD and time.monotonic() < deadline:
        time.sleep(0.2)
    return done


def read(agent: Agent, *arguments: str) -> Any:
    """What a command that has to succeed prints as JSON."""
    done = while_fresh(lambda: vmqos(agent, *arguments, "-f", "json"))
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


def settled(agent: Agent, *uuids: str) -> bool:
    """Whether these VMs have what they ask for, with all their tasks, and are counted."""
    vms = {vm["uuid"]: vm for vm in agent.get("/v1/vms")["vms"]}
    return all(
        uuid in vms
        and vms[uuid]["state"] == "kept"
        and 0 < vms[uuid]["tasks"] == vms[uuid]["tasks_in_place"]
        and not vms[uuid]["unmonitored_reason"]
        for uuid in uuids
    )


def test_an_operator_sees_vms_ways_and_tasks_as_the_agent_does(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    exclusive, shared = make_vm(WAYS_2), make_vm(CAP_2)
    wait_for(lambda: settled(agent, exclusive.uuid, shared.uuid), "both VMs being settled")

    assert {vm["uuid"]: vm["state"] for vm in read(agent, "vm", "list")} == {
        exclusive.uuid: "kept",
        shared.uuid: "kept",
    }
    shown = read(agent, "vm", "show", exclusive.uuid[:8])
    assert all(task["in_place"] for task in shown["task_list"])
    tree = Tree(simulator.root)
    assert {int(cache): int(mask, 16) for cache, mask in shown["masks"].items()} == tree.masks(
        f"vmqos.{exclusive.uuid}"
    )

    assert read(agent, "cache", "show") == agent.get("/v1/caches")["caches"]
    picture = vmqos(agent, "cache", "show").stdout
    assert picture.isascii()
    assert "not alone" not in picture
    assert picture.count("class ways2, 1 VM") == 2
    assert "CPU 0/" in vmqos(agent, "vm", "show", exclusive.uuid).stdout


def test_a_plan_is_what_happens_when_the_vm_comes(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    first = make_vm(WAYS_2)
    wait_for(lambda: settled(agent, first.uuid), "the first VM being settled")
    before = Tree(simulator.root).groups()
    plan = read(agent, "plan", "--flavor-spec", "hw:cache_ways=3")
    assert plan["verdict"]["state"] == "kept"
    assert Tree(simulator.root).groups() == before

    second = make_vm({"hw:cache_ways": "3"})
    wait_for(lambda: settled(agent, second.uuid), "the second VM being settled")
    assert read(agent, "vm", "show", second.uuid)["masks"] == plan["verdict"]["masks"]
    assert "+  the planned VM" in vmqos(agent, "plan", "--flavor-spec", "hw:cache_ways=1").stdout
    refused = vmqos(agent, "plan", "--flavor-spec", "hw:cache_ways=two")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "hw:cache_ways" in refused.stderr


def test_a_reset_takes_back_ours_alone_and_never_under_a_running_agent(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    tree = Tree(simulator.root)
    foreign = simulator.root / "qemu-1-other-vcpus_0"
    vm, capped = make_vm(WAYS_2), make_vm(CAP_2)
    wait_for(lambda: settled(agent, vm.uuid, capped.uuid), "both VMs being settled")
    foreign.mkdir()
    (foreign / "schemata").write_text("L3:0=200;1=200\n")

    refused = vmqos(agent, "reset", "--yes")
    assert refused.returncode == 1
    assert "stop it first" in refused.stderr
    assert f"vmqos.{vm.uuid}" in tree.groups()

    agent.stop()
    told = vmqos(agent, "reset", "--dry-run")
    assert f"remove the control group vmqos.{vm.uuid}; its " in told.stdout
    assert f"vmqos.{vm.uuid}" in tree.groups()

    unasked = vmqos(agent, "reset")
    assert unasked.returncode == 1
    assert "--yes" in unasked.stderr
    assert f"vmqos.{vm.uuid}" in tree.groups()

    done = vmqos(agent, "reset", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert tree.groups() == [foreign.name]
    assert tree.masks(foreign.name) == {0: 0x200, 1: 0x200}
    assert all(mask & 0x1FF == 0x1FF for mask in tree.masks().values())
    assert not list((simulator.root / "mon_groups").glob("vmqos.*"))
    assert "Nothing to do" in vmqos(agent, "reset").stdout

    # The VMs went on, and a new agent keeps their promises again.
    agent.start()
    wait_for(lambda: settled(agent, vm.uuid, capped.uuid), "both VMs being settled again")


def test_a_reset_and_a_withdrawal_leave_openstack_nothing_to_give(
    make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor, tmp_path: Path
) -> None:
    file = tmp_path / "provider.yaml"
    agent = make_agent({"placement": {"provider_yaml": file}})
    agent.start()
    vm = make_vm(WAYS_2)
    wait_for(lambda: settled(agent, vm.uuid), "the VM being settled")
    wait_for(file.exists, "the file")
    told = file.read_text()
    refused = vmqos(agent, "placement", "withdraw")
    assert refused.returncode == 1 and "vmqos-agent runs" in refused.stderr
    agent.kill()

    assert vmqos(agent, "reset", "--yes", "--no-placement").returncode == 0
    assert file.read_text() == told
    shown = vmqos(agent, "reset", "--dry-run")
    assert f"reserve all that {file} has" in shown.stdout and file.read_text() == told
    done = vmqos(agent, "reset", "--yes")
    assert done.returncode == 0 and done.stdout.endswith(
        "restart nova-compute, which reads it when it starts.\nDone.\n"
    )
    reserved = file.read_text()
    assert reserved.count("reserved: 0") == 0 < told.count("reserved: 0")
    assert "Nothing to do" in vmqos(agent, "reset").stdout

    agent.start()
    wait_for(lambda: file.read_text() == told, "the agent that is back telling what the host has")
    agent.kill()
    assert vmqos(agent, "placement", "withdraw").returncode == 0
    assert file.read_text() == reserved


def test_a_reset_without_a_way_to_placement_takes_back_the_groups_and_says_what_is_left_to_do(
    make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor, simulator: Simulator
) -> None:
    nowhere = {"auth_type": "admin_token", "endpoint": "http://127.0.0.1:1", "token": "x", "hypervisor_hostname": "n"}
    agent = make_agent({"placement": nowhere})
    agent.start()
    vm = make_vm(WAYS_2)
    wait_for(lambda: settled(agent, vm.uuid), "the VM being settled")
    agent.kill()
    done = vmqos(agent, "reset", "--yes")
    assert done.returncode == 1 and "Done." in done.stdout
    assert "Placement can't be reached" in done.stderr and "vmqos placement withdraw" in done.stderr
    assert not list(simulator.root.glob("vmqos.*"))


def test_the_doctor_passes_a_host_whose_agent_runs_and_not_one_whose_agent_does_not(agent: Agent) -> None:
    healthy = vmqos(agent, "doctor", "-f", "json")
    assert healthy.returncode == 0, healthy.stdout
    assert {finding["status"] for finding in json.loads(healthy.stdout)} <= {"ok", "warning"}
    (counting,) = (finding for finding in json.loads(healthy.stdout) if finding["title"] == "Hardware events")
    why = agent.get("/v1/telemetry/hardware-events")["unavailable"]
    assert counting["detail"].startswith(f"not counted: {why}" if why else "the agent counts")

    agent.stop()
    ill = vmqos(agent, "doctor", "--problems", "-f", "json")
    assert ill.returncode == 1
    problems = [finding for finding in json.loads(ill.stdout) if finding["status"] == "problem"]
    assert [(finding["title"], finding["command"]) for finding in problems] == [
        ("Agent", "systemctl start vmqos-agent")
    ]


@pytest.mark.parametrize("simulator", [("cascade-lake", "cdp")], indirect=True)
def test_the_doctor_tells_of_a_mount_with_cdp_and_counts_half_the_classes(agent: Agent, simulator: Simulator) -> None:
    doctor = vmqos(agent, "doctor", "-f", "json")
    assert doctor.returncode == 0, doctor.stdout
    found = {finding["title"]: finding for finding in json.loads(doctor.stdout)}
    assert found["L3 allocation"]["status"] == "ok"
    assert "for code and for data apart (cdp)" in found["L3 allocation"]["detail"]
    closids = min(int(file.read_text()) for file in simulator.root.glob("info/*/num_closids"))
    assert f"1 of {closids} in use" in found["Control groups (CLOSIDs)"]["detail"]


@pytest.mark.feature("capabilities")
def test_capabilities_are_the_same_with_and_without_an_agent(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    exclusive, shared = make_vm(WAYS_2), make_vm(CAP_2, display_name="shop-1")
    wait_for(lambda: settled(agent, exclusive.uuid, shared.uuid), "both VMs being settled")
    foreign = simulator.root / "qemu-1-other-vcpus_0"
    foreign.mkdir()
    (foreign / "schemata").write_text("L3:0=200;1=200\n")
    (foreign / "cpus_list").write_text("1\n")
    told = read(agent, "capabilities")
    groups = {group["name"]: group for group in told["groups"]}

    def tasks_in(name: str) -> int:
        return next(int(group["tasks"]) for group in read(agent, "capabilities")["groups"] if group["name"] == name)

    assert groups[f"vmqos.{exclusive.uuid}"]["vms"] == [exclusive.uuid]
    # QEMU's workers come and go.
    wait_for(lambda: tasks_in(f"vmqos.{exclusive.uuid}") == len(exclusive.tasks()), "all its tasks being counted")
    assert groups["vmqos.shared-ways2"]["vms"] == [shared.uuid]
    assert (groups[foreign.name]["owner"], groups[foreign.name]["cpus"]) == ("foreign", "1")
    assert groups[foreign.name]["schemata"]["L3"] == {"0": "200", "1": "200"}
    assert told["simulated"]
    assert told["caches"]["L3"]["way_bytes"] * 11 == told["caches"]["L3"]["size_bytes"]
    assert "VMs that share it: shop-1" in vmqos(agent, "capabilities").stdout

    agent.stop()
    again = read(agent, "capabilities")
    for group in (*told["groups"], *again["groups"]):
        del group["tasks"]  # processes come and go
        for inside in group["monitoring_groups"]:
            del inside["tasks"]
    assert again == told
    assert f"VMs that share it: {shared.uuid[:8]}" in vmqos(agent, "capabilities").stdout


@pytest.mark.feature("capabilities")
@pytest.mark.parametrize("simulator", [("sapphire-rapids", "cdp,cdpl2"), "milan"], indirect=True)
def test_capabilities_tell_what_is_special_about_a_machine(make_agent: MakeAgent, simulator: Simulator) -> None:
    agent = make_agent()
    told = read(agent, "capabilities")
    assert told["mount_options"] == [option for option in simulator.mount_options.split(",") if option]
    (default,) = told["groups"]
    assert set(default["schemata"]) == set(told["caches"]) | set(told["bandwidths"])
    shown = vmqos(agent, "capabilities").stdout
    if simulator.profile == "milan":
        assert told["monitoring"]["configurable"] == ["mbm_total_bytes", "mbm_local_bytes"]
        assert "mbm_local_bytes, configurable" in shown
    else:
        assert {name: cache["cdp"] for name, cache in told["caches"].items()} == dict.fromkeys(
            ("L2CODE", "L2DATA", "L3CODE", "L3DATA"), "on"
        )
        assert "cdp, cdpl2" in shown
        assert "split into code and data (CDP)" in shown


def test_a_hostile_instance_name_does_not_reach_the_terminal(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> None:
    vm = make_vm(WAYS_2, display_name="\N{RIGHT-TO-LEFT OVERRIDE}evil" + "x" * 200, uuid=str(uuid.uuid4()))
    wait_for(lambda: settled(agent, vm.uuid), "the VM being settled")
    for arguments in (("vm", "list"), ("vm", "show", vm.uuid), ("cache", "show")):
        shown = vmqos(agent, *arguments).stdout
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in shown
        assert r"\u202eevil" in shown
