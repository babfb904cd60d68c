# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.groups; what needs resctrl is in tests/functional/resctrl_client."""

import errno

import pytest

from vmqos.resctrl import exceptions, groups
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem

WAYS = {0: CapacityBitmask(3)}


class Refusing(Filesystem):
    """A resctrl that answers every command with the same error."""

    def __init__(self, errno_name, status):
        super().__init__("/refusing")
        self.error, self.status = OSError(getattr(errno, errno_name), ""), status

    def write(self, relative, text):
        raise self._refused(self.error, "write", self.path(relative), text, self.status)

    def mkdir(self, relative):
        raise self._refused(self.error, "mkdir", self.path(relative), "", self.status)

    def rmdir(self, relative):
        raise self._refused(self.error, "rmdir", self.path(relative), "", self.status)

    def rename(self, old, new):
        raise self._refused(self.error, "rename", self.path(old), self.path(new), self.status)


CREATE, CREATE_MONITORING, WRITE, MODE, MOVE, REMOVE = (
    lambda fs: groups.create(fs, "g"),
    lambda fs: groups.create_monitoring_group(fs, "", "m"),
    lambda fs: groups.write_values(fs, "g", "L3", WAYS),
    lambda fs: groups.set_mode(fs, "g", "exclusive"),
    lambda fs: groups.move_monitoring_group(fs, "m", "", "g"),
    lambda fs: groups.remove(fs, "g"),
)


@pytest.mark.parametrize(
    ("command", "errno_name", "status", "kind"),
    [
        (CREATE, "ENOSPC", "Out of CLOSIDs", exceptions.NoClosidLeft),
        (CREATE, "ENOSPC", "out of CLOSIDs", exceptions.NoClosidLeft),
        (CREATE, "ENOSPC", "Out of RMIDs", exceptions.NoRmidLeft),
        (CREATE, "EBUSY", "Out of RMIDs", exceptions.RmidsInLimbo),
        (CREATE, "EEXIST", "", exceptions.GroupExists),
        (CREATE, "EINVAL", "", exceptions.CommandFailed),
        (CREATE_MONITORING, "ENOSPC", "Out of RMIDs", exceptions.NoRmidLeft),
        (CREATE_MONITORING, "EBUSY", "Out of RMIDs", exceptions.RmidsInLimbo),
        (CREATE_MONITORING, "EEXIST", "", exceptions.GroupExists),
        (CREATE_MONITORING, "EINVAL", "Pseudo-locking in progress", exceptions.CommandFailed),
        (WRITE, "EINVAL", "Overlaps with exclusive group", exceptions.MasksOverlap),
        (WRITE, "EINVAL", "Overlaps with other group", exceptions.MasksOverlap),
        (WRITE, "EINVAL", "CBM overlaps with pseudo-locked region", exceptions.MasksOverlap),
        (WRITE, "EINVAL", "The mask 5 has non-consecutive 1-bits", exceptions.CommandFailed),
        (WRITE, "EINVAL", "Resource group is pseudo-locked", exceptions.CommandFailed),
        (WRITE, "EINVAL", "", exceptions.CacheOffline),
        (WRITE, "EACCES", "", exceptions.CommandFailed),
        (MODE, "EINVAL", "Schemata overlaps", exceptions.MasksOverlap),
        (MODE, "EINVAL", "Unknown or unsupported mode", exceptions.CommandFailed),
        (MOVE, "EEXIST", "", exceptions.GroupExists),
        (MOVE, "EPERM", "Cannot move a MON group that monitors CPUs", exceptions.CommandFailed),
        (REMOVE, "EBUSY", "", exceptions.CommandFailed),
    ],
)
def test_each_refusal_is_told_as_what_it_is(command, errno_name, status, kind):
    with pytest.raises(exceptions.CommandFailed) as caught:
        command(Refusing(errno_name, status))
    assert type(caught.value) is kind
    assert (caught.value.errno_name, caught.value.last_cmd_status) == (errno_name, status)
    assert caught.value.path.startswith("/refusing/")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "info", "mon_groups", "mon_data", "a/b", "/", "../x", "x\n", "line\nbreak", "nul\0"]
)
@pytest.mark.parametrize(
    "command",
    [
        groups.create,
        groups.remove,
        lambda fs, name: groups.create_monitoring_group(fs, "g", name),
        lambda fs, name: groups.remove_monitoring_group(fs, "g", name),
        lambda fs, name: groups.move_monitoring_group(fs, name, "", "g"),
    ],
    ids=["create", "remove", "create_monitoring", "remove_monitoring", "move_monitoring"],
)
def test_a_name_that_no_group_can_have_never_reaches_the_kernel(command, name):
    with pytest.raises(exceptions.InvalidGroupName) as caught:
        command(Refusing("EIO", "reached the kernel"), name)
    assert repr(name) in str(caught.value)


def test_no_mask_is_no_command():
    with pytest.raises(ValueError, match="nothing to write for L3"):
        groups.write_values(Refusing("EIO", "reached the kernel"), "g", "L3", {})


@pytest.mark.parametrize(
    ("control", "directory"), [("", "mon_groups/m"), ("vmqos.shared-ways2", "vmqos.shared-ways2/mon_groups/m")]
)
def test_a_monitoring_group_lies_below_its_control_group(control, directory):
    assert groups.monitoring_directory(control, "m") == directory


def make(root, name, mode="shareable", schemata="L3:0=7ff;1=7ff"):
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / "mode").write_text(f"{mode}\n")
    (root / name / "schemata").write_text(f"{schemata}\n")


def test_every_control_group_is_listed_with_its_mode_and_schemata(tmp_path):
    make(tmp_path, "")
    make(tmp_path, "vmqos.b", "exclusive", "L3:0=003;1=003")
    make(tmp_path, "a name with blanks", "pseudo-locked", "L3:0=00c")
    make(tmp_path, "soon", "pseudo-locksetup", "L3:uninitialized")
    for name in groups.NO_GROUPS:
        (tmp_path / name).mkdir()
    found = groups.list_control_groups(Filesystem(str(tmp_path)))
    assert [(group.name, group.mode) for group in found] == [
        ("", "shareable"),
        ("a name with blanks", "pseudo-locked"),
        ("soon", "pseudo-locksetup"),
        ("vmqos.b", "exclusive"),
    ]
    assert found[3].schemata == {"L3": {0: "003", 1: "003"}}
    assert found[3].masks("L3") == {0: CapacityBitmask(3), 1: CapacityBitmask(3)}
    assert found[2].masks("L3") == {}
    assert found[0].masks("L2") == {}


def test_a_group_that_is_removed_while_it_is_read_is_left_out(tmp_path):
    make(tmp_path, "")
    make(tmp_path, "kept")
    (tmp_path / "removed").mkdir()
    assert [group.name for group in groups.list_control_groups(Filesystem(str(tmp_path)))] == ["", "kept"]


def test_a_pseudo_locked_group_whose_cache_is_offline_is_listed_without_masks(tmp_path):
    make(tmp_path, "")
    make(tmp_path, "region", "pseudo-locked")
    # The kernel's ENODEV is told as a file that is not there is.
    (tmp_path / "region" / "schemata").unlink()
    found = groups.list_control_groups(Filesystem(str(tmp_path)))
    assert [(group.name, group.mode, group.schemata) for group in found][1:] == [("region", "pseudo-locked", {})]


def test_monitoring_groups_are_listed_by_name(tmp_path):
    for name in ("mon_groups/b", "mon_groups/a", "vmqos.x/mon_groups"):
        (tmp_path / name).mkdir(parents=True)
    fs = Filesystem(str(tmp_path))
    assert groups.list_monitoring_groups(fs, "") == ["a", "b"]
    assert groups.list_monitoring_groups(fs, "vmqos.x") == []
    with pytest.raises(exceptions.Vanished):
        groups.list_monitoring_groups(fs, "gone")


def test_a_machine_that_can_not_monitor_has_no_monitoring_groups(tmp_path):
    assert groups.list_monitoring_groups(Filesystem(str(tmp_path)), "") == []
