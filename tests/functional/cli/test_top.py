# SPDX-License-Identifier: Apache-2.0
"""``vmqos top`` on a real agent, real VMs and the simulator, in a terminal and without."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.functional.agent.conftest import wait_until_told
from tests.functional.cli.glass import Glass, running
from tests.functional.cli.test_commands import settled, while_fresh
from tests.functional.conftest import MakeVm, WaitFor
from tools.lab import vms as lab_vms
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator

WAYS_2 = {"hw:cache_ways": "2"}
GRANTS = ("ways", "code_ways", "data_ways", "l2_ways", "bandwidth_limit", "bandwidth_limit_unit", "allocated_bytes")
Watch = Callable[..., Glass]


def environment(**changes: str) -> Mapping[str, str]:
    dropped = ("VMQOS_SOCKET", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "LINES")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    return kept | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | changes


def command(agent: Agent, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "vmqos.cli.main", "--config-file", str(agent.config_file), "top", *arguments]


def look(agent: Agent, *arguments: str) -> dict[str, object]:
    done = while_fresh(
        lambda: subprocess.run(
            command(agent, "-f", "json", *arguments), env=environment(), text=True, capture_output=True, check=False
        )
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    (line,) = done.stdout.splitlines()
    return dict(json.loads(line))


@pytest.fixture
def watch(agent: Agent, wait_for: WaitFor) -> Iterator[Watch]:
    """Run it in a terminal, and wait until it shows something; arguments, and ``lines``, ``columns``, variables."""
    opened: list[Glass] = []

    def open_it(*arguments: str, lines: int = 24, columns: int = 100, **variables: str) -> Glass:
        glass = Glass(command(agent, "-d", "0.2", *arguments), environment(**variables), lines, columns)
        opened.append(glass)
        wait_for(lambda: "q quit" in glass.text, "the screen being drawn")
        return glass

    yield open_it
    for glass in opened:
        glass.close()


def test_numbers_are_the_agents(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> None:
    vm = make_vm(WAYS_2, display_name="web-1")
    wait_for(lambda: settled(agent, vm.uuid), "the promise being kept")

    def shown() -> dict[str, object]:
        (found,) = look(agent, "web-1")["vms"]  # type: ignore[misc]
        return dict(found)

    found: dict[str, object] = {}

    def is_counted() -> bool:
        found.clear()
        found.update(shown())
        return bool(found["occupancy_bytes"]) and found["total_bytes_per_second"] is not None

    wait_for(is_counted, "the VM's counters")
    assert (found["uuid"], found["instance_name"], found["state"], found["ways"]) == (
        vm.uuid,
        "web-1",
        "kept",
        {"0": 2, "1": 2},
    )
    counters = agent.get("/v1/telemetry")["vms"][vm.uuid]
    assert found["allocated_bytes"] == counters["allocated_bytes"] == 4 * 1_572_864


def test_without_an_agent_the_counters_are_resctrls_own(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> None:
    vm = make_vm(WAYS_2, display_name="web-1")
    wait_for(lambda: settled(agent, vm.uuid), "the promise being kept")
    agent.stop()
    shown = look(agent, vm.uuid[:8], "-d", "0.3")
    assert shown["source"] == "resctrl"
    assert "vmqos-agent does not run" in str(shown["notes"])
    (found,) = shown["vms"]  # type: ignore[misc]
    assert (found["uuid"], found["state"], found["ways"]) == (vm.uuid, "", {"0": 2, "1": 2})
    assert found["occupancy_bytes"] is not None
    assert found["total_bytes_per_second"] is not None
    of_few = {"core_watts", "llc_miss_stalls"}
    assert found["missing"].keys() <= {"instructions_per_cycle", "llc_misses_per_second"} | of_few


@pytest.mark.parametrize("simulator", [("sapphire-rapids", "cdp"), "milan"], indirect=True)
def test_without_an_agent_a_vm_has_what_it_was_granted(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    everything = {"hw:cache_code_ways": "1", "hw:cache_data_ways": "3", "hw:l2_cache_ways": "4"}
    specs: list[Mapping[str, str]] = [WAYS_2, {}]
    if simulator.profile == "sapphire-rapids":
        specs += [WAYS_2 | {"hw:cache_policy": "shared"}]
        specs += [everything | {"hw:mem_bandwidth_percent": "55"}, {"hw:mem_bandwidth_percent": "50"}]
    else:
        specs += [WAYS_2 | {"hw:mem_bandwidth_mbps": "4001"}]
    # On which caches a VM of a class can run is for the agent alone to know: here on all.
    vms = [make_vm(wanted, cpuset="" if "shared" in wanted.values() else "0") for wanted in specs]
    for vm, wanted in zip(vms, specs, strict=True):
        wait_until_told(agent, wait_for, vm, "kept" if wanted else "none")
    # What the command shows is of the agent's last look at the counters.
    served = time.time()
    wait_for(lambda: agent.get("/v1/telemetry")["taken_at"] > served, "a look at the counters of all VMs")

    def granted() -> dict[str, dict[str, object]]:
        shown: list[dict[str, object]] = look(agent)["vms"]  # type: ignore[assignment]
        return {str(vm["uuid"]): {field: vm[field] for field in GRANTS} for vm in shown}

    told = granted()
    assert any(vm["bandwidth_limit"] for vm in told.values())
    agent.stop()
    assert granted() == told


def test_a_pending_vm_is_listed_first_with_its_reason(make_vm: MakeVm, watch: Watch, wait_for: WaitFor) -> None:
    make_vm(WAYS_2, display_name="web-1")
    make_vm({"hw:cache_ways": "20"}, display_name="\N{RIGHT-TO-LEFT OVERRIDE}huge")
    glass = watch()

    def pending() -> list[str]:
        return [line for line in glass.lines if line.startswith("◔ pending")]

    # A screen comes in pieces, which may end within a line.
    wait_for(lambda: any(" has " in line for line in pending()) and "● web-1" in glass.text, "both VMs being shown")
    (line,) = pending()
    assert line.startswith(r"◔ pending \u202ehuge: L3 cache 0 has ")
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in glass.said
    assert glass.colours


def test_the_screen_follows_the_host(make_vm: MakeVm, watch: Watch, wait_for: WaitFor) -> None:
    glass = watch()
    wait_for(lambda: "no VM" in glass.text, "the empty host being shown")
    make_vm(WAYS_2, display_name="web-1")
    wait_for(lambda: "● web-1" in glass.text and "1 VM, 1 of 1 promise kept" in line_of(glass, 1), "the VM being shown")


@pytest.mark.parametrize("leave", ["q", "\x03"])
def test_leaving_gives_the_terminal_back_as_it_was(leave: str, watch: Watch, wait_for: WaitFor) -> None:
    glass = watch()
    assert glass.alternate
    assert glass.current_mode() != glass.mode
    glass.type(leave)
    assert glass.process.wait(120) == 0
    wait_for(lambda: not glass.alternate, "the last that it wrote coming through")
    assert glass.current_mode() == glass.mode
    assert glass.said.rstrip().endswith("\x1b[?25h\x1b[?1049l")


def test_a_signal_gives_the_terminal_back_too(watch: Watch, wait_for: WaitFor) -> None:
    glass = watch()
    glass.process.terminate()
    assert glass.process.wait(120) == 128 + signal.SIGTERM
    wait_for(lambda: not glass.alternate, "the last that it wrote coming through")
    assert glass.current_mode() == glass.mode


def test_it_can_be_put_aside_and_taken_up_again(watch: Watch, wait_for: WaitFor) -> None:
    glass = watch()
    glass.type("\x1a")
    wait_for(lambda: _state(glass.process.pid) == "T", "it being stopped")
    # A terminal hands on what was written to it a moment later.
    wait_for(lambda: not glass.alternate, "the last that it wrote coming through")
    assert glass.current_mode() == glass.mode
    glass.process.send_signal(signal.SIGCONT)
    wait_for(lambda: glass.alternate and "q quit" in glass.text, "it being drawn again")
    glass.type("q")
    assert glass.process.wait(120) == 0


def line_of(glass: Glass, number: int) -> str:
    """A line of the screen; empty where there is none, as for a moment of a screen that was cleared."""
    return dict(enumerate(glass.lines)).get(number, "")


def names(glass: Glass) -> list[str]:
    """The VMs that are shown, from the top."""
    return [name for line in glass.lines if line[:1] == "●" for name in line.split()[1:2]]


def fits(glass: Glass, lines: int, columns: int) -> bool:
    """Whether something is shown, and nothing beyond the edges; for a moment, a cleared screen is empty."""
    shown = glass.lines
    return 0 < len(shown) <= lines and max(map(len, shown)) <= columns


def test_keys_sort_and_help(make_vm: MakeVm, watch: Watch, wait_for: WaitFor) -> None:
    for name in ("aaa", "zzz"):
        make_vm(WAYS_2, display_name=name)
    glass = watch("--sort", "name")
    wait_for(lambda: names(glass) == ["aaa", "zzz"], "both VMs")
    glass.type("R")
    wait_for(lambda: names(glass) == ["zzz", "aaa"], "the reverse")
    glass.type("t")
    wait_for(lambda: "TOTAL/s▲" in glass.text, "the heading saying so")
    glass.type("h")
    wait_for(lambda: "Sort by:" in glass.text, "the help")
    glass.type("h")
    wait_for(lambda: "● aaa" in glass.text, "the VMs again")


@pytest.mark.parametrize(("lines", "columns"), [(10, 40), (40, 160), (3, 20), (1, 200)])
def test_it_follows_the_size_of_the_window(
    lines: int, columns: int, make_vm: MakeVm, watch: Watch, wait_for: WaitFor
) -> None:
    make_vm(WAYS_2, display_name="web-1")
    glass = watch()
    wait_for(lambda: "● web-1" in glass.text, "the VM being shown")
    glass.resize(lines, columns)
    wait_for(lambda: fits(glass, lines, columns), "it fitting")
    glass.type("q")
    assert glass.process.wait(120) == 0


def test_little_is_sent_when_little_changes(agent: Agent, make_vm: MakeVm, watch: Watch, wait_for: WaitFor) -> None:
    for number in range(3):
        make_vm(WAYS_2 if number else {}, display_name=f"web-{number}")
    wait_for(lambda: len(agent.get("/v1/vms")["vms"]) == 3, "the agent knowing the VMs")
    glass = watch("-d", "3600", lines=50, columns=120)
    wait_for(lambda: all(f"web-{number}" in glass.text for number in range(3)), "the VMs being shown")
    before = len(glass.said)
    glass.type("R")
    wait_for(lambda: "OCCUPANCY\N{BLACK UP-POINTING TRIANGLE}" in glass.said[before:], "the heading saying so")
    assert "vmqos top" not in glass.said[before:]
    assert "q quit" not in glass.said[before:]
    assert len(glass.said) - before < 1500


def test_no_color_is_plain_ascii_and_still_live(make_vm: MakeVm, watch: Watch, wait_for: WaitFor) -> None:
    make_vm(WAYS_2, display_name="web-1")
    glass = watch(NO_COLOR="1")
    wait_for(lambda: " >web-1" in glass.text, "the VM being shown")
    assert not glass.colours
    assert glass.text.isascii()


def test_an_agent_that_ends_is_told_and_the_names_stay(
    agent: Agent, make_vm: MakeVm, watch: Watch, wait_for: WaitFor
) -> None:
    vm = make_vm(WAYS_2, display_name="web-1")
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the promise being kept")
    glass = watch()
    wait_for(lambda: "● web-1" in glass.text, "the VM being shown")
    agent.stop()
    wait_for(lambda: "Read from resctrl itself" in glass.text and "web-1" in glass.text, "the agent's end being told")
    agent.start()
    wait_for(lambda: "● web-1" in glass.text, "the agent's return being told")


def test_an_agent_that_hangs_keeps_nobody_from_leaving(agent: Agent, watch: Watch, wait_for: WaitFor) -> None:
    glass = watch()
    assert agent.pid is not None
    os.kill(agent.pid, signal.SIGSTOP)
    try:
        glass.type("h")
        wait_for(lambda: "Sort by:" in glass.text, "a key being heard")
        glass.type("q")
        assert glass.process.wait(120) == 0
    finally:
        os.kill(agent.pid, signal.SIGCONT)


def test_a_terminal_that_can_not_place_text_gets_one_look(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> None:
    with running(command(agent), environment(TERM="dumb")) as glass:
        assert glass.process.wait(120) == 0
        wait_for(lambda: "no VM" in glass.text, "the look")
        assert "\x1b" not in glass.said


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_vm_is_found_by_its_flavor_and_shown_in_detail(
    agent: Agent, make_vm: MakeVm, watch: Watch, wait_for: WaitFor
) -> None:
    vm = make_vm(flavor=lab_vms.Flavor("c2.wanted", WAYS_2), display_name="web-1")
    make_vm(WAYS_2, display_name="db-1")
    wait_for(lambda: settled(agent, vm.uuid), "the promise being kept")
    glass = watch("--sort", "name", lines=24, columns=80)
    wait_for(lambda: names(glass) == ["db-1", "web-1"], "both VMs")
    wait_for(lambda: socket.gethostname() in line_of(glass, 0), "the host's name")
    wait_for(lambda: line_of(glass, 1).startswith("2 VMs, 2 of 2 promises kept · L3 "), "both promises being kept")
    glass.type("/WANTED")
    # After its first letter there is but one VM, too; and a screen comes in pieces.
    wait_for(
        lambda: names(glass) == ["web-1"] and (glass.lines or [""])[-1].startswith("/WANTED_   1 of 2 VMs"),
        "the one VM of that flavor",
    )
    glass.type("\n\n")
    wait_for(lambda: vm.uuid in glass.text, "what the agent knows of it")
    wait_for(lambda: "web-1, kept" in glass.lines and "c2.wanted" in glass.text, "its state and its flavor")
    wait_for(lambda: any(line.strip().startswith("cache 0  ") for line in glass.lines), "its caches")
    glass.type("\x1b[F")
    wait_for(lambda: "CPU 0/" in glass.text, "its threads")
    glass.type("\x1b")
    wait_for(lambda: names(glass) == ["web-1"], "the list again")
    glass.type("\x1b")
    wait_for(lambda: names(glass) == ["db-1", "web-1"], "all VMs again")
    glass.type("/nothing\x1b[B\n")
    wait_for(lambda: "none of 2 VMs has this text" in glass.text, "nothing being found")
    assert all(len(line) <= 80 for line in glass.lines)
    glass.type("q")
    assert glass.process.wait(120) == 0


def test_a_list_stays_in_its_place_and_follows_the_host(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> None:
    vm = make_vm(WAYS_2, display_name="web-1")
    wait_for(lambda: settled(agent, vm.uuid), "the promise being kept")
    base = [sys.executable, "-m", "vmqos.cli.main", "--config-file", str(agent.config_file)]
    with running([*base, "vm", "list", "--state", "kept", "--watch", "0.2"], environment(), 24, 80) as glass:
        wait_for(lambda: any("web-1" in line for line in glass.lines), "the VM")
        assert glass.alternate
        wait_for(
            lambda: line_of(glass, 0).startswith(f"vmqos vm list · {socket.gethostname()} · "),
            "what is shown, and of whom",
        )
        make_vm(WAYS_2, display_name="db-1")
        make_vm({"hw:cache_ways": "20"}, display_name="huge")
        wait_for(lambda: "db-1" in glass.text, "the other VM")
        assert "huge" not in glass.text
        # Nothing is wiped, so nothing flickers: the screen was cleared once.
        assert glass.said.count("\x1b[2J") <= 2
        agent.stop()
        wait_for(lambda: "what follows is of" in glass.text, "the agent's end being told")
        assert "db-1" in glass.text
        glass.resize(12, 50)
        wait_for(lambda: fits(glass, 12, 50), "it fitting")
        glass.type("q")
        assert glass.process.wait(120) == 0
        wait_for(lambda: not glass.alternate, "the last that it wrote coming through")
        assert glass.current_mode() == glass.mode


def test_a_pipe_gets_a_list_each_time(agent: Agent, make_vm: MakeVm, wait_for: WaitFor) -> None:
    vm = make_vm(WAYS_2, display_name="web-1")
    wait_for(lambda: settled(agent, vm.uuid), "the promise being kept")
    base = [sys.executable, "-m", "vmqos.cli.main", "--config-file", str(agent.config_file)]
    arguments = ["vm", "list", "-f", "value", "-c", "VM", "--watch", "0.2"]
    with subprocess.Popen([*base, *arguments], env=environment(), text=True, stdout=subprocess.PIPE) as listing:
        assert listing.stdout is not None
        try:
            assert [listing.stdout.readline() for _ in range(3)] == ["web-1\n"] * 3
        finally:
            listing.send_signal(signal.SIGINT)
        assert listing.wait(120) == 130
