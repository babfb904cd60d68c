# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.mount, on files that look like procfs."""

import os

import pytest

from vmqos.resctrl import exceptions, mount

INTEL = "processor\t: 0\nflags\t\t: fpu cat_l3 cdp_l3 mba cqm rdt_a\nbugs\t\t:\n"
SUPPORTED = "nodev\tproc\nnodev\tresctrl\n\text4\n"
UNSUPPORTED = "nodev\tproc\n\text4\n"


@pytest.fixture
def resctrl(tmp_path):
    path = tmp_path / "resctrl"
    (path / "info" / "L3").mkdir(parents=True)
    (path / "schemata").write_text("    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n")
    return path


@pytest.fixture
def proc(tmp_path):
    def make(mounts="", filesystems=SUPPORTED, cpuinfo=INTEL, cmdline="root=/dev/vda1 ro\n"):
        root = tmp_path / "proc"
        (root / "self").mkdir(parents=True)
        (root / "self" / "mounts").write_text(f"proc /proc proc rw,nosuid 0 0\n{mounts}")
        (root / "filesystems").write_text(filesystems)
        (root / "cpuinfo").write_text(cpuinfo)
        (root / "cmdline").write_text(cmdline)
        return str(root)

    return make


def line(path, fstype="resctrl", options="rw,relatime"):
    escaped = str(path).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011").replace("\n", "\\012")
    return f"{fstype} {escaped} {fstype} {options} 0 0\n"


@pytest.mark.parametrize("ask", [True, False], ids=["asked for by its path", "wherever it is"])
def test_the_kernels_resctrl_is_found(resctrl, proc, ask):
    found = mount.find(str(resctrl) if ask else None, proc=proc(line(resctrl)))
    assert found == mount.Mount(str(resctrl), frozenset(), read_only=False, simulated=False)


def test_options_are_told_and_those_of_every_filesystem_are_not(resctrl, proc):
    found = mount.find(proc=proc(line(resctrl, options="rw,nosuid,relatime,cdp,mba_MBps,debug")))
    assert found.options == {"cdp", "mba_MBps", "debug"}


@pytest.mark.parametrize("name", ["with space", "tab\there", "line\nbreak", "back\\slash", "b\\040"])
def test_a_path_with_odd_characters_is_found(tmp_path, resctrl, proc, name):
    odd = resctrl.rename(tmp_path / name)
    assert mount.find(str(odd), proc=proc(line(odd))).path == str(odd)


def test_a_link_to_the_mount_point_is_followed(tmp_path, resctrl, proc):
    link = tmp_path / "link"
    link.symlink_to(resctrl)
    assert mount.find(f"{link}/", proc=proc(line(resctrl))).path == str(resctrl)


def test_a_simulator_is_found_by_its_path_and_known_as_one(resctrl, proc):
    (resctrl / "info" / "L3CODE").mkdir()
    found = mount.find(str(resctrl), options=["cdp"], proc=proc(line(resctrl, "fuse.vmqos"), UNSUPPORTED))
    assert found.simulated
    assert found.options == {"cdp"}


def test_a_simulator_is_never_taken_unasked(resctrl, proc):
    with pytest.raises(exceptions.NotSupported):
        mount.find(proc=proc(line(resctrl, "fuse"), UNSUPPORTED))


def test_the_last_of_several_mounts_on_one_directory_counts(resctrl, proc):
    assert mount.find(str(resctrl), proc=proc(line(resctrl, "tmpfs") + line(resctrl))).path == str(resctrl)


@pytest.mark.parametrize(
    ("files", "cause", "remedy"),
    [
        ({"cpuinfo": "flags : fpu sse\n"}, "announces neither", "vmqos simulate"),
        ({"cpuinfo": ""}, "announces neither", "firmware"),
        ({}, "cat_l3", "CONFIG_X86_CPU_RESCTRL"),
        ({"cmdline": "quiet rdt=!l3cat,!mba\n"}, "rdt=!l3cat,!mba", "switches it off"),
    ],
)
def test_a_kernel_without_resctrl_is_told_with_the_likely_cause(proc, files, cause, remedy):
    with pytest.raises(exceptions.NotSupported) as caught:
        mount.find(proc=proc(filesystems=UNSUPPORTED, **files))
    assert cause in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize("path", [None, "/sys/fs/resctrl"])
def test_a_resctrl_that_is_not_mounted_is_told_with_the_command(proc, path):
    with pytest.raises(exceptions.NotMounted, match="mount -t resctrl resctrl /sys/fs/resctrl"):
        mount.find(path, proc=proc())


def test_a_resctrl_that_is_mounted_elsewhere_is_told_with_its_place(tmp_path, resctrl, proc):
    with pytest.raises(exceptions.NotMounted, match=f"mounted at {resctrl}"):
        mount.find(str(tmp_path), proc=proc(line(resctrl)))


def test_missing_options_are_told_with_the_commands_and_keep_those_in_force(resctrl, proc):
    with pytest.raises(exceptions.MissingMountOptions) as caught:
        mount.find(options=["mba_MBps", "cdp"], proc=proc(line(resctrl, options="rw,cdp")))
    command = f"umount {resctrl} && mount -t resctrl -o cdp,mba_MBps resctrl {resctrl}"
    assert "without mba_MBps" in str(caught.value)
    assert command in str(caught.value)


def test_missing_options_of_a_simulator_are_told_with_its_own_command(resctrl, proc):
    with pytest.raises(exceptions.MissingMountOptions, match=r"vmqos simulate .* --mount-options cdp"):
        mount.find(str(resctrl), options=["cdp"], proc=proc(line(resctrl, "fuse")))


def test_a_read_only_mount_is_told_with_the_command_unless_reading_is_enough(resctrl, proc):
    where = proc(line(resctrl, options="ro,relatime"))
    with pytest.raises(exceptions.ReadOnly, match=f"mount -i -o remount,rw {resctrl}"):
        mount.find(proc=where)
    assert mount.find(writable=False, proc=where).read_only


@pytest.mark.parametrize("fstype", ["tmpfs", "ext4", "sysfs"])
def test_another_filesystem_is_no_resctrl(resctrl, proc, fstype):
    with pytest.raises(exceptions.NotResctrl, match=fstype):
        mount.find(str(resctrl), proc=proc(line(resctrl, fstype)))


def test_a_fuse_filesystem_without_resctrls_files_is_no_resctrl(tmp_path, proc):
    with pytest.raises(exceptions.NotResctrl, match=r"fuse\.sshfs"):
        mount.find(str(tmp_path), proc=proc(line(tmp_path, "fuse.sshfs")))


def test_a_process_without_procfs_is_told_what_it_can_not_read(tmp_path):
    with pytest.raises(exceptions.Unreadable, match="self/mounts"):
        mount.find(proc=str(tmp_path))


BREAKS = {
    "a carriage return": b"\r",
    "carriage return and line feed, written": b"\r\\012",
    "vertical tab": b"\x0b",
    "form feed": b"\x0c",
    "separators": b"\x1c\x1d\x1e\x1f",
    "next line": b"\xc2\x85",
    "line separator": b"\xe2\x80\xa8",
    "no text": b"\xff\xfe\x85",
}


@pytest.mark.parametrize("name", BREAKS.values(), ids=BREAKS)
def test_a_mount_point_of_any_name_hides_no_other(tmp_path, resctrl, proc, name):
    root = proc()
    forged = (b"resctrl " + os.fsencode(resctrl) + b" resctrl ro").replace(b" ", rb"\040")
    hostile = b"x /home/u/a" + name + forged + b" fuse.x rw,nosuid 0 0\n"
    (tmp_path / "proc" / "self" / "mounts").write_bytes(hostile + line(resctrl).encode() + hostile)
    found = mount.find(str(resctrl), proc=root)
    assert (found.path, found.read_only, found.simulated) == (str(resctrl), False, False)
    assert mount.find(proc=root) == found
    paths = [entry.path for entry in mount._mounts(root)]
    assert [path.startswith("/home/u/a") for path in paths] == [True, False, True]


@pytest.mark.parametrize("other", [b"", b"x", b"x y", b"\xff\xff\xff", b"a b c", b"   ", b"x \\777 resctrl rw"])
def test_a_line_that_is_no_mount_is_passed_over(tmp_path, resctrl, proc, other):
    root = proc()
    (tmp_path / "proc" / "self" / "mounts").write_bytes(other + b"\n" + line(resctrl).encode() + other + b"\n")
    assert mount.find(str(resctrl), proc=root).path == str(resctrl)
