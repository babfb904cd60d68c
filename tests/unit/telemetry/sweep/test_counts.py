# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.sweep.counts."""

import errno
import os
import time

import pytest

from tests.unit.telemetry.tree import ONE, THREE, TWO
from vmqos.resctrl import monitoring
from vmqos.resctrl.filesystem import Filesystem
from vmqos.telemetry import Missing
from vmqos.telemetry.sweep import counts
from vmqos.telemetry.sweep.counts import read_all
from vmqos.telemetry.sweep.group_reader import GroupReader
from vmqos.telemetry.sweep.shape import Shape


@pytest.fixture
def shape(tree):
    return Shape(monitoring.read_counters(Filesystem(str(tree.root))))


@pytest.fixture
def readers(tree, shape):
    paths = (tree.vm(ONE, llc_occupancy=1, mbm_local_bytes=2), tree.vm(TWO, llc_occupancy=3))
    made = [GroupReader(path.name, str(path), "1", shape.domains) for path in paths]
    assert made[0].keep()
    yield made
    made[0].close()


def test_each_group_has_its_own_values_domain_by_domain(tree, shape, readers):
    before = time.monotonic()
    found = read_all(readers, shape.domains, {})
    assert found.values(0) == [1, 2, 0, 1, 2, 0]
    assert found.values(1) == [3, 0, 0, 3, 0, 0]
    moments = [*found.moments(0), *found.moments(1)]
    assert len(moments) == 4
    assert all(before <= found.began <= moment <= time.monotonic() for moment in moments)
    assert found.moments(0)[0] <= found.moments(1)[0] <= found.moments(0)[1] <= found.moments(1)[1]


def test_a_word_or_a_failure_stays_with_its_counter(tree, shape, readers):
    group = tree.root / "mon_groups" / f"vmqos.{TWO}"
    tree.set(group, "llc_occupancy", "Unavailable", 1)
    (group / "mon_data" / "mon_L3_00" / "mbm_total_bytes").unlink()
    found = read_all(readers, shape.domains, {})
    assert found.values(0) == [1, 2, 0, 1, 2, 0]
    assert found.values(1) == [3, 0, Missing.VANISHED, Missing.UNAVAILABLE, 0, 0]
    assert [reader.vanished for reader in readers] == [False, True]


def test_each_cache_is_read_from_its_cpu_and_then_the_thread_is_free_again(shape, readers, monkeypatch):
    went, home = [], {0, 1, 2, 3}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: home)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, mask: went.append(mask))
    read_all(readers, shape.domains, {0: 0, 1: 2})
    assert went == [{0}, {2}, home]


def test_nothing_to_read_is_nothing(shape):
    assert read_all([], shape.domains, {}).began > 0
    assert read_all([GroupReader("", "", "1", ())], (), {}).values(0) == []


@pytest.mark.parametrize(("turn", "turns"), [(1, 4), (2, 2), (3, 2)])
def test_each_turn_lets_go_first_what_is_more_urgent(shape, readers, monkeypatch, turn, turns):
    monkeypatch.setattr(counts, "TURN", turn)
    calls = []
    found = read_all(readers, shape.domains, {}, lambda: calls.append(time.monotonic()))
    assert len(calls) == turns
    starts = sorted(found.moments(group)[cache] for cache in (0, 1) for group in range(0, 2, turn))
    assert all(call <= start for call, start in zip(calls, starts, strict=True))
    assert found.moments(1)[0] <= calls[turns // 2]
    assert found.values(0) == [1, 2, 0, 1, 2, 0] and found.values(1) == [3, 0, 0, 3, 0, 0]


@pytest.mark.parametrize("turn", [1, 2, 16])
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_kept_group_that_vanishes_costs_no_other_group_a_value(tree, shape, monkeypatch, turn, gone):
    monkeypatch.setattr(counts, "TURN", turn)
    paths = [tree.vm(uuid, llc_occupancy=held) for uuid, held in ((ONE, 1), (TWO, 2), (THREE, 3))]
    made = [GroupReader(path.name, str(path), "1", shape.domains) for path in paths]
    assert all(reader.keep() for reader in made)
    fails, real = made[gone].descriptors[1][1], os.pread

    def pread(descriptor, *most):
        if descriptor == fails:
            raise OSError(errno.ENODEV, "No such device")
        return real(descriptor, *most)

    monkeypatch.setattr(os, "pread", pread)
    found = read_all(made, shape.domains, {})
    for number, reader in enumerate(made):
        held = number + 1
        lost = Missing.VANISHED if number == gone else 0
        assert found.values(number) == [held, 0, 0, held, lost, 0]
        assert reader.vanished == (number == gone)
        reader.close()
