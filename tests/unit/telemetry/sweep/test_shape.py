# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.telemetry.sweep.shape."""

import pytest

from vmqos.resctrl.monitoring import Counters, Missing, Reading, Source
from vmqos.telemetry.sweep.shape import Shape

UNAVAILABLE = Missing.UNAVAILABLE

OCCUPANCY, TOTAL, LOCAL = "llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"
EVENTS = (OCCUPANCY, LOCAL, TOTAL)
TWO_CACHES = (Counters(Source(0), "mon_data/mon_L3_00", EVENTS), Counters(Source(1), "mon_data/mon_L3_01", EVENTS))
NO_COUNTER = Reading(None, Missing.NO_COUNTER)


def test_the_files_are_those_of_every_cache_and_event():
    shape = Shape(TWO_CACHES)
    assert [domain.cache for domain in shape.domains] == [0, 1]
    assert [domain.path for domain in shape.domains] == ["mon_data/mon_L3_00", "mon_data/mon_L3_01"]
    assert [domain.files for domain in shape.domains] == [EVENTS, EVENTS]
    assert shape.count == 6
    assert shape.events == EVENTS


def test_values_are_told_apart_and_summed():
    shape = Shape(TWO_CACHES)
    values = [1, 2, 3, 10, 20, 30]
    caches, totals, nodes, packages = shape.decode(values)
    assert caches == {
        0: {OCCUPANCY: Reading(1), LOCAL: Reading(2), TOTAL: Reading(3)},
        1: {OCCUPANCY: Reading(10), LOCAL: Reading(20), TOTAL: Reading(30)},
    }
    assert totals == {OCCUPANCY: Reading(11), LOCAL: Reading(22), TOTAL: Reading(33)}
    assert nodes == packages == {}


def test_a_sum_is_a_number_only_if_each_part_is_and_the_parts_stay_visible():
    shape = Shape(TWO_CACHES)
    values = [1, 2, 3, Missing.UNAVAILABLE, 20, Missing.ERROR]
    caches, totals, _, _ = shape.decode(values)
    assert totals == {
        OCCUPANCY: Reading(None, Missing.UNAVAILABLE),
        LOCAL: Reading(22),
        TOTAL: Reading(None, Missing.ERROR),
    }
    assert caches[0][OCCUPANCY] == Reading(1)
    assert caches[1][OCCUPANCY] == Reading(None, Missing.UNAVAILABLE)


def test_an_event_that_the_machine_does_not_count_is_there_with_that_reason():
    shape = Shape([Counters(Source(0), "mon_data/mon_L3_00", (TOTAL,))])
    caches, totals, _, _ = shape.decode([5])
    assert caches == {0: {OCCUPANCY: NO_COUNTER, TOTAL: Reading(5), LOCAL: NO_COUNTER}}
    assert totals == {OCCUPANCY: NO_COUNTER, TOTAL: Reading(5), LOCAL: NO_COUNTER}


def test_a_machine_that_counts_nothing_says_so_for_each_event():
    caches, totals, _, _ = Shape(()).decode([])
    assert totals == {OCCUPANCY: NO_COUNTER, TOTAL: NO_COUNTER, LOCAL: NO_COUNTER}
    assert caches == {}


@pytest.fixture
def nodes():
    return [
        Counters(Source(0), "mon_data/mon_L3_00", (OCCUPANCY,)),
        Counters(Source(0, node=0), "mon_data/mon_L3_00/mon_sub_L3_00", (OCCUPANCY,)),
        Counters(Source(0, node=1), "mon_data/mon_L3_00/mon_sub_L3_01", (OCCUPANCY,)),
    ]


def test_sub_numa_nodes_are_read_when_asked_for_and_never_summed_twice(nodes):
    shape = Shape(nodes, with_nodes=True)
    _, totals, told, _ = shape.decode([30, 10, 20])
    assert totals[OCCUPANCY] == Reading(30)
    assert {node: found[OCCUPANCY] for node, found in told[0].items()} == {0: Reading(10), 1: Reading(20)}
    (domain,) = shape.domains
    assert (domain.cache, domain.path) == (0, "mon_data/mon_L3_00")
    assert domain.files == (OCCUPANCY, f"mon_sub_L3_00/{OCCUPANCY}", f"mon_sub_L3_01/{OCCUPANCY}")


def test_sub_numa_nodes_are_left_alone_otherwise(nodes):
    shape = Shape(nodes)
    assert [domain.files for domain in shape.domains] == [(OCCUPANCY,)]
    assert shape.decode([30])[2] == {}


def test_energy_is_a_number_with_a_fraction_and_summed_over_the_packages():
    energy = ("activity", "core_energy")
    packages = [Counters(Source(package=number), f"mon_data/mon_PERF_PKG_0{number}", energy) for number in (0, 1)]
    shape = Shape(packages)
    assert [domain.cache for domain in shape.domains] == [None, None]
    _, totals, _, told = shape.decode([0.25, 1.5, 0.5, 2])
    assert told[1] == {"activity": Reading(0.5), "core_energy": Reading(2)}
    assert totals["core_energy"] == Reading(3.5)
    assert shape.of_packages == [0, 1, 2, 3]


@pytest.fixture
def two_packages():
    """One cache, and two packages with one event."""
    packages = [Counters(Source(package=number), f"mon_data/mon_PERF_PKG_0{number}", ("c6_res",)) for number in (0, 1)]
    return Shape([Counters(Source(0), "mon_data/mon_L3_00", (OCCUPANCY,)), *packages])


@pytest.mark.parametrize(
    ("counted", "sum_of_them"),
    [
        ((5, 7), Reading(12)),
        ((5, UNAVAILABLE), Reading(5)),
        ((UNAVAILABLE, UNAVAILABLE), Reading.none(UNAVAILABLE)),
        ((5, Missing.ERROR), Reading.none(Missing.ERROR)),
    ],
)
def test_a_package_that_a_vm_did_not_run_on_is_left_out_of_the_sum_and_stays_visible(
    two_packages, counted, sum_of_them
):
    _, totals, _, told = two_packages.decode([UNAVAILABLE, *counted])
    assert totals["c6_res"] == sum_of_them
    assert totals[OCCUPANCY] == Reading.none(UNAVAILABLE)
    assert [told[package]["c6_res"] for package in (0, 1)] == [Reading.of(one) for one in counted]


def test_two_groups_of_which_a_package_has_heard_of_one_alone_are_that_one(two_packages):
    assert two_packages.add([1, 5, UNAVAILABLE], [UNAVAILABLE, UNAVAILABLE, 7]) == [UNAVAILABLE, 5, 7]
    assert two_packages.add([1, 5, Missing.ERROR], [2, 6, 7]) == [3, 11, Missing.ERROR]
