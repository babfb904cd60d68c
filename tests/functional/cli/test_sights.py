# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of code and data, L2, memory bandwidth, vCPUs and locks, where there are any."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest

from tests.functional.agent.tree import Tree
from tests.functional.cli.test_commands import read, settled, vmqos
from tests.functional.conftest import MakeVm, WaitFor
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator

RICH = {"hw:cache_code_ways": "1", "hw:cache_data_ways": "3", "hw:l2_cache_ways": "4", "hw:mem_bandwidth_percent": "55"}
HALF = {"hw:mem_bandwidth_percent": "50"}


def fields(agent: Agent, name: str) -> dict[str, str]:
    """What ``vm show`` says for people."""
    shown = vmqos(agent, "vm", "show", name).stdout.split("\n\n")[0]
    cells = (line.split("|") for line in shown.splitlines() if line.startswith("|"))
    return {title.strip(): value.strip() for _, title, value, _ in cells}


def listed(agent: Agent, name: str) -> dict[str, str]:
    """What ``vm list`` says of a VM."""
    titles, *rows = (line.split("|") for line in vmqos(agent, "vm", "list").stdout.splitlines() if line[0] == "|")
    (row,) = (row for row in rows if row[2].strip() == name)
    return {title.strip(): cell.strip() for title, cell in zip(titles, row, strict=True)}


@pytest.mark.parametrize("simulator", [("sapphire-rapids", "cdp")], indirect=True)
def test_a_machine_that_has_everything_shows_who_has_what(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    rich = make_vm(RICH, cpuset="0", display_name="rich")
    half = make_vm(HALF, display_name="half")
    part = make_vm({"hw:cache_ways": "2", "hw:cache_vcpus": "1"}, vcpus=2, display_name="part")
    wait_for(lambda: settled(agent, rich.uuid, half.uuid, part.uuid), "the VMs being settled")
    settled_at = time.time()

    told = read(agent, "vm", "show", "rich")
    assert (told["state"], told["ways_requested"]) == ("kept", 4)
    assert (told["code_ways_requested"], told["data_ways_requested"], told["l2_ways_requested"]) == (1, 3, 4)
    assert (told["bandwidth"], told["bandwidth_unit"]) == ({"0": 60}, "%")
    assert (told["bandwidth_requested"], told["bandwidth_requested_unit"]) == (55, "%")
    ((core, mask),) = told["l2_masks"].items()

    shown = fields(agent, "rich")
    assert shown["Ways granted"] == shown["Ways requested"] == "1 for code, 3 for data"
    assert shown["Memory bandwidth"] == "60 %, 55 % asked for"
    assert (shown["L2 ways granted"], shown["L2 masks"]) == ("4", f"{core}={mask}")
    assert fields(agent, "part")["vCPUs with the ways"] == "1"
    line = listed(agent, "rich")
    assert (line["Ways"], line["L2 ways"], line["Bandwidth"], line["vCPUs"]) == ("1c+3d", "4", "60 %", "-")
    assert (listed(agent, "half")["Bandwidth"], listed(agent, "part")["vCPUs"]) == ("50 %", "1")

    caches = read(agent, "cache", "show")
    answer = agent.get("/v1/caches")
    assert caches == answer["caches"] + answer["l2_caches"]
    cores = {cache["id"]: cache for cache in caches if cache["resource"] == "L2"}
    of_root = Tree(simulator.root).values("L2", "")
    assert len(cores) > 1
    assert {cache: one["free_ways"] for cache, one in cores.items()} == dict.fromkeys(cores, 14) | {int(core): 10}
    assert {cache: one["groups"][0]["mask"] for cache, one in cores.items()} == of_root
    picture = vmqos(agent, "cache", "show").stdout
    assert "not alone" not in picture
    assert "rich, data" in picture and "rich, code" in picture and "class mb50, 1 VM" in picture
    pictures = {text.splitlines()[0]: text for text in picture.split("\n\n") if " cache" in text.splitlines()[0]}
    assert [title.split(",")[0].partition(" cache")[0] for title in pictures] == ["L3", "L3", "L2", "L2"]
    (own,) = (text for title, text in pictures.items() if title.startswith(f"L2 cache {core},"))
    assert "rich" in own and "10 ways left to promise exclusively" in own
    assert vmqos(agent, "cache", "show", f"L2:{core}").stdout.split("\n\n")[0].splitlines()[0] == own.splitlines()[0]

    # What it shows is of the agent's last look at the counters.
    wait_for(lambda: agent.get("/v1/telemetry")["taken_at"] > settled_at, "a look at the counters of all VMs")
    vms: dict[str, Any] = {
        vm["instance_name"]: vm for vm in json.loads(vmqos(agent, "top", "-f", "json").stdout)["vms"]
    }
    assert (vms["rich"]["code_ways"], vms["rich"]["data_ways"]) == ({"0": 1}, {"0": 3})
    assert (vms["rich"]["l2_ways"], vms["rich"]["bandwidth_limit"]) == ({core: 4}, {"0": 60})
    shown_live = vmqos(agent, "top").stdout
    assert "1c+3d" in shown_live and "60 %" in shown_live and "50 %" in shown_live


@pytest.mark.parametrize("simulator", ["milan"], indirect=True)
def test_a_vm_that_has_a_limit_alone_is_in_nobodys_way(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> None:
    vm = make_vm({"hw:mem_bandwidth_mbps": "4001"}, display_name="slow")
    wait_for(lambda: settled(agent, vm.uuid), "the VM being settled")
    assert fields(agent, "slow")["Memory bandwidth"] == "4125 MB/s, 4001 MB/s asked for"
    picture = vmqos(agent, "cache", "show").stdout
    told = read(agent, "vm", "show", "slow")
    assert picture.count("in the default group's ways: slow (at most 4125 MB/s)") == len(told["caches"]) > 0
    assert picture.count("in the default group's ways: slow") == 4
    assert "not alone" not in picture and "L2" not in picture
    plan = vmqos(agent, "plan", "--flavor-spec", "hw:mem_bandwidth_mbps=100")
    assert plan.stdout.startswith("kept: ") and "Memory bandwidth: 125 MB/s" in plan.stdout


@pytest.mark.parametrize("simulator", ["broadwell"], indirect=True)
def test_locked_memory_is_told_on_the_map_and_by_the_doctor(
    agent: Agent, simulator: Simulator, wait_for: WaitFor
) -> None:
    root = simulator.root
    (root / "schemata").write_text("L3:0=ffffc\n")
    (root / "vmqos.lock-table").mkdir()
    (root / "vmqos.lock-table" / "mode").write_text("pseudo-locksetup\n")
    (root / "vmqos.lock-table" / "schemata").write_text("L3:0=3\n")
    wait_for(lambda: " lock table " in vmqos(agent, "cache", "show", "0").stdout, "the lock being drawn")
    assert " lock table " not in vmqos(agent, "cache", "show", "1").stdout
    caches = agent.get("/v1/caches")["caches"]
    assert [(one["mode"], one["mask"]) for one in caches[0]["groups"][1:]] == [("pseudo-locked", "3")]
    found = {finding["title"]: finding for finding in json.loads(vmqos(agent, "doctor", "-f", "json").stdout)}
    assert found["Locked memory"]["detail"] == "table: see 'vmqos lock list'"
    assert found["Groups of others"]["status"] == "ok"


def test_a_machine_that_has_ways_alone_looks_as_ever(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> None:
    vm = make_vm({"hw:cache_ways": "2"}, display_name="web")
    wait_for(lambda: settled(agent, vm.uuid), "the VM being settled")
    line = listed(agent, "web")
    assert list(line) == ["", "UUID", "VM", "Flavor", "State", "Policy", "Ways", "Group", "Tasks", "Reason"]
    picture = vmqos(agent, "cache", "show").stdout
    assert "L2" not in picture and "bandwidth" not in picture and ", code" not in picture
    heading = vmqos(agent, "top").stdout.splitlines()
    assert not any("LIMIT" in text or " L2 " in text for text in heading)


def test_the_doctor_names_what_an_experiment_left_behind_and_how_it_goes_away(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm({"hw:cache_ways": "2"})
    wait_for(lambda: settled(agent, vm.uuid), "the VM being settled")
    tree, group = Tree(simulator.root), simulator.root / "vmqos.bench-0-f0"
    before = tree.masks()
    group.mkdir()
    (simulator.root / "schemata").write_text("L3:0=700\n")
    (group / "schemata").write_text("L3:0=f0\n")

    found = json.loads(vmqos(agent, "doctor", "-f", "json").stdout)
    (told,) = (finding for finding in found if finding["title"] == "Groups of 'vmqos bench'")
    assert told["status"] == "warning"
    assert "vmqos.bench-0-f0: left behind by an experiment that was killed" in told["detail"]
    subprocess.run(told["command"], shell=True, check=True)
    wait_for(lambda: tree.masks() == before, "the default group having its ways back")
    assert tree.groups() == [f"vmqos.{vm.uuid}"]
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being kept")


def test_the_doctor_warns_of_rmids_that_never_come_back(agent: Agent, simulator: Simulator) -> None:
    def told() -> list[tuple[str, str]]:
        found = json.loads(vmqos(agent, "doctor", "-f", "json").stdout)
        return [(one["status"], one["command"]) for one in found if one["title"] == "RMIDs in limbo"]

    threshold = simulator.root / "info" / "L3_MON" / "max_threshold_occupancy"
    assert told() == []
    threshold.write_text("0\n")
    ((status, command),) = told()
    assert (status, command) == ("warning", f"echo 1048576 > {threshold}")
    threshold.write_text("1048576\n")
    assert told() == []
