# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.assignment, on the texts of the kernel's own documentation."""

import pytest

from vmqos.resctrl import assignment, exceptions
from vmqos.resctrl.assignment import Slot
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


def test_each_group_tells_its_slots_and_takes_an_assignment(machine, tmp_path):
    fs = machine("[mbm_event]\ndefault\n")
    group = tmp_path / "mon_groups" / "a"
    group.mkdir(parents=True)
    (group / "mbm_L3_assignments").write_text("mbm_total_bytes:0=e;1=_\nmbm_local_bytes:0=_;1=e\n")
    assignments = assignment.find(fs)
    slots = {Slot(TOTAL, 0): True, Slot(TOTAL, 1): False, Slot(LOCAL, 0): False, Slot(LOCAL, 1): True}
    assert assignments.slots("mon_groups/a") == slots
    assignments.assign("mon_groups/a", Slot(TOTAL, 1))
    assert (group / "mbm_L3_assignments").read_text().startswith("mbm_total_bytes:1=e\n")
    assignments.take("mon_groups/a", Slot(LOCAL, 1))
    assert (group / "mbm_L3_assignments").read_text().startswith("mbm_local_bytes:1=_\n")


def test_a_group_that_is_gone_is_an_error(machine):
    with pytest.raises(exceptions.Vanished):
        assignment.find(machine("[mbm_event]\ndefault\n")).slots("mon_groups/a")


@pytest.mark.parametrize(
    ("directory", "gaps", "written"),
    [
        ("", [Slot(LOCAL, 1)], "//1+l\n"),
        ("mon_groups/m", [Slot(TOTAL, 0), Slot(LOCAL, 0)], "/m/0+t\n"),
        ("c", [Slot(TOTAL, 1)], "c//1+t\n"),
        ("c/mon_groups/m", [], None),
    ],
)
def test_the_older_kernels_have_one_file_for_all_groups(machine, tmp_path, directory, gaps, written):
    control = "c//0=tl;1=l;\nc/m/0=tl;1=tl;\n//0=tl;1=t;\n/m/0=_;1=tl;\n"
    assignments = assignment.find(machine("[mbm_cntr_assign]\ndefault\n", mbm_assign_control=control))
    assert [slot for slot, is_counted in assignments.slots(directory).items() if not is_counted] == gaps
    if gaps:
        assignments.assign(directory, gaps[0])
        assert (tmp_path / "info" / "L3_MON" / "mbm_assign_control").read_text().startswith(written)


def test_the_older_kernels_one_file_takes_a_counter_back(machine, tmp_path):
    assignments = assignment.find(machine("[mbm_cntr_assign]\ndefault\n", mbm_assign_control="c/m/0=tl;1=tl;\n"))
    assignments.take("c/mon_groups/m", Slot(LOCAL, 1))
    assert (tmp_path / "info" / "L3_MON" / "mbm_assign_control").read_text().startswith("c/m/1-l\n")


def test_a_group_that_the_one_file_does_not_have_is_gone(machine):
    assignments = assignment.find(machine("[mbm_cntr_assign]\n", mbm_assign_control="//0=tl;1=t;\n"))
    with pytest.raises(exceptions.Vanished):
        assignments.slots("c")


def test_the_one_file_is_read_once_for_all_groups(machine, monkeypatch):
    fs = machine("[mbm_cntr_assign]\n", mbm_assign_control="//0=t;\n/m/0=l;\nc//0=_;\n")
    assignments, read, reads = assignment.find(fs), fs.read, []
    monkeypatch.setattr(Filesystem, "read", lambda self, *path: reads.append(path) or read(*path))
    assert assignments.slots_of_all(["", "mon_groups/m", "gone"]) == {
        "": {Slot(TOTAL, 0): True, Slot(LOCAL, 0): False},
        "mon_groups/m": {Slot(TOTAL, 0): False, Slot(LOCAL, 0): True},
    }
    assert len(reads) == 1


def test_the_free_counters_are_told_by_cache(machine):
    assert assignment.available(machine(available_mbm_cntrs="0=30;1=0\n")) == {0: 30, 1: 0}
