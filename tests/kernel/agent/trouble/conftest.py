# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the agent's tests in guests, with a judge for witness, and a stage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional.conftest import MakeAgent
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tests.kernel.agent.pool import VmPool
from tests.kernel.agent.registers import L3Registers
from tests.kernel.agent.trouble.hardware import KernelHardware
from tests.kernel.agent.trouble.judge import Judge
from tests.kernel.agent.trouble.stage import Stage
from tests.kernel.agent.witness import Witness


@pytest.fixture
def witness(witness: Witness) -> Witness:
    """Looks at nothing until there is a stage: other programs break promises here."""
    witness.look = None
    return witness


@pytest.fixture
def stage(
    make_agent: MakeAgent,
    pool: VmPool,
    resctrl: KernelResctrl,
    registers: L3Registers,
    virt_type: str,
    witness: Witness,
) -> Iterator[Stage]:
    """An agent, and the judge at each of its writes."""
    l3 = resctrl.root / "info/L3"
    judge = Judge(KernelHardware(resctrl.root, registers, int((l3 / "min_cbm_bits").read_text())))
    shareable = int((l3 / "shareable_bits").read_text(), 16)
    ways = (int((l3 / "cbm_mask").read_text(), 16) & ~shareable).bit_count()
    agent = make_agent({"agent": {"retry_delay_max": 1.0}})
    stage = Stage(agent, judge, pool, resctrl.root, ways, virt_type)
    witness.look, witness.after = judge.before, judge.after
    agent.start()
    yield stage
    stage.close()
    witness.look = witness.after = None
