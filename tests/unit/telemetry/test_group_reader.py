# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.group_reader."""

import errno
import os

import pytest

from tests.unit.telemetry.tree import ONE, open_files
from vmqos.telemetry.group_reader import GroupReader
from vmqos.telemetry.model import Missing

FILES = (
    ("mon_data/mon_L3_00/llc_occupancy", "mon_data/mon_L3_01/llc_occupancy"),
    ("mon_data/mon_L3_01/mbm_total_bytes",),
)


@pytest.fixture
def group(tree):
    return tree.vm(ONE, llc_occupancy=4096)


@pytest.fixture(params=[True, False], ids=["kept", "not-kept"])
def reader(request, tree, group):
    made = GroupReader("group", str(group), "1", FILES)
    if request.param:
        assert made.keep()
    yield made
    made.close()
    assert open_files(tree.root) == []


def test_every_read_is_of_this_moment(tree, group, reader):
    assert reader.read(0) == [b"4096\n", b"4096\n"]
    tree.set(group, "llc_occupancy", 8192, 1)
    assert reader.read(0) == [b"4096\n", b"8192\n"]
    assert reader.read(1) == [b"0\n"]


@pytest.mark.parametrize(
    ("number", "missing"),
    [
        (errno.ENODEV, Missing.VANISHED),
        (errno.ENOENT, Missing.VANISHED),
        (errno.EACCES, Missing.UNREADABLE),
        (errno.EPERM, Missing.UNREADABLE),
        (errno.EIO, Missing.ERROR),
    ],
)
def test_a_read_that_fails_costs_one_counter_and_not_the_others(monkeypatch, reader, number, missing):
    real = {name: getattr(os, name) for name in ("pread", "read", "open")}
    broken = []

    def fail_first(name):
        def call(first, *others):
            # The first descriptor that is read, or the first file that is opened, is the broken one.
            if not broken and name != "read":
                broken.append(first)
            if first in broken:
                raise OSError(number, os.strerror(number))
            return real[name](first, *others)

        return call

    monkeypatch.setattr(os, "pread", fail_first("pread"))
    monkeypatch.setattr(os, "open", fail_first("open"))
    assert reader.read(0) == [missing, b"4096\n"]
    assert reader.vanished == (missing is Missing.VANISHED)


def test_nothing_stays_open_where_not_all_can_be_kept(tree, group):
    made = GroupReader("group", str(group), "1", (*FILES, ("mon_data/mon_L3_02/llc_occupancy",)))
    assert not made.keep()
    assert (made.kept, open_files(tree.root)) == (0, [])
    assert made.read(0) == [b"4096\n", b"4096\n"]
    assert not made.vanished
    assert made.read(2) == [Missing.VANISHED]
    assert made.vanished


def test_where_there_is_no_group_nothing_is_read_even_if_one_comes_meanwhile(group):
    made = GroupReader("group", str(group), "", FILES)
    assert made.vanished
    assert [made.read(domain) for domain in (0, 1)] == [[Missing.VANISHED] * 2, [Missing.VANISHED]]
