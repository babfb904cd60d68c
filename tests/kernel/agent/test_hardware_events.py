# SPDX-License-Identifier: Apache-2.0
"""What the agent counts of real VMs is what the processor did for their groups: one VM works, one does not."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.functional.agent.conftest import wait_until_told
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, group
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.functional.telemetry.scraped import scrape
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tests.kernel.cachemodel import switch
from tools.lab.agent import Agent
from tools.lab.vms import RunningVm

pytestmark = pytest.mark.guest(pairs=("milan-shared-6.12",))

PATH = "/v1/telemetry/hardware-events"
SWITCH = 8_300
"""Instructions of the kernel for a switch to a task and away, which it executes under the task's RMID while no event
counts: perf counts from the end of the one to the beginning of the other. Measured here, of QEMU's threads: 7 800 to
8 000 where the guest has the test's CPUs for itself, and 8 800 where three programs want them, too. A task that only
sleeps takes 6 600. All in all it is 3 to 4 % of the VM's instructions; what is left open is under half a per cent."""
MUCH = 200_000_000
"""Instructions: more than an idle QEMU executes while the test looks."""


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """An agent that reads the counters often."""
    made = make_agent({"telemetry": {"interval": 0.5}, "http": {"port": 0}})
    made.start()
    return made


def switches(vm: RunningVm) -> int:
    """How often the VM's tasks were switched away from; those of threads that have ended are not known."""
    total = 0
    for folder in Path(f"/proc/{vm.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = folder.joinpath("status").read_text()
            total += sum(map(int, re.findall(r"ctxt_switches:\t(\d+)", text)))
    return total


def test_the_vm_that_works_is_told_with_what_was_done_for_its_group(
    agent: Agent, resctrl: KernelResctrl, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    busy, idle = make_vm(EXCLUSIVE_2), make_vm()
    wait_until_told(agent, wait_for, busy, "kept")
    wait_until_told(agent, wait_for, idle, "none")

    def newest() -> dict[str, Any]:
        """A look that began after this was asked for."""
        asked = time.time()
        wait_for(lambda: (agent.get(PATH)["taken_at"] or 0) > asked, "a look")
        found: dict[str, Any] = agent.get(PATH)["vms"]
        return found

    def instructions(found: dict[str, Any], vm: RunningVm) -> int:
        return int(found[vm.uuid]["counts"]["instructions"])

    wait_for(lambda: not any(newest()[vm.uuid]["reason"] for vm in (busy, idle)), "both being counted")
    rmid = int((resctrl.root / group(busy) / "mon_hw_id").read_text())
    with switch.on(sample=4):
        first, before, switched = newest(), switch.counts(0, rmid), switches(busy)
        busy.domain.resume()

        def worked() -> bool:
            if instructions(newest(), busy) > instructions(first, busy) + MUCH:
                return True
            # Its firmware looks for something to boot once more.
            busy.domain.reset()
            return False

        wait_for(worked, "the VM's work")
        rates = newest()[busy.uuid]["rates"]
        busy.domain.suspend()
        last, by_model, switched = newest(), switch.counts(0, rmid) - before, switches(busy) - switched
    done = instructions(last, busy) - instructions(first, busy)
    assert done < by_model.instructions
    assert done + switched * SWITCH == pytest.approx(by_model.instructions, rel=0.01)
    assert instructions(last, idle) - instructions(first, idle) < done / 10
    # An instruction takes a cycle at least. The two are read one after the other, while the VM works.
    assert 0 < rates["instructions"] <= 1.01 * rates["cycles"]
    assert last[busy.uuid]["share"] in (1.0, None)
    metric = scrape(agent.metrics).value("vmqos_vm_instructions_total", uuid=busy.uuid)
    assert metric >= instructions(last, busy) * 0.999
