# SPDX-License-Identifier: Apache-2.0
"""The life of ``info/last_cmd_status``: what fills it, what clears it, what leaves it alone."""

from __future__ import annotations

import pytest

from tests.conformance import needs
from tests.conformance.answer import OK, done, refused
from tests.conformance.differences import STATUS_CLEARED_BY_MKDIR

NONSENSE = "Missing ':'\n"
MODE = "Unknown or unsupported mode\n"


@pytest.fixture
def told(rdt):
    """A mount whose last write to ``schemata`` was nonsense."""
    rdt.group("g")
    assert rdt.write("schemata", "nonsense\n") == refused("EINVAL", NONSENSE)
    return rdt


def test_it_is_read_only(told):
    assert told.permissions("info/last_cmd_status") == "100444"


def test_reading_does_not_clear_it(told):
    for _ in range(2):
        assert told.status == NONSENSE
    assert told.read("schemata")
    assert told.status == NONSENSE


def test_a_write_to_schemata_clears_it(told, cache):
    assert told.write("g/schemata", f"{cache.name}:0=3\n") == done()


def test_a_write_to_mode_clears_it(told):
    assert told.write("g/mode", "shareable\n") == done()


def test_a_write_to_tasks_clears_it(told):
    assert told.write("g/tasks", "\n") == done()


def test_each_refusal_takes_the_place_of_the_one_before(told):
    assert told.write("mode", "x\n") == refused("EINVAL", MODE)
    assert told.write("schemata", "nonsense\n") == refused("EINVAL", NONSENSE)


def test_a_write_to_cpus_clears_it_on_newer_kernels(told):
    cleared = told.has(STATUS_CLEARED_BY_MKDIR)
    assert told.write("g/cpus_list", "1\n") == done(OK if cleared else NONSENSE)
    bad = "Bad CPU list/mask\n"
    assert told.write("g/cpus_list", "x\n") == refused("EINVAL", bad if cleared else NONSENSE + bad)


def test_mkdir_clears_it_on_newer_kernels(told):
    assert told.mkdir("h") == done(OK if told.has(STATUS_CLEARED_BY_MKDIR) else NONSENSE)


@needs.MONITORING
def test_making_a_monitoring_group_clears_it_on_newer_kernels(told):
    cleared = told.has(STATUS_CLEARED_BY_MKDIR)
    assert told.mkdir("g/mon_groups/m") == done(OK if cleared else NONSENSE)


def test_a_mkdir_that_is_refused_at_once_leaves_it(told):
    assert told.mkdir("g") == refused("EEXIST", NONSENSE)
    assert told.mkdir("a\nb") == refused("EINVAL", NONSENSE)


def test_rmdir_leaves_it(told):
    assert told.rmdir("g") == done(NONSENSE)
    assert told.rmdir("info") == refused("EPERM", NONSENSE)


def test_a_write_without_the_newline_it_needs_leaves_it(told, cache):
    assert told.write("schemata", f"{cache.name}:0=3") == refused("EINVAL", NONSENSE)
    assert told.write("mode", "exclusive") == refused("EINVAL", NONSENSE)


def test_a_write_that_may_not_be_leaves_it(told):
    assert told.write("size", "1\n") == refused("EACCES", NONSENSE)


def test_an_unknown_cache_clears_it_and_says_nothing(told, cache):
    assert told.write("schemata", f"{cache.name}:99=3\n") == refused("EINVAL", OK)


@needs.MONITORING
def test_rename_clears_it(told):
    told.group("g/mon_groups/m")
    assert told.write("mode", "x\n") == refused("EINVAL", MODE)
    assert told.rename("g/mon_groups/m", "g/mon_groups/n") == done()


@needs.MONITORING
def test_the_threshold_of_limbo_leaves_it(told):
    path = "info/L3_MON/max_threshold_occupancy"
    assert told.write(path, told.read(path)) == done(NONSENSE)
    assert told.write(path, "x\n") == refused("EINVAL", NONSENSE)


def test_a_long_message_is_cut(told):
    name = "x" * 600
    answer = told.write("schemata", f"{name}:0=1\n")
    assert answer.errno == "EINVAL"
    assert answer.status == f"Unknown or unsupported resource name '{name}'\n"[:511]


def test_after_a_message_that_was_cut_others_are_heard_again(told):
    told.write("schemata", f"{'x' * 600}:0=1\n")
    assert told.write("schemata", "nonsense\n") == refused("EINVAL", NONSENSE)
