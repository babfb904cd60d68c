# SPDX-License-Identifier: Apache-2.0
"""``cpus`` and ``cpus_list``: who may have which CPU, and what is said of a text that is none."""

from __future__ import annotations

import pytest

from tests.conformance import needs
from tests.conformance.answer import Answer
from tests.conformance.differences import STATUS_CLEARED_BY_MKDIR


@pytest.fixture
def two(rdt):
    """Two groups, ``g`` and ``h``."""
    rdt.group("g")
    rdt.group("h")
    return rdt


def reasons(rdt, answers, *expected):
    """Whether a row of refused writes was answered so: older kernels let the messages pile up."""
    told = []
    pile = ""
    for error, reason in expected:
        line = f"{reason}\n" if reason else ""
        pile = line if rdt.has(STATUS_CLEARED_BY_MKDIR) else pile + line
        told.append(Answer(error, pile or "ok\n"))
    return answers == told


def test_at_first_every_cpu_is_the_default_groups(two):
    assert two.read("cpus") == "f\n"
    assert two.read("cpus_list") == "0-3\n"
    assert two.read("g/cpus") == "0\n"
    assert two.read("g/cpus_list") == "\n"


def test_a_group_takes_cpus_from_the_default_group(two):
    assert two.write("g/cpus_list", "1-2\n").errno is None
    assert two.read("g/cpus") == "6\n"
    assert two.read("cpus") == "9\n"
    assert two.read("cpus_list") == "0,3\n"


def test_a_group_takes_cpus_from_another(two):
    assert two.write("g/cpus_list", "0-1\n").errno is None
    assert two.write("h/cpus_list", "1-2\n").errno is None
    assert (two.cpus(), two.cpus("g"), two.cpus("h")) == ("3", "0", "1-2")


def test_what_a_group_drops_is_the_default_groups_again(two):
    assert two.write("g/cpus_list", "0-2\n").errno is None
    assert two.write("g/cpus_list", "2\n").errno is None
    assert (two.cpus(), two.cpus("g")) == ("0-1,3", "2")
    assert two.write("g/cpus_list", "\n").errno is None
    assert (two.cpus(), two.cpus("g")) == ("0-3", "")


def test_the_default_group_takes_cpus_too(two):
    assert two.write("g/cpus_list", "0-3\n").errno is None
    assert two.cpus() == ""
    assert two.write("cpus_list", "1\n").errno is None
    assert (two.cpus(), two.cpus("g")) == ("1", "0,2-3")


def test_the_default_group_drops_no_cpu(two):
    answers = [two.write("cpus_list", "0-2\n"), two.write("cpus", "0\n")]
    assert reasons(two, answers, *[("EINVAL", "Can't drop CPUs from default group")] * 2)
    assert two.cpus() == "0-3"


def test_a_removed_groups_cpus_are_the_default_groups(two):
    assert two.write("g/cpus_list", "1\n").errno is None
    assert two.rmdir("g").errno is None
    assert two.cpus() == "0-3"


def test_a_mask_is_hexadecimal(two):
    for text, cpus in (("1\n", "0"), ("A\n", "1,3"), ("a", "1,3"), ("0000000f\n", "0-3")):
        assert two.write("g/cpus", text).errno is None
        assert two.cpus("g") == cpus
    assert two.write("g/cpus", "\n").errno is None
    assert two.cpus("g") == ""


def test_what_is_no_mask_is_told(two):
    answers = [two.write("g/cpus", text) for text in ("xyz\n", "0x3\n", "-1\n", "1.\n", "000000001\n")]
    wrong = "Bad CPU list/mask"
    assert reasons(two, answers, *[("EINVAL", wrong)] * 4, ("EOVERFLOW", wrong))
    assert two.cpus("g") == ""


def test_a_cpu_that_there_is_not_cannot_be_in_a_mask(two):
    answers = [two.write("g/cpus", text) for text in ("1f\n", "10\n", "1,00000000\n", "0,00000005\n")]
    assert reasons(two, answers, *[("EOVERFLOW", "Bad CPU list/mask")] * 4)
    assert two.cpus("g") == ""


def test_a_list_has_numbers_and_ranges(two):
    for text, cpus in (
        ("0\n", "0"),
        ("0,2\n", "0,2"),
        ("0-3", "0-3"),
        ("3,1-2\n", "1-3"),
        (" 1 , 2 \n", "1-2"),
        ("all\n", "0-3"),
        ("N\n", "3"),
        ("1-N\n", "1-3"),
        ("0-3:1/2\n", "0,2"),
        (",1,\n", "1"),
        ("1 2\n", "1-2"),
    ):
        assert two.write("g/cpus_list", text).errno is None
        assert two.cpus("g") == cpus


def test_what_is_no_list_is_told(two):
    answers = [two.write("g/cpus_list", text) for text in ("a\n", "1-\n", "-1\n", "2-1\n", "1;2\n", "0x1\n", "1:1/0\n")]
    assert reasons(two, answers, *[("EINVAL", "Bad CPU list/mask")] * 7)
    assert two.cpus("g") == ""


def test_a_cpu_that_there_is_not_cannot_be_in_a_list(two):
    answers = [two.write("g/cpus_list", text) for text in ("9\n", "0-9\n", "4\n")]
    assert reasons(two, answers, *[("ERANGE", "Bad CPU list/mask")] * 3)
    assert two.cpus("g") == ""


def test_a_task_of_the_default_group_stays_there_whatever_cpus_its_group_has(two):
    task = two.start("task")
    assert two.write("g/cpus_list", "0-3\n").errno is None
    assert task in two.tasks()
    assert two.tasks("g") == set()


@needs.MONITORING
def test_a_monitoring_group_takes_cpus_of_its_control_group_only(two):
    two.group("g/mon_groups/m")
    assert two.write("g/cpus_list", "1-2\n").errno is None
    assert two.write("g/mon_groups/m/cpus_list", "1\n").errno is None
    assert two.cpus("g/mon_groups/m") == "1"
    assert two.cpus("g") == "1-2"
    answers = [two.write("g/mon_groups/m/cpus_list", "0-1\n")]
    assert reasons(two, answers, ("EINVAL", "Can only add CPUs to mongroup that belong to parent"))
    assert two.cpus("g/mon_groups/m") == "1"


@needs.MONITORING
def test_a_monitoring_group_takes_cpus_from_its_sister(two):
    two.group("g/mon_groups/m")
    two.group("g/mon_groups/n")
    assert two.write("g/cpus_list", "0-3\n").errno is None
    assert two.write("g/mon_groups/m/cpus_list", "0-2\n").errno is None
    assert two.write("g/mon_groups/n/cpus_list", "2-3\n").errno is None
    assert two.cpus("g/mon_groups/m") == "0-1"
    assert two.cpus("g/mon_groups/n") == "2-3"


@needs.MONITORING
def test_a_control_group_that_is_given_cpus_takes_them_all_back_from_its_monitoring_groups(two):
    two.group("g/mon_groups/m")
    assert two.write("g/cpus_list", "1-2\n").errno is None
    assert two.write("g/mon_groups/m/cpus_list", "1\n").errno is None
    assert two.write("g/cpus_list", "1-3\n").errno is None
    assert two.cpus("g/mon_groups/m") == ""


@needs.MONITORING
def test_a_cpu_that_goes_to_another_group_leaves_the_monitoring_group_too(two):
    two.group("g/mon_groups/m")
    assert two.write("g/cpus_list", "1-2\n").errno is None
    assert two.write("g/mon_groups/m/cpus_list", "1-2\n").errno is None
    assert two.write("h/cpus_list", "1\n").errno is None
    assert two.cpus("g") == "2"
    assert two.cpus("g/mon_groups/m") == "2"


@needs.MONITORING
def test_a_removed_monitoring_groups_cpus_stay_its_control_groups(two):
    two.group("g/mon_groups/m")
    assert two.write("g/cpus_list", "1-2\n").errno is None
    assert two.write("g/mon_groups/m/cpus_list", "1\n").errno is None
    assert two.rmdir("g/mon_groups/m").errno is None
    assert two.cpus("g") == "1-2"
    assert two.cpus() == "0,3"


@needs.MONITORING
def test_a_monitoring_group_of_the_default_group_takes_the_default_groups_cpus(two):
    two.group("mon_groups/m")
    assert two.write("mon_groups/m/cpus_list", "2\n").errno is None
    assert two.cpus("mon_groups/m") == "2"
    assert two.cpus() == "0-3"
