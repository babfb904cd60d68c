# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.monitoring, on texts that real kernels wrote."""

import pytest

from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem
from vmqos.resctrl.monitoring import Counters, Missing, Reading, Source, parse, parse_all, read_counters

EVENTS = ("llc_occupancy", "mbm_local_bytes", "mbm_total_bytes")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"16777216\n", 16777216),
        (b"0\n", 0),
        (b"18446744073709551615\n", 2**64 - 1),
        (b"Unavailable\n", Missing.UNAVAILABLE),
        (b"Error\n", Missing.ERROR),
        (b"Unassigned\n", Missing.UNASSIGNED),
        (b"0.02203\n", 0.02203),
        (b"", Missing.ERROR),
        (b"\n", Missing.ERROR),
        (b"-1\n", Missing.ERROR),
        (b"nan\n", Missing.ERROR),
        (b"inf\n", Missing.ERROR),
        (b"something new\n", Missing.ERROR),
    ],
)
def test_a_counter_is_a_number_or_a_reason_and_never_zero_for_want_of_one(text, value):
    assert parse(text) == value
    assert type(parse(text)) is type(value)


def test_one_text_among_numbers_leaves_the_numbers_as_they_are():
    assert parse_all([b"1\n", b"Unavailable\n", b"0.5\n"]) == [1, Missing.UNAVAILABLE, 0.5]
    assert parse_all([b"1\n", b"2\n"]) == [1, 2]


@pytest.mark.parametrize("text", [b"-1", b"9" * 5000])
def test_a_counter_among_many_is_what_it_is_alone(text):
    assert parse(text) is Missing.ERROR
    assert parse_all([b"1\n", text]) == [1, Missing.ERROR]


def test_a_reading_has_a_number_or_a_reason():
    assert Reading.of(5) == Reading(5, None)
    assert Reading.of(0) == Reading(0, None)
    assert Reading.of(Missing.ERROR) == Reading(None, Missing.ERROR) == Reading.none(Missing.ERROR)


@pytest.fixture
def machine(tmp_path):
    def make(*directories, **events):
        for directory in directories:
            (tmp_path / "mon_data" / directory).mkdir(parents=True)
            for event in events.get(directory.rpartition("/")[2], EVENTS):
                (tmp_path / "mon_data" / directory / event).write_text("0\n")
        return Filesystem(str(tmp_path))

    return make


def test_each_cache_is_a_directory_with_its_events(machine):
    assert read_counters(machine("mon_L3_01", "mon_L3_00")) == (
        Counters(Source(cache=0), "mon_data/mon_L3_00", EVENTS),
        Counters(Source(cache=1), "mon_data/mon_L3_01", EVENTS),
    )


def test_cache_ids_are_numbers_of_any_length(machine):
    found = read_counters(machine("mon_L3_112", "mon_L3_08"))
    assert [counters.source.cache for counters in found] == [8, 112]


def test_sub_numa_nodes_are_told_from_the_sum_over_their_cache(machine):
    nodes = ("mon_L3_00", "mon_L3_00/mon_sub_L3_00", "mon_L3_00/mon_sub_L3_01", "mon_L3_01", "mon_L3_01/mon_sub_L3_02")
    assert read_counters(machine(*nodes)) == (
        Counters(Source(cache=0), "mon_data/mon_L3_00", EVENTS),
        Counters(Source(cache=0, node=0), "mon_data/mon_L3_00/mon_sub_L3_00", EVENTS),
        Counters(Source(cache=0, node=1), "mon_data/mon_L3_00/mon_sub_L3_01", EVENTS),
        Counters(Source(cache=1), "mon_data/mon_L3_01", EVENTS),
        Counters(Source(cache=1, node=2), "mon_data/mon_L3_01/mon_sub_L3_02", EVENTS),
    )


def test_packages_come_after_the_caches_and_what_is_unknown_is_passed_over(machine):
    energy = ("activity", "core_energy")
    found = read_counters(machine("mon_PERF_PKG_01", "mon_L3_00", "mon_L2_00", mon_PERF_PKG_01=energy))
    assert found == (
        Counters(Source(cache=0), "mon_data/mon_L3_00", EVENTS),
        Counters(Source(package=1), "mon_data/mon_PERF_PKG_01", energy),
    )


def test_a_machine_that_counts_nothing_says_so(tmp_path):
    with pytest.raises(exceptions.Vanished):
        read_counters(Filesystem(str(tmp_path)))
