# SPDX-License-Identifier: Apache-2.0
"""Making and removing control groups, and what their folders are."""

from __future__ import annotations

import contextlib
import os
import stat

import pytest

from tests.conformance import needs
from tests.conformance.answer import done, refused
from tests.conformance.differences import MKDIR_OUTSIDE_GROUPS, STATUS_CLEARED_BY_MKDIR
from tests.conformance.layout import HIGH, LOW, every_way, give
from tests.conformance.machines import classes_of
from tests.conformance.registers import mask


def in_group(rdt):
    monitored = ["mon_data", "mon_groups"] if rdt.profile.monitoring else []
    return sorted(["cpus", "cpus_list", "mode", "schemata", "size", "tasks", *monitored])


def test_a_group_is_a_folder_with_these_files(rdt):
    assert rdt.mkdir("g") == done()
    assert rdt.ls("g") == in_group(rdt)
    assert rdt.permissions("g") == "40755"
    permissions = {name: rdt.permissions(f"g/{name}") for name in in_group(rdt) if not name.startswith("mon_")}
    assert permissions == dict.fromkeys(permissions, "100644") | {"size": "100444"}


def test_a_new_group_is_shareable_and_empty(rdt):
    rdt.group("g")
    assert rdt.read("g/mode") == "shareable\n"
    assert rdt.read("g/tasks") == ""
    assert rdt.cpus("g") == ""


@needs.MONITORING
def test_a_groups_monitoring_folders_have_its_permissions(rdt):
    assert rdt.mkdir("g", 0o700) == done()
    assert rdt.permissions("g") == "40700"
    assert rdt.permissions("g/mon_groups") == "40700"
    assert rdt.permissions("g/mon_data") == "40700"
    assert rdt.permissions("g/schemata") == "100644"


def test_a_group_may_have_almost_any_name(rdt):
    for name in ("with space", ".hidden", "ünïcode", "a:b;c=d", "-", "vmqos.1", "x" * 255):
        assert rdt.mkdir(name) == done()
        assert name in rdt.ls()
        assert rdt.rmdir(name) == done()
        assert name not in rdt.ls()


def test_a_name_has_no_newline(rdt):
    assert rdt.mkdir("two\nlines") == refused("EINVAL")
    assert rdt.mkdir("\n") == refused("EINVAL")


def test_a_name_may_be_longer_than_statfs_says(rdt):
    assert os.statvfs(rdt.root).f_namemax == 255
    assert rdt.mkdir("x" * 300) == done()
    assert "x" * 300 in rdt.ls()


def test_a_name_that_is_taken_is_refused(rdt):
    rdt.group("g")
    for taken in ("g", "info", "schemata", "tasks", "size", "cpus"):
        assert rdt.mkdir(taken) == refused("EEXIST")
    if rdt.profile.monitoring:
        assert rdt.mkdir("mon_groups") == refused("EEXIST")
        assert rdt.mkdir("mon_data") == refused("EEXIST")
    else:
        assert rdt.mkdir("mon_groups") == done()


def test_groups_are_made_in_the_root_only(rdt):
    rdt.group("g")
    assert rdt.mkdir("g/h").errno == "EPERM"
    older = not rdt.has(MKDIR_OUTSIDE_GROUPS) or not rdt.profile.monitoring
    assert rdt.mkdir("info/h").errno == ("EPERM" if older else "ENODEV")
    assert rdt.mkdir("nowhere/h").errno == "ENOENT"
    assert rdt.mkdir("schemata/h").errno == "ENOTDIR"


@needs.MONITORING
def test_groups_are_not_made_among_the_counters(rdt):
    rdt.group("g")
    for folder in ("mon_data", "g/mon_data", "mon_data/mon_L3_00"):
        assert rdt.mkdir(f"{folder}/h").errno == "EPERM"


def test_there_are_as_many_groups_as_the_poorest_resource_has_classes(rdt):
    for number in range(classes_of(rdt.profile) - 1):
        rdt.group(f"g{number}")
    before = rdt.ls()
    assert rdt.mkdir("more") == refused("ENOSPC", "Out of CLOSIDs\n")
    assert rdt.ls() == before
    assert rdt.rmdir("g1").errno is None
    rdt.group("again")
    full = "Out of CLOSIDs\n"
    assert rdt.mkdir("more") == refused("ENOSPC", full if rdt.has(STATUS_CLEARED_BY_MKDIR) else full * 2)


def test_a_new_group_gets_the_lowest_free_class(bare):
    assert bare.mount("debug") is None
    for name in ("a", "b", "c"):
        bare.group(name)
    assert [bare.read(f"{name}/ctrl_hw_id") for name in ("a", "b", "c")] == ["1\n", "2\n", "3\n"]
    for name in ("b", "a"):
        assert bare.rmdir(name) == done()
    bare.group("d")
    assert bare.read("d/ctrl_hw_id") == "1\n"
    bare.group("e")
    assert bare.read("e/ctrl_hw_id") == "2\n"


def test_what_is_no_group_cannot_be_removed(rdt):
    rdt.group("g")
    folders = ["info", *(["mon_data", "mon_groups", "g/mon_groups", "g/mon_data"] if rdt.profile.monitoring else [])]
    for folder in folders:
        assert rdt.rmdir(folder).errno == "EPERM"
    assert rdt.rmdir("schemata").errno == "ENOTDIR"
    assert rdt.rmdir("g/tasks").errno == "ENOTDIR"
    assert rdt.rmdir("nobody").errno == "ENOENT"


def test_a_group_can_be_removed_whatever_is_in_it(rdt, tasks):
    task = tasks.start("task")
    rdt.group("g")
    assert rdt.write("g/tasks", f"{task}\n") == done()
    assert rdt.write("g/cpus_list", "1\n").errno is None
    if rdt.profile.monitoring:
        rdt.group("g/mon_groups/m")
    assert rdt.rmdir("g").errno is None
    assert "g" not in rdt.ls()
    assert task in rdt.tasks()
    assert rdt.cpus() == "0-3"


def test_a_removed_groups_masks_stay_in_the_hardware_until_the_class_is_used_again(rdt, cache):
    rdt.group("g")
    give(rdt, "g", LOW)
    assert rdt.rmdir("g").errno is None
    assert rdt.register(cache.level, 0, mask(cache.level, 1)) == LOW
    rdt.group("h")
    assert rdt.register(cache.level, 0, mask(cache.level, 1)) == every_way(cache)


def test_a_file_that_was_open_when_its_group_went_is_no_device(rdt, cache):
    rdt.group("g")
    descriptor = os.open(os.path.join(rdt.root, "g", "schemata"), os.O_RDWR)
    try:
        assert rdt.rmdir("g").errno is None
        assert rdt.do("read open", "g/schemata", lambda path: os.pread(descriptor, 100, 0)).errno == "ENODEV"
        line = f"{cache.name}:0=3\n".encode()
        assert rdt.do("write open", "g/schemata", lambda path: os.write(descriptor, line)).errno == "ENODEV"
        rdt.group("g")
        assert rdt.do("read open", "g/schemata", lambda path: os.pread(descriptor, 100, 0)).errno == "ENODEV"
    finally:
        os.close(descriptor)


@needs.WAYS_WITHOUT_DEVICES
def test_an_open_file_shows_what_is_now(rdt):
    rdt.group("g")
    descriptor = os.open(os.path.join(rdt.root, "g", "mode"), os.O_RDONLY)
    try:
        assert os.pread(descriptor, 100, 0) == b"shareable\n"
        give(rdt, "", HIGH)
        give(rdt, "g", LOW)
        assert rdt.write("g/mode", "exclusive\n") == done()
        assert os.pread(descriptor, 100, 0) == b"exclusive\n"
    finally:
        os.close(descriptor)


def test_the_working_directory_may_be_removed(rdt):
    rdt.group("g")
    before = os.getcwd()
    os.chdir(os.path.join(rdt.root, "g"))
    try:
        assert rdt.rmdir("g").errno is None
        with pytest.raises(FileNotFoundError):
            os.getcwd()
        # kernfs shows an empty folder; FUSE says ESTALE, and the simulator is not asked. Either way nothing is found.
        found = []
        with contextlib.suppress(OSError):
            found = os.listdir(".")
        assert found == []
    finally:
        os.chdir(before)


def test_files_are_made_and_removed_by_nobody(rdt):
    rdt.group("g")
    assert rdt.do("create", "new", lambda path: os.open(path, os.O_CREAT | os.O_WRONLY)).errno == "EACCES"
    assert rdt.do("create", "g/new", lambda path: os.open(path, os.O_CREAT | os.O_WRONLY)).errno == "EACCES"
    assert rdt.do("unlink", "schemata", os.unlink).errno == "EPERM"
    assert rdt.do("unlink", "g/tasks", os.unlink).errno == "EPERM"
    assert rdt.do("symlink", "link", lambda path: os.symlink("g", path)).errno == "EPERM"
    assert rdt.do("mkfifo", "pipe", os.mkfifo).errno == "EPERM"
    assert rdt.do("link", "g/tasks2", lambda path: os.link(os.path.join(rdt.root, "tasks"), path)).errno == "EPERM"


def test_a_control_group_keeps_its_name(rdt):
    rdt.group("g")
    assert rdt.rename("g", "h") == refused("EPERM", "Source must be a MON group\n")
    # The kernel's text has no newline.
    assert rdt.rename("schemata", "schemata2") == refused("EPERM", "Source and destination must be directories")


def test_owner_and_permissions_can_be_changed(rdt):
    rdt.group("g")
    assert rdt.do("chmod", "g/tasks", lambda path: os.chmod(path, 0o664)) == done()
    assert rdt.do("chown", "g/tasks", lambda path: os.chown(path, 1000, 1000)) == done()
    assert rdt.permissions("g/tasks") == "100664"
    found = os.stat(os.path.join(rdt.root, "g", "tasks"))
    assert (found.st_uid, found.st_gid) == (1000, 1000)
    assert rdt.rmdir("g").errno is None
    rdt.group("g")
    assert rdt.permissions("g/tasks") == "100644"


def test_the_links_of_a_folder_count_the_folders_in_it(rdt):
    rdt.group("g")
    inside = 2 if rdt.profile.monitoring else 0
    assert os.stat(os.path.join(rdt.root, "g")).st_nlink == 2 + inside
    assert os.stat(rdt.root).st_nlink == 2 + inside + len(["info", "g"])


def test_files_have_no_size(rdt):
    for name in ("schemata", "tasks", "info/last_cmd_status"):
        found = os.stat(os.path.join(rdt.root, name))
        assert stat.S_ISREG(found.st_mode)
        assert found.st_size == 0
