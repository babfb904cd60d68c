# SPDX-License-Identifier: Apache-2.0
"""What processor packages and sub-NUMA nodes count of real VMs, on simulated machines that have either."""

from __future__ import annotations

from typing import Any

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.cli.test_top import look
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.functional.telemetry.scraped import Scrape, scrape_with
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator

EXCLUSIVE_2 = {"hw:cache_ways": "2"}
COUNTING_PACKAGES = pytest.mark.parametrize("simulator", ["clearwater-forest"], indirect=True)
SUB_NUMA_NODES = pytest.mark.parametrize("simulator", ["sapphire-rapids-snc2"], indirect=True)
CYCLES = "unhalted_core_cycles"
WITHOUT_PERF = {"telemetry": {"hardware_events": False}}
JOULES_PER_CYCLE = 1.5 / 2.6e9
"""What a cycle takes on the simulated machine (``vmqos.simulator.hardware.package_counters``)."""


def counters(agent: Agent, uuid: str) -> dict[str, Any]:
    """What is told of a VM's counters; nothing while it is not counted."""
    found: dict[str, Any] = agent.get("/v1/telemetry")["vms"].get(uuid, {})
    return found


def executed(agent: Agent, uuid: str) -> dict[str, Any]:
    """What is told of what a VM executes; nothing while that is not known."""
    found: dict[str, Any] = agent.get("/v1/telemetry/hardware-events")["vms"].get(uuid, {})
    return found


def is_kept(agent: Agent, uuid: str) -> bool:
    return any(vm["uuid"] == uuid and vm["state"] == "kept" for vm in agent.get("/v1/vms")["vms"])


@COUNTING_PACKAGES
def test_a_vms_cycles_are_those_of_the_packages_where_perf_counts_none(
    simulator: Simulator, make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = make_agent(WITHOUT_PERF)
    agent.start()
    vm = make_vm(EXCLUSIVE_2)
    wait_for(lambda: is_kept(agent, vm.uuid), "the VM being kept")
    found: dict[str, Any] = {}

    def has_cycles() -> bool:
        found.clear()
        found.update(executed(agent, vm.uuid))
        return (found.get("counts", {}).get("cycles") or 0) > 0

    wait_for(has_cycles, "cycles")
    assert (found["source"], found["reason_code"], found["share"]) == ("aet", "no-perf", None)
    assert [name for name, count in found["counts"].items() if count is not None] == ["cycles"]
    group = simulator.root / f"vmqos.{vm.uuid}" / "mon_data"
    in_kernel = [(group / f"mon_PERF_PKG_0{package}" / CYCLES).read_text().strip() for package in (0, 1)]
    # It may have counted on since.
    assert found["counts"]["cycles"] <= sum(int(text) for text in in_kernel if text != "Unavailable")
    assert agent.get("/v1/telemetry")["host"]["rmids"] == 576


@COUNTING_PACKAGES
def test_what_packages_count_is_told_by_package_and_scraped(
    make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = make_agent(WITHOUT_PERF)
    agent.start()
    vm = make_vm(EXCLUSIVE_2)
    wait_for(lambda: is_kept(agent, vm.uuid), "the VM being kept")

    def is_counted() -> bool:
        # A package counts on between two of its files: of the first cycles a part may not have been told yet.
        told = counters(agent, vm.uuid)
        totals = told.get("totals", {})
        if not totals.get("core_energy") or not totals.get(CYCLES):
            return False
        assert told["packages"].keys() == {"0", "1"} and told["packages_since"] > 0
        return bool(totals["stalls_llc_miss"] <= totals[CYCLES])

    wait_for(is_counted, "energy, and fewer cycles that wait than there are")

    def packages(found: Scrape, name: str) -> set[str]:
        return {one.labels["package"] for one in found.find(f"vmqos_vm_{name}_total", uuid=vm.uuid)}

    names = ("core_energy_joules", "llc_miss_stall_cycles", "llc_hit_stall_cycles", "uops", "core_activity_farads")

    def has_all(found: Scrape) -> bool:
        # A package tells nothing before the VM has run there, which may be between two of its files.
        counting = packages(found, "package_cycles")
        return bool(counting) and all(packages(found, name) == counting for name in names)

    found = scrape_with(wait_for, agent.metrics, has_all, "its metrics")
    assert packages(found, "package_cycles") <= {"0", "1"}
    assert found.value("vmqos_vm_cycles_total", uuid=vm.uuid, source="aet") > 0
    of_host = found.find("vmqos_group_core_energy_joules_total", group="", owner="default")
    assert {one.labels["package"] for one in of_host} <= {"0", "1"}


@COUNTING_PACKAGES
def test_what_packages_count_is_remembered_with_each_look(
    make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = make_agent(WITHOUT_PERF)
    agent.start()
    vm = make_vm(EXCLUSIVE_2)
    wait_for(lambda: is_kept(agent, vm.uuid), "the VM being kept")

    def past() -> dict[str, list[float | None]]:
        found: dict[str, Any] = agent.get(f"/v1/telemetry/history?seconds=600&vm={vm.uuid}")["vms"].get(vm.uuid, {})
        return found

    def ran() -> list[tuple[float | None, ...]]:
        # Of one answer: in the next one there may be a look more.
        found = past()
        series = [found.get(name, []) for name in ("core_watts", "uops_per_cycle", "llc_hit_stalls", "llc_miss_stalls")]
        return [shares for shares in zip(*series, strict=True) if shares[0] and shares[1] is not None]

    def is_of_one_moment(watts: float | None, uops: float | None, hits: float | None, misses: float | None) -> bool:
        assert watts is not None and uops is not None and hits is not None and misses is not None
        # Cycles that wait retire nothing, and all others two micro-operations each.
        return watts > 0 and uops == pytest.approx(2 * (1 - hits - misses), abs=0.01)

    # A package may count on between two of its files, on a busy machine for long.
    wait_for(lambda: sum(is_of_one_moment(*one) for one in ran()) >= 2, "two looks between which the VM ran")

    def energy_of_a_cycle() -> float:
        totals = counters(agent, vm.uuid).get("totals", {})
        return float(totals["core_energy"] / totals[CYCLES]) if totals.get(CYCLES) else 0.0

    # A package may count on between two of its files.
    wait_for(lambda: energy_of_a_cycle() == pytest.approx(JOULES_PER_CYCLE, rel=1e-3), "joules as the machine counts")


@COUNTING_PACKAGES
def test_top_shows_the_power_and_the_stalls_of_a_vm_with_an_agent_and_without(
    make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = make_agent(WITHOUT_PERF)
    agent.start()
    vm = make_vm(EXCLUSIVE_2)
    wait_for(lambda: is_kept(agent, vm.uuid), "the VM being kept")

    def shown(*arguments: str) -> dict[str, Any]:
        (found,) = look(agent, vm.uuid[:8], *arguments)["vms"]  # type: ignore[misc]
        return dict(found)

    def ran(*arguments: str) -> bool:
        found = shown(*arguments)
        if not found["core_watts"]:
            return False
        assert found["llc_miss_stalls"] is None or 0 <= found["llc_miss_stalls"] <= 1
        assert not {"core_watts", "llc_miss_stalls"} & found["missing"].keys()
        return found["llc_miss_stalls"] is not None

    wait_for(ran, "the VM's power")
    agent.stop()
    wait_for(lambda: ran("-d", "0.5"), "the VM's power without an agent")


@SUB_NUMA_NODES
def test_each_sub_numa_node_is_told_beside_the_caches_and_in_metrics_of_its_own(
    agent: Agent, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")
    told: dict[str, Any] = {}

    def has_traffic() -> bool:
        told.clear()
        told.update(counters(agent, vm.uuid))
        return (told.get("totals", {}).get("mbm_total_bytes") or 0) > 0

    wait_for(has_traffic, "traffic")
    assert {cache: set(nodes) for cache, nodes in told["nodes"].items()} == {"0": {"0", "1"}, "1": {"2", "3"}}
    for cache, nodes in told["nodes"].items():
        # The nodes are read after the cache, which may count on meanwhile.
        assert sum(node["mbm_total_bytes"] for node in nodes.values()) >= told["caches"][cache]["mbm_total_bytes"]
    found = scrape_with(
        wait_for,
        agent.metrics,
        lambda found: bool(found.find("vmqos_vm_node_llc_occupancy_bytes", uuid=vm.uuid)),
        "metrics",
    )
    places = {(one.labels["cache"], one.labels["node"]) for one in found.samples if "node" in one.labels}
    assert places == {("0", "0"), ("0", "1"), ("1", "2"), ("1", "3")}
    assert not any("node" in one.labels for one in found.samples if not one.name.startswith("vmqos_vm_node_"))
    assert found.value("vmqos_rmids") == 128
