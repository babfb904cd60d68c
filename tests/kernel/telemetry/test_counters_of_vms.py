# SPDX-License-Identifier: Apache-2.0
"""Counters follow the VM that works, through all that can happen to its group, and never leap."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.functional.resctrl_client.mounted import retry
from tests.kernel.inside import msr
from tests.kernel.limits import processor
from tests.kernel.limits.test_counters_without_value import rmids
from tests.kernel.telemetry.conftest import (
    BUSY,
    CLASS,
    IDLE,
    OCCUPANCY,
    SPIKE,
    TOTAL,
    Pair,
    enter,
    make_group,
    name_of,
    numbers,
    until_more,
)
from vmqos.resctrl import exceptions, groups, tasks
from vmqos.resctrl.filesystem import Filesystem
from vmqos.telemetry import Missing, Reading, Snapshot, Sweeper, rates

pytestmark = pytest.mark.guest(machines=("cascade-lake", "milan"))


def assert_no_leap(seen: Sequence[Snapshot]) -> None:
    """Between any two sweeps, no rate is negative or more than a machine can move."""
    for before, after in itertools.combinations(seen, 2):
        for uuid, found in rates(before, after).items():
            for reading in (found.total, found.local, found.remote):
                assert reading.value is None or 0 <= reading.value * found.seconds < SPIKE, (uuid, found)


def test_traffic_and_occupancy_grow_of_the_vm_that_works_on_its_cache_and_of_no_other(
    fs: Filesystem, pair: Pair, sweeper: Sweeper
) -> None:
    first = sweeper.sweep()
    before = until_more(sweeper, first)
    after = until_more(sweeper, before)
    assert set(after.vms) == {BUSY, IDLE}
    busy, idle = after.vms[BUSY], after.vms[IDLE]
    assert (busy.totals[OCCUPANCY].value or 0) > 0
    assert (idle.totals[OCCUPANCY].value or 0) <= (first.vms[IDLE].totals[OCCUPANCY].value or 0)
    found = rates(before, after)
    assert found[IDLE].total == found[IDLE].local == found[IDLE].remote == Reading(0.0)
    working = found[BUSY]
    assert working.total.value is not None and working.local.value is not None and working.remote.value is not None
    assert 0 < working.local.value <= working.total.value < SPIKE
    assert working.remote.value == pytest.approx(working.total.value - working.local.value)
    for cache in busy.caches:
        grown = busy.caches[cache][TOTAL].value != before.vms[BUSY].caches[cache][TOTAL].value
        assert grown == (cache == 0), f"the first CPU's cache is 0, and {cache} changed: {grown}"
    # The kernel counts what is monitored inside of a control group as the group's, too (rdtgroup_mondata_show).
    host, own = after.host.totals[TOTAL].value, busy.totals[TOTAL].value
    assert host is not None and own is not None and host >= own
    assert_no_leap([first, before, after])


def test_a_move_to_another_class_keeps_the_generation_and_a_group_made_anew_does_not(
    fs: Filesystem, pair: Pair, sweeper: Sweeper
) -> None:
    retry(lambda: groups.create(fs, CLASS), exceptions.RmidsInLimbo)
    seen = [sweeper.sweep()]
    seen.append(until_more(sweeper, seen[-1]))
    groups.move_monitoring_group(fs, name_of(BUSY), "", CLASS)
    seen.append(moved := sweeper.sweep())
    assert (moved.vms[BUSY].group, moved.vms[BUSY].policy) == (CLASS, "shared")
    assert moved.vms[BUSY].generation == seen[0].vms[BUSY].generation
    across = rates(seen[1], moved)[BUSY]
    assert across.total.value is not None and across.local.value is not None
    seen.append(until_more(sweeper, moved))

    groups.remove_monitoring_group(fs, CLASS, name_of(BUSY))
    again = make_group(fs, BUSY, CLASS)
    seen.append(anew := sweeper.sweep())
    assert anew.vms[BUSY].generation != moved.vms[BUSY].generation
    assert rates(seen[-2], anew)[BUSY].total == Reading(None, Missing.NO_PREVIOUS)
    assert anew.vms[BUSY].totals[TOTAL] == Reading(0)
    enter(fs, again, pair.worker)
    seen.append(until_more(sweeper, anew))

    # An exclusive VM has a control group, and its tasks in it, before its monitoring group goes.
    retry(lambda: groups.create(fs, name_of(BUSY)), exceptions.RmidsInLimbo)
    tasks.move(fs, name_of(BUSY), {pair.worker})
    seen.append(own := sweeper.sweep())
    assert (own.vms[BUSY].group, own.vms[BUSY].policy) == (name_of(BUSY), "exclusive")
    assert rates(seen[-2], own)[BUSY].total == Reading(None, Missing.NO_PREVIOUS)
    seen.append(until_more(sweeper, own))
    assert_no_leap(seen)


@pytest.mark.parametrize("keep_open", [True, False], ids=["kept", "opened"])
def test_a_cache_that_was_offline_between_two_sweeps_leaves_no_rate_across(
    fs: Filesystem, caches: dict[int, frozenset[int]], last_cache: int, keep_open: bool
) -> None:
    # What somebody moved before: where a group's count began, the kernel forgets with the cache.
    for rmid in range(1, rmids(fs)):
        msr.add_traffic(min(caches[last_cache]), rmid, SPIKE)
    make_group(fs, BUSY)
    with Sweeper(fs.root, keep_open) as sweeper:
        before = sweeper.sweep()
        with processor.offline(caches[last_cache]):
            pass
        back = sweeper.sweep()
        later = sweeper.sweep()
    assert set(before.vms[BUSY].caches) == set(back.vms[BUSY].caches) == set(caches)
    assert rates(before, back)[BUSY].total == Reading(None, Missing.NO_PREVIOUS)
    assert rates(back, later)[BUSY].total == Reading(0.0)
    assert None not in numbers(later.vms[BUSY]).values()
