# SPDX-License-Identifier: Apache-2.0
"""What the agent tells of real VMs' counters, on the kernel's own resctrl: one VM works, one does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.functional.agent.conftest import wait_until_told
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, group
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.functional.telemetry.scraped import Scrape, scrape
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tests.kernel.limits import processor
from tools.lab.agent import Agent
from tools.lab.vms import RunningVm

pytestmark = pytest.mark.guest(machines=("milan-kvm",), kernels=("6.12",))

MEMORY, OCCUPANCY = "vmqos_vm_memory_bytes_total", "vmqos_vm_llc_occupancy_bytes"
LOST = "vmqos_vm_counter_missing"
MUCH = 1 << 25
"""Bytes: more than an idle QEMU moves while the test looks."""
SPIKE = 1 << 37
"""Bytes a second: more than the guest can move, less than a counter that went round in a minute."""


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """An agent that reads the counters often."""
    made = make_agent({"telemetry": {"interval": 0.5}, "http": {"port": 0}})
    made.start()
    return made


def traffic(found: Scrape, vm: RunningVm) -> float:
    """A VM's bytes, all caches together."""
    return sum(sample.value for sample in found.find(MEMORY, uuid=vm.uuid, scope="total"))


def held(found: Scrape, vm: RunningVm) -> float:
    """Bytes that a VM has in the caches, all together."""
    return sum(sample.value for sample in found.find(OCCUPANCY, uuid=vm.uuid))


def told(agent: Agent, vm: RunningVm) -> dict[str, Any]:
    """What the API tells of a VM's counters."""
    found: dict[str, Any] = agent.get("/v1/telemetry")["vms"][vm.uuid]
    return found


def test_counters_tell_the_vm_that_works_from_the_idle_one_and_a_word_is_never_a_number(
    agent: Agent, resctrl: KernelResctrl, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    busy, idle = make_vm(EXCLUSIVE_2), make_vm()
    wait_until_told(agent, wait_for, busy, "kept")
    wait_until_told(agent, wait_for, idle, "none")
    wait_for(lambda: len(scrape(agent.metrics).find(OCCUPANCY, uuid=idle.uuid)) == 2, "the counters of both")
    before = scrape(agent.metrics)
    busy.domain.resume()
    _work(busy, agent, wait_for, lambda now: traffic(now, busy) > traffic(before, busy) + MUCH)
    after = scrape(agent.metrics)
    assert traffic(after, idle) - traffic(before, idle) < (traffic(after, busy) - traffic(before, busy)) / 10
    # What the idle one's start brought into the caches leaves them with time.
    _work(busy, agent, wait_for, lambda now: held(now, busy) > held(now, idle))
    wait_for(lambda: None not in told(agent, busy)["rates"].values(), "rates")

    rmid = int((resctrl.root / group(busy) / "mon_hw_id").read_text())
    with processor.unavailable(0, rmid):
        # A look that is under way finds the one counter still there and the next one gone.
        wait_for(lambda: len(told(agent, busy)["missing"]) == 3, "a look of the agent's that began after that")
        # One text serves all who scrape within a second.
        wait_for(
            lambda: len(scrape(agent.metrics).find(LOST, uuid=busy.uuid, reason="unavailable")) == 3, "metrics of that"
        )
        found, said = scrape(agent.metrics), told(agent, busy)
    assert set(said["missing"].values()) == set(said["rates_missing"].values()) == {"unavailable"}
    assert set(said["totals"].values()) == set(said["rates"].values()) == set(said["caches"]["0"].values()) == {None}
    assert None not in said["caches"]["1"].values()
    for series in (MEMORY, OCCUPANCY):
        assert {one.labels["cache"] for one in found.find(series, uuid=busy.uuid)} == {"1"}
        assert {one.labels["cache"] for one in found.find(series, uuid=idle.uuid)} == {"0", "1"}
    assert not found.find(LOST, uuid=idle.uuid)

    wait_for(lambda: None not in told(agent, busy)["rates"].values(), "rates again")
    wait_for(lambda: not scrape(agent.metrics).find(LOST, uuid=busy.uuid), "metrics of that")
    assert 0 <= traffic(scrape(agent.metrics), busy) - traffic(after, busy) < SPIKE
    past = agent.get(f"/v1/telemetry/history?seconds=600&vm={busy.uuid}")["vms"][busy.uuid]
    assert any(value is None for value in past["total"][1:])
    assert all(value is None or 0 <= value < SPIKE for name in ("total", "local", "remote") for value in past[name])


def _work(vm: RunningVm, agent: Agent, wait_for: WaitFor, enough: Callable[[Scrape], bool]) -> None:
    """Have the VM's firmware look for something to boot, over and over."""

    def worked() -> bool:
        if enough(scrape(agent.metrics)):
            return True
        vm.domain.reset()
        return False

    wait_for(worked, "the VM's work")
