# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.sweep.group_reader."""

import errno
import os

import pytest

from tests.unit.telemetry.tree import ONE, open_files
from vmqos.telemetry.model import Missing
from vmqos.telemetry.sweep.group_reader import GroupReader
from vmqos.telemetry.sweep.shape import Domain

DOMAINS = (
    Domain(0, "mon_data", ("mon_L3_00/llc_occupancy", "mon_L3_01/llc_occupancy")),
    Domain(1, "mon_data/mon_L3_01", ("mbm_total_bytes",)),
)


@pytest.fixture
def group(tree):
    return tree.vm(ONE, llc_occupancy=4096)


@pytest.fixture(params=[True, False], ids=["kept", "not-kept"])
def reader(request, tree, group):
    made = GroupReader("group", str(group), "1", DOMAINS)
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
    pread, opened = os.pread, os.open
    (first, *_), *_ = reader.descriptors or [[None]]

    def fail_to_pread(descriptor, *others):
        if descriptor == first:
            raise OSError(number, os.strerror(number))
        return pread(descriptor, *others)

    def fail_to_open(path, *others, **options):
        if path.endswith(DOMAINS[0].files[0]):
            raise OSError(number, os.strerror(number))
        return opened(path, *others, **options)

    monkeypatch.setattr(os, "pread", fail_to_pread)
    monkeypatch.setattr(os, "open", fail_to_open)
    assert reader.read(0) == [missing, b"4096\n"]
    assert reader.vanished == (missing is Missing.VANISHED)


def test_a_directory_that_may_not_be_searched_costs_all_of_its_counters(monkeypatch, group):
    opened = os.open

    def refuse(path, flags, **options):
        if flags & os.O_PATH or str(group) in path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, **options)

    made = GroupReader("group", str(group), "1", DOMAINS)
    monkeypatch.setattr(os, "open", refuse)
    assert made.read(0) == [Missing.UNREADABLE] * 2


def test_nothing_stays_open_where_not_all_can_be_kept(tree, group):
    made = GroupReader("group", str(group), "1", (*DOMAINS, Domain(2, "mon_data/mon_L3_02", ("llc_occupancy",))))
    assert not made.keep()
    assert (made.kept, open_files(tree.root)) == (0, [])
    assert made.read(0) == [b"4096\n", b"4096\n"]
    assert not made.vanished
    assert made.read(2) == [Missing.VANISHED]
    assert made.vanished


def test_where_there_is_no_group_nothing_is_read_even_if_one_comes_meanwhile(group):
    made = GroupReader("group", str(group), "", DOMAINS)
    assert made.vanished
    assert [made.read(domain) for domain in (0, 1)] == [[Missing.VANISHED] * 2, [Missing.VANISHED]]
