# SPDX-License-Identifier: Apache-2.0
"""The agent's metrics and counters, as clients get them: real VMs on the simulator."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
import time

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.functional.telemetry.scraped import Scrape, scrape, scrape_with
from tools.lab import mounts, vms
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from vmqos.agent.sample import minutes_file
from vmqos.agent.sample.history import EXECUTED, SERIES
from vmqos.agent.sample.minutes import MinuteHistory
from vmqos.agent.sample.piece import Stored
from vmqos.reason import Code
from vmqos.telemetry import Missing, hardware_events

EXCLUSIVE_2 = {"hw:cache_ways": "2"}
INTERVAL = 0.5
"""Seconds between two regular looks of the tests' agents."""

LABELS = {
    "cache", "cause", "culprit", "event", "flavor", "group", "le", "name", "node", "owner", "package", "policy",
    "project", "reason", "scope", "source", "state", "use", "uuid", "version", "when",
}  # fmt: skip
"""Every label there is; each has as many values as there are VMs, caches, packages or words of a fixed set."""


def has_counters(found: Scrape, uuid: str) -> bool:
    """Whether the VM was there when the counters were last read, which may be a second ago."""
    return bool(found.find("vmqos_vm_llc_occupancy_bytes", uuid=uuid))


def names(found: Scrape) -> set[str]:
    return {sample.name for sample in found.samples}


def scrape_with_counters(wait_for: WaitFor, agent: Agent, uuid: str) -> Scrape:
    """A scrape that has a VM's counters."""
    return scrape_with(wait_for, agent.metrics, lambda found: has_counters(found, uuid), "its counters")


def is_whole(found: Scrape, uuid: str) -> bool:
    """Whether the VM's counters are there, and its local and remote traffic are all of its traffic on each cache.

    The files are read one after the other, and the VM goes on meanwhile: where little was counted by then, the local
    traffic is more than all was a moment before.
    """
    whole, parts = (f"vmqos_vm_memory_traffic_{name}_total" for name in ("bytes", "by_scope_bytes"))
    return has_counters(found, uuid) and all(
        sum(one.value for one in found.find(parts, uuid=uuid, cache=cache))
        == found.value(whole, uuid=uuid, cache=cache)
        for cache in ("0", "1")
    )


def lines_of(found: Scrape, uuid: str) -> list[str]:
    return [sample.name for sample in found.samples if uuid in sample.labels.values()]


def test_a_vm_is_told_with_its_promise_and_its_counters(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_2, display_name="db-1")
    wait_for_vm(vm, "kept")
    found = scrape_with(wait_for, agent.metrics, lambda found: is_whole(found, vm.uuid), "counters that add up")
    assert found.value("vmqos_vm_state", uuid=vm.uuid, state="kept") == 1
    who = {"uuid": vm.uuid, "name": "db-1", "flavor": "test", "project": vms.PROJECT}
    group = simulator.root / f"vmqos.{vm.uuid}" / "mon_data"
    for cache in ("0", "1"):
        assert found.value("vmqos_vm_cache_ways", **who, cache=cache) == 2
        assert found.value("vmqos_vm_cache_allocated_bytes", **who, cache=cache) == 2 * 17301504 // 11
        memory = {
            scope: found.value("vmqos_vm_memory_bytes_total", **who, cache=cache, scope=scope)
            for scope in ("total", "local", "remote")
        }
        assert memory["remote"] == memory["total"] - memory["local"]
        # It may have counted on since.
        counted = int((group / f"mon_L3_0{cache}" / "mbm_total_bytes").read_text())
        assert memory["total"] <= counted
        assert found.value("vmqos_vm_llc_occupancy_bytes", **who, cache=cache) <= 17301504
    assert found.find("vmqos_vm_counter_missing", uuid=vm.uuid) == []
    assert found.value("vmqos_groups", owner="vm") == 1
    assert found.value("vmqos_cache_free_ways", cache="0") == 11 - 2 - 2
    assert (found.value("vmqos_closids"), found.value("vmqos_closids_used")) == (8, 2)
    assert (found.value("vmqos_rmids"), found.value("vmqos_rmids_used")) == (192, 2)
    assert found.value("vmqos_reconcile_duration_seconds_count") > 0
    assert found.value("vmqos_reconcile_errors_total") == 0
    assert (found.value("vmqos_resctrl_up"), found.value("vmqos_libvirt_up")) == (1, 1)


def test_what_a_vm_executes_is_counted_or_it_is_said_why_not(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    """On a machine whose kernel has hardware events, and on one that has none; tests/kernel/pmu has the numbers."""
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")
    path = "/v1/telemetry/hardware-events"
    wait_for(lambda: agent.get(path)["vms"] or agent.get(path)["unavailable"], "a look")
    found, told = agent.get(path), scrape(agent.metrics)
    if found["unavailable"]:
        assert (found["vms"], told.value("vmqos_hardware_events_up")) == ({}, 0)
        line = f"hardware events are not counted: {found['unavailable']}"
        wait_for(lambda: line in agent.log.read_text(), "the log saying so")
        assert agent.log.read_text().count(line) == 1
        return
    assert told.value("vmqos_hardware_events_up") == 1
    wait_for(lambda: agent.get(path)["vms"][vm.uuid]["rates"]["cycles"] is not None, "two looks")
    wait_for(lambda: scrape(agent.metrics).value("vmqos_vm_instructions_total", uuid=vm.uuid) > 0, "instructions")


def test_the_operator_can_have_nothing_counted(make_agent: MakeAgent) -> None:
    agent = make_agent({"telemetry": {"hardware_events": "false"}})
    agent.start()
    found = agent.get("/v1/telemetry/hardware-events")
    assert found["unavailable"] == "they are switched off: [telemetry] hardware_events is false"
    assert (found["vms"], found["age_seconds"]) == ({}, None)


def test_without_the_old_metrics_a_vm_is_told_by_its_uuid_and_its_promise_is_counted(
    make_agent: MakeAgent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = make_agent({"gateway": {"old_metrics": "false"}})
    agent.start()
    vm = make_vm(EXCLUSIVE_2, display_name="db-1")
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the promise being kept")
    found = scrape_with(wait_for, agent.metrics, lambda found: is_whole(found, vm.uuid), "counters that add up")
    (info,) = found.find("vmqos_vm_info", uuid=vm.uuid)
    group = f"vmqos.{vm.uuid}"
    assert {key: info.labels[key] for key in ("name", "policy", "group")} == {
        "name": "db-1", "policy": "exclusive", "group": group,
    }  # fmt: skip
    assert {one.name for one in found.samples if "name" in one.labels} == {"vmqos_vm_info"}
    assert found.find("vmqos_vm_state") == found.find("vmqos_vm_memory_bytes_total") == []
    for cache in ("0", "1"):
        whole = found.value("vmqos_vm_memory_traffic_bytes_total", uuid=vm.uuid, cache=cache)
        parts = found.find("vmqos_vm_memory_traffic_by_scope_bytes_total", uuid=vm.uuid, cache=cache)
        assert {one.labels["scope"] for one in parts} == {"local", "remote"}
        assert sum(one.value for one in parts) == whole
    assert abs(time.time() - found.value("vmqos_last_pass_timestamp_seconds")) < 300
    assert found.value("vmqos_vm_promise_kept", uuid=vm.uuid) == 1
    assert found.value("vmqos_vm_tasks", uuid=vm.uuid) > 0
    assert found.value("vmqos_vm_tasks_out_of_place", uuid=vm.uuid) == 0
    kept, changes = (f"vmqos_vm_promise_{name}_total" for name in ("kept_seconds", "state_changes"))
    before = found.value(kept, uuid=vm.uuid)
    last = scrape_with(
        wait_for, agent.metrics, lambda found: found.value(kept, uuid=vm.uuid) > before + 1, "it being kept on"
    )
    times = last.value(changes, uuid=vm.uuid)
    subprocess.run(["umount", "-l", str(simulator.root)], check=True)
    broken = scrape_with(
        wait_for,
        agent.metrics,
        lambda found: found.value("vmqos_vm_promise_kept", uuid=vm.uuid) == 0,
        "it being broken",
    )
    assert broken.value(changes, uuid=vm.uuid) == times + 1
    promised = "vmqos_vm_promise_seconds_total"
    later = scrape_with(
        wait_for,
        agent.metrics,
        lambda found: found.value(promised, uuid=vm.uuid) > broken.value(promised, uuid=vm.uuid) + 1,
        "it being promised on",
    )
    assert later.value(kept, uuid=vm.uuid) == broken.value(kept, uuid=vm.uuid), "the time under no promise kept"


def test_the_series_of_a_vm_disappear_with_it(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    gone, stays = make_vm(EXCLUSIVE_2), make_vm()
    wait_for_vm(gone, "kept")
    wait_for_vm(stays, "none")
    wait_for(lambda: len(lines_of(scrape(agent.metrics), gone.uuid)) > 10, "the VM's series")
    gone.domain.destroy()
    wait_for(lambda: lines_of(scrape(agent.metrics), gone.uuid) == [], "their end")
    assert lines_of(scrape(agent.metrics), stays.uuid)
    wait_for(lambda: gone.uuid not in agent.get("/v1/telemetry")["vms"], "the next look")
    wait_for(lambda: gone.uuid not in agent.get("/v1/telemetry/history")["vms"], "its past being forgotten")


def test_a_vm_that_waits_says_why_in_one_word(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm({"hw:cache_ways": "10"})
    wait_for_vm(vm, "pending")
    found = scrape_with_counters(wait_for, agent, vm.uuid)
    assert found.value("vmqos_vm_state", uuid=vm.uuid, state="pending", reason="no-ways") == 1
    assert found.find("vmqos_vm_cache_ways", uuid=vm.uuid) == []


@pytest.mark.parametrize("simulator", ["minimal"], indirect=True)
def test_a_vm_for_which_no_rmid_is_left_is_absent_with_a_reason(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    # Of eight, one is the default group's and three are kept for groups of VMs with a promise.
    made = [make_vm() for _ in range(5)]

    def unmonitored() -> list[str]:
        return [vm["uuid"] for vm in agent.get("/v1/vms")["vms"] if vm["unmonitored_reason"]]

    wait_for(lambda: len(agent.get("/v1/vms")["vms"]) == 5 and len(unmonitored()) == 1, "one being left over")

    def counted(found: Scrape) -> bool:
        uuids = {sample.labels["uuid"] for sample in found.find("vmqos_vm_llc_occupancy_bytes")}
        return len(uuids) == len(made) - 1

    found = scrape_with(wait_for, agent.metrics, counted, "the metrics telling of all of them")
    (uuid,) = unmonitored()
    missing = {(sample.labels["event"], sample.labels["reason"]) for sample in found.find("vmqos_vm_counter_missing")}
    assert missing == {
        (event, "not-monitored") for event in ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
    }  # fmt: skip
    assert {sample.labels["uuid"] for sample in found.find("vmqos_vm_counter_missing")} == {uuid}
    assert found.find("vmqos_vm_llc_occupancy_bytes", uuid=uuid) == []
    assert len({sample.labels["uuid"] for sample in found.find("vmqos_vm_llc_occupancy_bytes")}) == len(made) - 1


def test_promtool_finds_nothing_to_complain_about_and_no_label_is_unbounded(
    agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.fail("promtool is missing: apt-get install prometheus", pytrace=False)
    wait_for_vm(make_vm(EXCLUSIVE_2, display_name='a "quoted" \\ name\nwith a break'), "kept")
    wait_for_vm(make_vm({"hw:cache_ways": "10"}), "pending")
    found = scrape(agent.metrics)
    checked = subprocess.run([program, "check", "metrics"], input=found.text, capture_output=True, text=True)
    # The process metrics are the client library's, and the counters that may be missing are the hardware's.
    said = {line for line in (checked.stdout + checked.stderr).splitlines() if "process_" not in line}
    assert said <= {"vmqos_vm_counter_missing metric name should not include type 'counter'"}
    assert {label for sample in found.samples for label in sample.labels} <= LABELS
    ours = [sample for sample in found.samples if sample.name.startswith("vmqos_vm_")]
    reasons = {"", *Code, *(missing.value for missing in Missing)}
    assert {sample.labels["reason"] for sample in ours if "reason" in sample.labels} <= reasons
    assert all(re.fullmatch(r"vmqos_[a-z0-9_]+|process_[a-z_]+", sample.name) for sample in found.samples)


def test_the_same_is_told_on_loopback_over_tcp_and_to_nobody_else(
    make_agent: MakeAgent, wait_for: WaitFor, free_port: int
) -> None:
    agent = make_agent({"http": {"port": free_port}})
    agent.start()
    # Before the first sweep less is told.
    wait_for(lambda: agent.get("/v1/health")["ages"]["counters"] is not None, "a sweep")
    wait_for(lambda: names(scrape(free_port)) == names(scrape(agent.metrics)) != set(), "the same being told by both")
    listening = subprocess.run(
        ["ss", "-Hltn", f"sport = :{free_port}"], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[3] for line in listening.splitlines()] == [f"127.0.0.1:{free_port}"]
    agent.stop()
    with pytest.raises(OSError):
        scrape(free_port)


def test_a_port_that_is_taken_keeps_nobody_from_the_promise(
    make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        agent = make_agent({"http": {"port": taken.getsockname()[1]}})
        agent.start()
        vm = make_vm(EXCLUSIVE_2)
        wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the promise being kept")
        wait_for(lambda: "[http] host, port" in agent.gateway.log.read_text(), "the gateway saying what is wrong")
    assert scrape(agent.metrics).find("vmqos_resctrl_up")


def test_scrapes_at_the_same_time_share_one_sweep(agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    wait_for_vm(make_vm(), "none")
    found: list[Scrape] = []
    where = agent.metrics
    threads = [threading.Thread(target=lambda: found.append(scrape(where))) for _ in range(6)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    # No two sweeps take the same time to the last digit.
    assert len(found) == 6
    # One is there, one is due, and the regular looks go on however long it takes.
    assert len({one.value("vmqos_sweep_seconds") for one in found}) <= 2 + took / INTERVAL


def test_the_last_minutes_are_told_at_the_interval_that_was_asked_for(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")

    def rates() -> list[float]:
        past = agent.get(f"/v1/telemetry/history?seconds=600&vm={vm.uuid}")["vms"].get(vm.uuid, {})
        return [value for value in past.get("total", []) if value is not None]

    wait_for(lambda: len(rates()) > 3, "some looks")
    # So long ago that no look of this test leaves it.
    past = agent.get("/v1/telemetry/history?seconds=600")
    series = past["vms"][vm.uuid]
    # This process may do what the agent may.
    assert set(series) == {*SERIES, *(EXECUTED if hardware_events.may_count() else ())}
    assert {len(values) for values in series.values()} == {len(past["times"])}
    assert past["interval"] == INTERVAL
    assert past["times"] == sorted(past["times"])
    assert agent.get("/v1/telemetry/history?seconds=600&vm=nobody")["vms"] == {}
    some = agent.get(f"/v1/telemetry/history?seconds=600&vm={vm.uuid}&series=total&series=local")["vms"][vm.uuid]
    assert set(some) == {"total", "local"} and len(some["total"]) >= len(past["times"])
    assert len(agent.get("/v1/telemetry/history?seconds=1")["times"]) < len(past["times"])
    with pytest.raises(RuntimeError, match="400"):
        agent.get("/v1/telemetry/history?seconds=soon")


def test_a_day_of_minutes_outlives_a_restart_and_what_happened_to_its_file(
    make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm, minute = make_vm(EXCLUSIVE_2), int(time.time()) // 60 * 60
    agent = make_agent()
    file = agent.socket.parent / "minutes"
    history = MinuteHistory(1440)
    for ago in (120, 60, 0):
        history.add(minute - 3600 - ago, {vm.uuid: (1048576.0, 1e9, None, None)})

    def days() -> dict[str, dict[str, dict[str, list[float | None]]]]:
        found = agent.get(f"/v1/telemetry/history?resolution=60&seconds=86400&vm={vm.uuid}")
        assert found["resolution"] == 60
        # The agent's own minutes come behind these two, whenever one ends.
        before = [when for when in found["times"] if when < minute]
        assert before in ([], [minute - 3720, minute - 3660]) and found["times"][: len(before)] == before
        vms: dict[str, dict[str, dict[str, list[float | None]]]] = found["vms"]
        return vms if before else {}

    file.parent.mkdir(exist_ok=True)
    minutes_file.write(str(file), history.packed())
    for _ in range(2):
        agent.start()
        wait_for(lambda: vm.uuid in days(), "the minutes of the agent before")
        assert days()[vm.uuid]["llc_occupancy"]["greatest"][:2] == [1048576, 1048576]
        assert days()[vm.uuid]["local"]["mean"][:2] == [None, None]
        agent.stop()
    with file.open("r+b") as damaged:
        damaged.seek(100)
        damaged.write(b"\0\0\0\0")
    agent.start()
    wait_for(lambda: "is not used: its checksum is wrong" in agent.log.read_text(), "the agent saying so")
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the promise being kept")
    assert days() == {}


def test_hours_that_are_damaged_in_the_file_while_the_agent_runs_are_gaps_and_it_goes_on(
    make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm, minute = make_vm(EXCLUSIVE_2), int(time.time()) // 60 * 60
    agent = make_agent()
    file = agent.socket.parent / "minutes"
    history = MinuteHistory(1440)
    for ago in range(300, -1, -1):
        history.add(minute - 3600 - 60 * ago, {vm.uuid: (1048576.0, 1e9, None, None)})
    file.parent.mkdir(exist_ok=True)
    minutes_file.write(str(file), history.packed())
    agent.start()

    def held() -> list[float | None]:
        found = agent.get(f"/v1/telemetry/history?resolution=60&seconds=86400&vm={vm.uuid}")["vms"]
        values: list[float | None] = found[vm.uuid]["llc_occupancy"]["mean"] if vm.uuid in found else []
        return values[:300]

    wait_for(lambda: held() == [1048576] * 300, "the minutes of the agent before")
    first, second, *_ = history.packed().vms[vm.uuid].pieces
    assert isinstance(second.packed, Stored)
    with file.open("r+b") as damaged:
        damaged.seek(second.packed.begin)
        damaged.write(bytes(second.packed.length))
    assert held() == [None if first.minutes <= at < first.minutes + second.minutes else 1048576 for at in range(300)]
    said = f"minutes of VM {vm.uuid} are missing, for their file"
    wait_for(lambda: said in agent.log.read_text(), "the log having the damage")
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the promise being kept")


def _rate_of(agent: Agent, uuid: str) -> float | None:
    told: dict[str, dict[str, float | None]] = agent.get("/v1/telemetry")["vms"].get(uuid, {})
    return told.get("rates", {}).get("total")


def test_counters_are_told_as_they_were_last_read(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")
    wait_for(lambda: _rate_of(agent, vm.uuid) is not None, "two looks")
    found = agent.get("/v1/telemetry")
    told = found["vms"][vm.uuid]
    assert (told["policy"], told["ways"], told["missing"]) == ("exclusive", {"0": 2, "1": 2}, {})
    assert told["allocated_bytes"] == 2 * 2 * 17301504 // 11
    assert told["totals"]["llc_occupancy"] == sum(cache["llc_occupancy"] for cache in told["caches"].values())
    assert abs(found["taken_at"] - time.time()) < 300
    assert found["host"]["ways"] == {"0": 11, "1": 11}


def test_a_resctrl_that_goes_and_comes_is_told_and_holds_nothing_up(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")
    subprocess.run(["umount", "-l", str(simulator.root)], check=True)
    wait_for(lambda: simulator.pid is None, "the agent letting go of its files")
    simulator.stop()

    def is_told() -> bool:
        found = scrape(agent.metrics)
        return (
            found.value("vmqos_resctrl_up") == 0
            and found.find("vmqos_vm_llc_occupancy_bytes") == found.find("vmqos_closids") == []
            and len(found.find("vmqos_vm_counter_missing", uuid=vm.uuid)) == 3
            and bool(found.find("vmqos_vm_state", uuid=vm.uuid, state="pending", reason="no-resctrl"))
        )

    wait_for(is_told, "the agent saying so")
    with pytest.raises(RuntimeError, match="503"):
        agent.get("/v1/telemetry")
    simulator.start()
    wait_for_vm(vm, "kept")
    wait_for(lambda: bool(scrape(agent.metrics).find("vmqos_vm_llc_occupancy_bytes", uuid=vm.uuid)), "its counters")


def test_without_regular_looks_nothing_is_kept_open_and_everything_is_told(
    make_agent: MakeAgent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = make_agent({"telemetry": {"interval": 0}})
    agent.start()
    vm = make_vm(EXCLUSIVE_2)
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the promise being kept")
    wait_for(lambda: bool(scrape(agent.metrics).find("vmqos_vm_llc_occupancy_bytes", uuid=vm.uuid)), "its counters")
    assert agent.get("/v1/telemetry")["vms"][vm.uuid]["totals"]["llc_occupancy"] is not None
    assert agent.get("/v1/telemetry/history") == {"interval": 0.0, "times": [], "vms": {}}
    mounts.unmount(simulator.root)
