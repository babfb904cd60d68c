# SPDX-License-Identifier: Apache-2.0
"""``mon_PERF_PKG_XX``: what each processor package counts for a group: energy, cycles, stalls."""

from __future__ import annotations

import re

from tests.conformance import needs
from tests.conformance.answer import refused
from tests.conformance.differences import PACKAGE_EVENTS
from vmqos.simulator.hardware.profiles import ENERGY_EVENTS, EXECUTION_EVENTS

pytestmark = [needs.PACKAGE_EVENTS, needs.kernel_with(PACKAGE_EVENTS)]

INFO = "info/PERF_PKG_MON"


def folders(rdt):
    return [f"mon_data/mon_PERF_PKG_{package:02}" for package in rdt.cache_ids(3)]


def test_info_tells_how_many_rmids_packages_count_for_and_which_events(rdt):
    assert rdt.ls(INFO) == ["mon_features", "num_rmids"]
    assert rdt.read(f"{INFO}/num_rmids") == f"{rdt.profile.packages.num_rmids}\n"
    assert rdt.read(f"{INFO}/mon_features").split() == [*ENERGY_EVENTS, *EXECUTION_EVENTS]


def test_each_group_has_a_file_for_each_event_and_package(rdt):
    rdt.group("g")
    rdt.group("g/mon_groups/m")
    for group in ("", "g/", "g/mon_groups/m/"):
        for folder in folders(rdt):
            assert rdt.ls(f"{group}{folder}") == sorted([*ENERGY_EVENTS, *EXECUTION_EVENTS])


def test_energy_has_six_decimal_places_and_all_else_is_a_whole_number(rdt):
    for folder in folders(rdt):
        for event in rdt.ls(folder):
            number = r"[0-9]+\.[0-9]{6}" if event in ENERGY_EVENTS else r"[0-9]+"
            assert re.fullmatch(rf"(?:{number}|Unavailable)\n", rdt.read(f"{folder}/{event}"))


def test_a_group_that_never_ran_has_a_number_of_an_earlier_group_or_none(rdt):
    rdt.group("g")
    for event in (*ENERGY_EVENTS, *EXECUTION_EVENTS):
        assert re.fullmatch(r"(?:[0-9]+(?:\.[0-9]{6})?|Unavailable)\n", rdt.read(f"g/{folders(rdt)[0]}/{event}"))


def test_a_file_cannot_be_written_and_a_folder_not_removed(rdt):
    assert rdt.permissions(f"{folders(rdt)[0]}/core_energy") == "100444"
    assert rdt.write(f"{folders(rdt)[0]}/core_energy", "0\n") == refused("EACCES")
    assert rdt.rmdir(folders(rdt)[0]).errno == "EPERM"


def test_there_are_no_more_groups_than_the_poorer_of_both_kinds_of_counters_has_rmids(rdt):
    in_l3 = int(rdt.read("info/L3_MON/num_rmids"))
    in_packages = int(rdt.read(f"{INFO}/num_rmids"))
    made = 1
    while rdt.mkdir(f"mon_groups/m{made}", at_once=True).errno is None:
        made += 1
    assert made == min(in_l3, in_packages)
    assert rdt.mkdir("mon_groups/more", at_once=True).errno == "ENOSPC"
