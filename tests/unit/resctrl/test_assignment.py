# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.assignment, on the texts of the kernel's own documentation."""

import pytest

from vmqos.resctrl import assignment, exceptions
from vmqos.resctrl.assignment import Gap
from vmqos.resctrl.filesystem import Filesystem

TOTAL, LOCAL = "mbm_total_bytes", "mbm_local_bytes"


@pytest.fixture
def machine(tmp_path):
    def make(mode=None, **files):
        (tmp_path / "info" / "L3_MON").mkdir(parents=True)
        (tmp_path / "info" / "last_cmd_status").write_text("ok\n")
        if mode is not None:
            (tmp_path / "info" / "L3_MON" / "mbm_assign_mode").write_text(mode)
        for name, text in files.items():
            (tmp_path / "info" / "L3_MON" / name).write_text(text)
        return Filesystem(str(tmp_path))

    return make


@pytest.mark.parametrize("mode", [None, "[default]\n", "mbm_event\n[default]\n", "[something_new]\ndefault\n", ""])
def test_where_every_group_is_counted_there_is_nothing_to_assign(machine, mode):
    assert assignment.find(machine(mode)) is None


def test_each_group_tells_its_gaps_and_takes_an_assignment(machine, tmp_path):
    fs = machine("[mbm_event]\ndefault\n")
    group = tmp_path / "mon_groups" / "a"
    group.mkdir(parents=True)
    (group / "mbm_L3_assignments").write_text("mbm_total_bytes:0=e;1=_\nmbm_local_bytes:0=_;1=e\n")
    assignments = assignment.find(fs)
    assert assignments.gaps("mon_groups/a") == [Gap(TOTAL, 1), Gap(LOCAL, 0)]
    assignments.assign("mon_groups/a", Gap(TOTAL, 1))
    assert (group / "mbm_L3_assignments").read_text().startswith("mbm_total_bytes:1=e\n")


def test_a_group_that_is_gone_is_an_error(machine):
    with pytest.raises(exceptions.Vanished):
        assignment.find(machine("[mbm_event]\ndefault\n")).gaps("mon_groups/a")


@pytest.mark.parametrize(
    ("directory", "gaps", "written"),
    [
        ("", [Gap(LOCAL, 1)], "//1+l\n"),
        ("mon_groups/m", [Gap(TOTAL, 0), Gap(LOCAL, 0)], "/m/0+t\n"),
        ("c", [Gap(TOTAL, 1)], "c//1+t\n"),
        ("c/mon_groups/m", [], None),
    ],
)
def test_the_older_kernels_have_one_file_for_all_groups(machine, tmp_path, directory, gaps, written):
    control = "c//0=tl;1=l;\nc/m/0=tl;1=tl;\n//0=tl;1=t;\n/m/0=_;1=tl;\n"
    assignments = assignment.find(machine("[mbm_cntr_assign]\ndefault\n", mbm_assign_control=control))
    assert assignments.gaps(directory) == gaps
    if gaps:
        assignments.assign(directory, gaps[0])
        assert (tmp_path / "info" / "L3_MON" / "mbm_assign_control").read_text().startswith(written)


def test_a_group_that_the_one_file_does_not_have_is_gone(machine):
    assignments = assignment.find(machine("[mbm_cntr_assign]\n", mbm_assign_control="//0=tl;1=t;\n"))
    with pytest.raises(exceptions.Vanished):
        assignments.gaps("c")


def test_the_free_counters_are_told_by_cache(machine):
    assert assignment.available(machine(available_mbm_cntrs="0=30;1=0\n")) == {0: 30, 1: 0}
