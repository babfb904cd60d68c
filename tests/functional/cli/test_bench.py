# SPDX-License-Identifier: Apache-2.0
"""``vmqos bench noisy-neighbor`` on the simulator, where its figures mean nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.agent.tree import Tree
from tests.functional.cli.test_commands import WAYS_2, settled
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab import processes
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from tools.lab.workspace import CHECKOUT

pytestmark = pytest.mark.feature("neighbor")

QUICK = ("--duration", "0.3", "--repetitions", "2", "--working-set", "64K", "--noise", "builtin")
ALL = 0x7FF


def start(agent: Agent, *arguments: str) -> subprocess.Popen[str]:
    """Start the command as an operator would, without a terminal."""
    environment = {key: value for key, value in os.environ.items() if key not in ("VMQOS_SOCKET", "FORCE_COLOR")}
    command = [sys.executable, "-m", "vmqos.cli.main", "--config-file", str(agent.config_file)]
    return subprocess.Popen(
        [*command, "bench", "noisy-neighbor", *arguments],
        cwd=CHECKOUT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def bench(agent: Agent, *arguments: str) -> subprocess.CompletedProcess[str]:
    with start(agent, *arguments) as running:
        output, errors = running.communicate(timeout=280)
    return subprocess.CompletedProcess(running.args, running.returncode, output, errors)


def children(pid: int) -> set[int]:
    """What a process has started and not yet seen end."""
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def wait_for_group(tree: Tree) -> str:
    """Wait until the victim has ways of its own; the name of its group."""

    def held() -> bool:
        return any(name.startswith("vmqos.bench-") and tree.tasks(name) for name in tree.groups())

    processes.wait_until(held, "the victim having ways of its own", 60.0)
    return next(name for name in tree.groups() if name.startswith("vmqos.bench-"))


@pytest.mark.parametrize("simulator", ["cascade-lake", ("cascade-lake", "cdp"), "milan"], indirect=True)
def test_an_experiment_says_its_figures_mean_nothing_and_leaves_nothing(
    make_agent: MakeAgent, simulator: Simulator
) -> None:
    before = (simulator.root / "schemata").read_text()
    done = bench(make_agent(), *QUICK, "--ways", "2", "-f", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["meaningful"]
    assert "resctrl is simulated here" in found["remarks"][0]
    assert found["ways"] == 2
    assert list(found["phases"]) == ["alone", "noisy", "protected", "alone_again"]
    assert all(len(phase["rounds"]) == 2 for phase in found["phases"].values())
    assert found["ratios"]["noisy"] == found["phases"]["noisy"]["median"] / found["phases"]["alone"]["median"]
    assert not set(found["victim"]["cpus"]) & set(found["neighbor"]["cpus"])
    assert Tree(simulator.root).groups() == []
    assert (simulator.root / "schemata").read_text() == before


def test_bars_are_drawn_for_people(make_agent: MakeAgent) -> None:
    done = bench(make_agent(), *QUICK)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert done.stdout.startswith("The figures mean nothing: ")
    for line in ("alone ", "with a noisy neighbour ", "with ways of its own "):
        assert any(shown.startswith(line) and "#" in shown for shown in done.stdout.splitlines()), done.stdout
    assert "with ways of its own ...\n" in done.stderr


def test_it_lives_with_an_agent_and_takes_nobodys_ways(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(WAYS_2)
    wait_for(lambda: settled(agent, vm.uuid), "the VM being settled")
    tree = Tree(simulator.root)
    foreign = simulator.root / "qemu-1-other-vcpus_0"
    foreign.mkdir()
    (foreign / "schemata").write_text("L3:0=200;1=200\n")
    before = {name: tree.masks(name) for name in ("", f"vmqos.{vm.uuid}", foreign.name)}
    with start(agent, "--duration", "3", *QUICK[2:], "--ways", "2") as running:
        name = wait_for_group(tree)
        # A pass of the agent's leaves them to the experiment, which waits meanwhile, for passes may take long.
        running.send_signal(signal.SIGSTOP)
        try:
            mine = tree.masks(name)[0]
            assert not any(tree.masks(other)[0] & mine for other in before)
            passes = agent.get("/v1/health")["passes"]
            wait_for(lambda: agent.get("/v1/health")["passes"] > passes + 2, "the agent going on")
            assert tree.masks(name)[0] == mine
            assert not tree.masks()[0] & mine
        finally:
            running.send_signal(signal.SIGCONT)
        _, errors = running.communicate(timeout=200)
    assert running.returncode == 0, errors
    wait_for(lambda: {other: tree.masks(other) for other in before} == before, "everything being as before")
    assert tree.groups() == sorted((foreign.name, f"vmqos.{vm.uuid}"))


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
def test_whatever_ends_it_leaves_no_group_and_no_process(
    make_agent: MakeAgent, simulator: Simulator, number: signal.Signals, status: int
) -> None:
    tree = Tree(simulator.root)
    with start(make_agent(), "--duration", "60", *QUICK[2:]) as running:
        processes.wait_until(lambda: len(children(running.pid)) >= 2, "the loads being there", 60.0)
        started = children(running.pid)
        running.send_signal(number)
        _, errors = running.communicate(timeout=200)
    assert running.returncode == status, errors
    processes.wait_until(lambda: all(map(is_gone, started)), "its processes being gone", 60.0)
    assert tree.groups() == []
    assert tree.masks() == {0: ALL, 1: ALL}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ways_are_given_back_when_it_ends_while_the_victim_has_them(
    make_agent: MakeAgent, simulator: Simulator, number: signal.Signals
) -> None:
    tree = Tree(simulator.root)
    with start(make_agent(), "--duration", "2", *QUICK[2:]) as running:
        wait_for_group(tree)
        # It waits meanwhile: else the victim's time with them could be over.
        running.send_signal(signal.SIGSTOP)
        assert tree.masks()[0] != ALL
        started = children(running.pid)
        running.send_signal(number)
        running.send_signal(signal.SIGCONT)
        running.communicate(timeout=200)
    whole = {0: ALL, 1: ALL}
    processes.wait_until(lambda: tree.groups() == [] and tree.masks() == whole, "its ways being given back", 60.0)
    processes.wait_until(lambda: all(map(is_gone, started)), "its processes being gone", 60.0)
    assert (tree.groups(), tree.masks()) == ([], whole)


def test_what_was_killed_together_with_its_guardian_is_removed_by_the_next_run_and_by_a_reset(
    make_agent: MakeAgent, simulator: Simulator
) -> None:
    tree, agent = Tree(simulator.root), make_agent()
    for mend in ("run", "reset"):
        group = simulator.root / "vmqos.bench-0-f"
        group.mkdir()
        (group / "schemata").write_text("L3:0=f;1=7ff\n")
        (simulator.root / "schemata").write_text("L3:0=7f0\n")
        if mend == "run":
            done = bench(agent, *QUICK)
            assert done.returncode == 0, done.stderr
            assert "Removed vmqos.bench-0-f" in done.stderr
        else:
            command = [sys.executable, "-m", "vmqos.cli.main", "--config-file", str(agent.config_file)]
            subprocess.run([*command, "reset", "--yes"], cwd=CHECKOUT, check=True, capture_output=True)
        assert tree.groups() == []
        assert tree.masks() == {0: ALL, 1: ALL}


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_whichever_step_it_was_killed_after_the_ways_come_back_and_others_keep_theirs(
    make_agent: MakeAgent, simulator: Simulator, steps: int
) -> None:
    root, tree, agent = simulator.root, Tree(simulator.root), make_agent()
    (root / "schemata").write_text("L3:0=7f8\n")
    (root / "other").mkdir()
    (root / "other" / "schemata").write_text("L3:0=3\n")
    # Way 2 is nobody's, and stays so.
    group = root / "vmqos.bench-0-38"
    for number, step in enumerate(
        (
            group.mkdir,
            lambda: (group / "schemata").write_text("L3:0=38;1=7ff\n"),
            lambda: (root / "schemata").write_text("L3:0=7c0\n"),
            # Of giving back, the first half.
            lambda: (root / "schemata").write_text("L3:0=7f8\n"),
        )
    ):
        if number < steps:
            step()
    done = bench(agent, *QUICK, "--ways", "99")
    assert done.returncode == 1, "it is refused after it has tidied up"
    assert tree.groups() == ["other"]
    assert (tree.masks(), tree.masks("other")[0]) == ({0: 0x7F8, 1: ALL}, 0x3)


def test_a_second_one_at_a_time_is_refused(make_agent: MakeAgent) -> None:
    agent = make_agent()
    with start(agent, "--duration", "60", *QUICK[2:]) as running:
        processes.wait_until(lambda: len(children(running.pid)) >= 2, "the loads being there", 60.0)
        second = bench(agent, *QUICK)
        running.terminate()
        running.communicate(timeout=200)
    assert second.returncode == 1
    assert f"another 'vmqos bench' runs on this host (process {running.pid} " in second.stderr


def test_what_can_not_be_is_refused_before_anything_is_measured(make_agent: MakeAgent, simulator: Simulator) -> None:
    agent = make_agent()
    cases = {
        ("--ways", "10"): "the experiment needs 10 neighbouring ways of L3 cache 0",
        ("--cache", "7"): "there is no L3 cache with the id 7; there are: 0, 1",
        ("--vm", "web-1"): "a VM is measured by a --command",
        ("--vm", "web-1", "--command", "true"): "no running VM has the UUID or name 'web-1'",
        ("--command", "exit 3"): "the command 'exit 3' failed: it ended with status 3",
    }
    for arguments, words in cases.items():
        done = bench(agent, *QUICK, *arguments)
        # A wrong command line, and what this host can't do.
        status = 2 if words == "a VM is measured by a --command" else 1
        assert (done.returncode, done.stdout) == (status, ""), arguments
        assert words in done.stderr
        assert "libvirt" not in done.stderr, "the agent's log of libvirt is no answer"
    for number in range(7):
        (simulator.root / f"other{number}").mkdir()
        (simulator.root / f"other{number}" / "schemata").write_text("L3:0=400;1=400\n")
    done = bench(agent, *QUICK)
    assert done.returncode == 1
    assert "all 8 CLOSIDs are taken" in done.stderr
    assert Tree(simulator.root).masks() == {0: ALL, 1: ALL}


STATE_OF = """import libvirt, sys
domain = libvirt.openReadOnly(sys.argv[1]).lookupByUUIDString(sys.argv[2])
print({libvirt.VIR_DOMAIN_RUNNING: "running", libvirt.VIR_DOMAIN_PAUSED: "paused"}[domain.state()[0]])"""
"""A program that says whether a VM runs; libvirt's own is in a package that nothing else here needs."""


def test_a_vm_is_measured_by_a_command_and_another_one_is_paused_meanwhile(
    make_agent: MakeAgent,
    simulator: Simulator,
    make_vm: MakeVm,
    libvirt_host: PrivateLibvirt,
    tmp_path: Path,
) -> None:
    tree, agent = Tree(simulator.root), make_agent()
    victim, neighbor = make_vm(cpuset="0"), make_vm(cpuset="1")
    monitoring = simulator.root / "mon_groups" / f"vmqos.{victim.uuid}"
    monitoring.mkdir()
    tasks = {int(task) for task in os.listdir(f"/proc/{victim.pid}/task")}
    for task in tasks:
        # QEMU's workers come and go.
        with contextlib.suppress(ProcessLookupError):
            (monitoring / "tasks").write_text(f"{task}\n")
    log = tmp_path / "seen"
    state = f"{sys.executable} -c '{STATE_OF}' '{libvirt_host.uri}' {neighbor.uuid}"
    command = (
        f"(grep -lw {victim.pid} {simulator.root}/tasks {simulator.root}/vmqos.bench*/tasks; {state}) >> {log}; true"
    )
    done = bench(
        agent,
        "--repetitions",
        "1",
        "--vm",
        victim.uuid,
        "--command",
        command,
        "--neighbor-vm",
        neighbor.uuid,
        "-f",
        "json",
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["unit"] == "s per run"
    assert (found["victim"]["cpus"], found["neighbor"]["cpus"]) == ([0], [1])
    seen = [line for line in log.read_text().splitlines() if line]
    group = f"{simulator.root}/vmqos.bench-0-f/tasks"
    root = f"{simulator.root}/tasks"
    expected = []
    for place, domain in ((root, "paused"), (root, "running"), (group, "running"), (root, "paused")):
        expected += 2 * [place, domain]  # a run to warm up, and one that counts
    assert seen == expected
    left = tree.tasks(f"mon_groups/vmqos.{victim.uuid}")
    assert left and tasks & victim.tasks().keys() <= left
    assert tree.groups() == []
    connection = libvirt_host.connection()
    assert connection.lookupByUUIDString(neighbor.uuid).isActive()
    assert connection.lookupByUUIDString(neighbor.uuid).state()[0] == 1


def test_a_vm_that_is_paused_already_makes_no_noise_and_stays_paused(make_agent: MakeAgent, make_vm: MakeVm) -> None:
    victim, neighbor = make_vm(cpuset="0"), make_vm(cpuset="1")
    neighbor.domain.suspend()
    done = bench(make_agent(), "--vm", victim.uuid, "--command", "true", "--neighbor-vm", neighbor.uuid)
    assert done.returncode == 1 and "does not run (it is paused or shut off)" in done.stderr
    assert neighbor.domain.state()[0] == 3, "paused"
