# SPDX-License-Identifier: Apache-2.0
"""What the agent tells of real VMs' bandwidths on a machine with fewer hardware counters than VMs."""

from __future__ import annotations

import pytest

from tests.functional.agent.conftest import wait_until_told
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.functional.telemetry.scraped import scrape
from tests.kernel.agent.kernel_resctrl import KernelResctrl

pytestmark = pytest.mark.guest(pairs=("milan-abmc-newest",))

AGE, MEMORY = "vmqos_vm_reading_age_seconds", "vmqos_vm_memory_traffic_bytes_total"


def test_a_vm_without_a_counter_has_its_last_bandwidth_with_its_age(
    make_agent: MakeAgent, resctrl: KernelResctrl, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = make_agent({"telemetry": {"interval": 0.5, "counter_turn": 5.0}, "http": {"port": 0}})
    agent.start()
    vms = [make_vm(EXCLUSIVE_2), make_vm(), make_vm()]
    for vm, state in zip(vms, ("kept", "none", "none"), strict=True):
        wait_until_told(agent, wait_for, vm, state)
    host = (resctrl.root / "mbm_L3_assignments").read_text()
    waited, had, totals = set[str](), set[str](), dict[str, float]()

    def all_had_their_turns() -> bool:
        told = agent.get("/v1/telemetry")["vms"]
        # The last sweep may be older than a VM's group.
        for vm in (vm for vm in vms if vm.uuid in told):
            found = told[vm.uuid]
            last, total = found.get("measured"), found["totals"]["mbm_total_bytes"]
            if found["rates"]["total"] is not None:
                had.add(vm.uuid)
                assert last is None
            elif last is not None:
                assert last["rates"]["total"] >= 0 and last["age_seconds"] > 0
                waited.add(vm.uuid)
            if total is not None:
                assert total >= totals.get(vm.uuid, 0)
                totals[vm.uuid] = total
        return had == waited == {vm.uuid for vm in vms}

    wait_for(all_had_their_turns, "every VM to be counted, and to wait")
    wait_for(lambda: bool(scrape(agent.metrics).find(AGE)), "a VM that waits")
    found = scrape(agent.metrics)
    for sample in found.find(AGE):
        assert sample.value > 0
    assert (resctrl.root / "mbm_L3_assignments").read_text() == host
