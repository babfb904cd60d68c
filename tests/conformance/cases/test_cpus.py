# SPDX-License-Identifier: Apache-2.0
"""``cpus`` and ``cpus_list``: who may have which CPU, and what is said of a text that is none."""

from __future__ import annotations

import pytest

from tests.conformance import needs
from tests.conformance.answer import refused
from tests.conformance.differences import STATUS_CLEARED_BY_MKDIR

M, N, OF_DEFAULT = "g/mon_groups/m", "g/mon_groups/n", "mon_groups/d"


def give(rdt, written):
    """Give groups their CPUs, one after the other."""
    for group, cpus in written:
        assert rdt.write(f"{group}/cpus_list" if group else "cpus_list", f"{cpus}\n").errno is None


def told(rdt, *expected):
    """The answers to a row of refused writes: older kernels let the messages pile up."""
    answers = []
    pile = ""
    for error, reason in expected:
        line = f"{reason}\n"
        pile = line if rdt.has(STATUS_CLEARED_BY_MKDIR) else pile + line
        answers.append(refused(error, pile))
    return answers


def test_at_first_every_cpu_is_the_default_groups(two):
    assert two.read("cpus") == "f\n"
    assert two.read("cpus_list") == "0-3\n"
    assert two.read("g/cpus") == "0\n"
    assert two.read("g/cpus_list") == "\n"


def test_both_files_show_what_a_group_has(two):
    assert two.write("g/cpus_list", "1-2\n").errno is None
    assert two.read("g/cpus") == "6\n"
    assert two.read("g/cpus_list") == "1-2\n"
    assert two.read("cpus") == "9\n"
    assert two.read("cpus_list") == "0,3\n"


@pytest.mark.parametrize(
    "written, after",
    [
        pytest.param([("g", "0-1"), ("h", "1-2")], {"": "3", "g": "0", "h": "1-2"}, id="from another group"),
        pytest.param([("g", "0-2"), ("g", "2")], {"": "0-1,3", "g": "2"}, id="back to the default group"),
        pytest.param([("g", "0-2"), ("g", "")], {"": "0-3", "g": ""}, id="all back to the default group"),
        pytest.param([("g", "0-3"), ("", "1")], {"": "1", "g": "0,2-3"}, id="from a group to the default group"),
        pytest.param([("g", "0-3")], {"": "", "g": "0-3"}, id="all from the default group"),
    ],
)
def test_a_cpu_is_in_the_group_that_it_was_written_to_last(two, written, after):
    give(two, written)
    assert {group: two.cpus(group) for group in after} == after


def test_the_default_group_drops_no_cpu(two):
    answers = [two.write("cpus_list", "0-2\n"), two.write("cpus", "0\n")]
    assert answers == told(two, *[("EINVAL", "Can't drop CPUs from default group")] * 2)
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
    assert answers == told(two, *[("EINVAL", wrong)] * 4, ("EOVERFLOW", wrong))
    assert two.cpus("g") == ""


def test_a_cpu_that_there_is_not_cannot_be_in_a_mask(two):
    answers = [two.write("g/cpus", text) for text in ("1f\n", "10\n", "1,00000000\n", "0,00000005\n")]
    assert answers == told(two, *[("EOVERFLOW", "Bad CPU list/mask")] * 4)
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
    assert answers == told(two, *[("EINVAL", "Bad CPU list/mask")] * 7)
    assert two.cpus("g") == ""


def test_a_cpu_that_there_is_not_cannot_be_in_a_list(two):
    answers = [two.write("g/cpus_list", text) for text in ("9\n", "0-9\n", "4\n")]
    assert answers == told(two, *[("ERANGE", "Bad CPU list/mask")] * 3)
    assert two.cpus("g") == ""


def test_a_task_of_the_default_group_stays_there_whatever_cpus_its_group_has(two, tasks):
    task = tasks.start("task")
    assert two.write("g/cpus_list", "0-3\n").errno is None
    assert task in two.tasks()
    assert two.tasks("g") == set()


@needs.MONITORING
def test_a_monitoring_group_takes_cpus_of_its_control_group_only(two):
    two.group(M)
    give(two, [("g", "1-2"), (M, "1")])
    answers = [two.write(f"{M}/cpus_list", "0-1\n")]
    assert answers == told(two, ("EINVAL", "Can only add CPUs to mongroup that belong to parent"))
    assert {group: two.cpus(group) for group in ("g", M)} == {"g": "1-2", M: "1"}


@needs.MONITORING
@pytest.mark.parametrize(
    "written, after",
    [
        pytest.param([("g", "1-2"), (M, "1")], {M: "1", "g": "1-2"}, id="are its control group's too"),
        pytest.param([("g", "0-3"), (M, "0-2"), (N, "2-3")], {M: "0-1", N: "2-3"}, id="are no sister's"),
        pytest.param(
            [("g", "1-2"), (M, "1"), ("g", "1-3")], {M: ""}, id="are lost when its control group is given more"
        ),
        pytest.param([("g", "1-2"), (M, "1-2"), ("h", "1")], {M: "2", "g": "2"}, id="are lost to another group"),
        pytest.param([(OF_DEFAULT, "2")], {OF_DEFAULT: "2", "": "0-3"}, id="are the default group's too"),
    ],
)
def test_the_cpus_of_a_monitoring_group(two, written, after):
    for group in (M, N, OF_DEFAULT):
        two.group(group)
    give(two, written)
    assert {group: two.cpus(group) for group in after} == after


@needs.MONITORING
def test_a_removed_monitoring_groups_cpus_stay_its_control_groups(two):
    two.group(M)
    give(two, [("g", "1-2"), (M, "1")])
    assert two.rmdir(M).errno is None
    assert two.cpus("g") == "1-2"
    assert two.cpus() == "0,3"
