# SPDX-License-Identifier: Apache-2.0
"""VMs take turns to have hardware counters where these are fewer, and nothing is told that was not counted.

The machine has six counters for each cache: the kernel gives two to the default group and two to the next group made.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from itertools import pairwise

import pytest

from tests.functional.resctrl_client.mounted import sleepers
from tests.kernel.telemetry.conftest import BUSY, IDLE, SPIKE, TOTAL, enter, make_group
from tests.unit.clock import Clock
from vmqos.agent.act.mbm_counters import CounterTurns
from vmqos.resctrl import assignment, groups
from vmqos.resctrl.filesystem import Filesystem
from vmqos.telemetry import Missing, Snapshot, Sweeper, rates

pytestmark = pytest.mark.guest(pairs=("milan-abmc-newest",))

THIRD = "00000000-0000-4000-8000-000000000003"
ASSIGNED = "mbm_L3_assignments"


def counted(snapshot: Snapshot) -> frozenset[str]:
    """The VMs that have counters."""
    return frozenset(uuid for uuid, vm in snapshot.vms.items() if vm.totals[TOTAL].value is not None)


@pytest.fixture
def vms(fs: Filesystem) -> Mapping[str, tuple[str, ...]]:
    """The groups of three VMs, made after another program's, which leaves counters for one of them."""
    groups.create_monitoring_group(fs, "", "other")
    return {uuid: (make_group(fs, uuid),) for uuid in (BUSY, IDLE, THIRD)}


def test_each_vm_is_counted_in_its_turn_and_its_bytes_never_leap(
    fs: Filesystem, vms: Mapping[str, tuple[str, ...]], sweeper: Sweeper, spinner: subprocess.Popen[bytes]
) -> None:
    assert assignment.available(fs) == {0: 0, 1: 0}
    others = {directory: fs.read(directory, ASSIGNED) for directory in ("", "mon_groups/other")}
    assert all("_" not in text.replace("_bytes", "").replace("mbm_", "") for text in others.values())
    clock, served, told = Clock(), list[frozenset[str]](), dict[str, list[float]]()
    turns = CounterTurns(fs, 6.0, lambda: vms, clock)
    bandwidths = set[str]()
    with sleepers(2) as sleeping:
        enter(fs, vms[IDLE][0], *sleeping.tids)
        enter(fs, vms[BUSY][0], spinner.pid)
        before = sweeper.sweep()
        for _ in range(24):
            found = sweeper.sweep()
            clock.now += 2.0
            served.append(counted(found))
            for uuid, rate in rates(before, found).items():
                assert rate.total.value is not None or rate.total.missing in (Missing.UNASSIGNED, Missing.NO_PREVIOUS)
                bandwidths |= {uuid} if rate.total.value is not None else set()
            every = {**{uuid: vm.totals for uuid, vm in found.vms.items()}, "": found.host.totals}
            for uuid, totals in every.items():
                if (value := totals[TOTAL].value) is not None:
                    told.setdefault(uuid, []).append(value)
            turns.after_sweep(counted(found) != vms.keys())
            before = found
    assert all(len(uuids) == 1 for uuids in served)
    assert [served[number] for number in (0, 3, 6, 9)] == [{BUSY}, {IDLE}, {THIRD}, {BUSY}]
    assert bandwidths == set(vms)
    for values in told.values():
        assert all(0 <= one <= other < one + SPIKE for one, other in pairwise(values)), told
    assert told[BUSY][-1] > told[BUSY][0]
    assert {directory: fs.read(directory, ASSIGNED) for directory in others} == others
