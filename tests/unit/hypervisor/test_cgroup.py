# SPDX-License-Identifier: Apache-2.0
"""A VM's cgroup. What libvirt and the kernel really make is seen in the functional tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmqos.hypervisor import cgroup, exceptions, processes
from vmqos.hypervisor.cgroup import CgroupMount, Membership

V1 = CgroupMount("/sys/fs/cgroup/cpu,cpuacct", "/", frozenset({"cpu", "cpuacct"}))
V2 = CgroupMount("/sys/fs/cgroup", "/", frozenset())

MOUNTINFO = (
    r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:7 - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 /docker/ab /mnt/two\040words ro,relatime shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate
""".strip()
    .encode()
    .split(b"\n")
)


def test_the_mounts_of_all_hierarchies_are_found() -> None:
    assert list(cgroup.parse_mounts(MOUNTINFO)) == [
        V1,
        CgroupMount("/sys/fs/cgroup/systemd", "/", frozenset({"xattr", "name=systemd"})),
        CgroupMount("/mnt/two words", "/docker/ab", frozenset()),
    ]


def test_the_memberships_of_all_hierarchies_are_read() -> None:
    assert cgroup.parse_memberships(b"9:name=systemd:/\n1:cpu,cpuacct:/a:b/emulator\n0::/c\n") == [
        Membership(frozenset({"name=systemd"}), "/"),
        Membership(frozenset({"cpu", "cpuacct"}), "/a:b/emulator"),
        Membership(frozenset(), "/c"),
    ]


SCOPE = r"/machine.slice/machine-qemu\x2d1\x2dinstance\x2d0000002a.scope"

OF_A_VM = {
    SCOPE: SCOPE,
    f"{SCOPE}/libvirt": SCOPE,
    f"{SCOPE}/libvirt/emulator": SCOPE,
    f"{SCOPE}/libvirt/vcpu12": SCOPE,
    f"{SCOPE}/emulator": SCOPE,
    "/machine/qemu-1-vm.libvirt-qemu": "/machine/qemu-1-vm.libvirt-qemu",
    "/machine/qemu-1-vm.libvirt-qemu/iothread1": "/machine/qemu-1-vm.libvirt-qemu",
    "/gold.partition/qemu-1-vm.libvirt-qemu/emulator": "/gold.partition/qemu-1-vm.libvirt-qemu",
    "/lab/machine/qemu-1-emulator.libvirt-qemu/emulator": "/lab/machine/qemu-1-emulator.libvirt-qemu",
    "/../machine/qemu-1-vm.libvirt-qemu/emulator": "/../machine/qemu-1-vm.libvirt-qemu",
    "/machine/qemu-1.libvirt-qemu/emulator": "/machine/qemu-1.libvirt-qemu",
    r"/machine.slice/machine-qemu\x2d1.scope/libvirt": r"/machine.slice/machine-qemu\x2d1.scope",
    r"/gold.slice/gold-silver.slice/machine-qemu\x2d9\x2da.scope": (
        r"/gold.slice/gold-silver.slice/machine-qemu\x2d9\x2da.scope"
    ),
}

FOREIGN = [
    "/",
    "/user.slice/user-1000.slice/session-2.scope",
    "/user.slice/user-1000.slice/user@1000.service/app.slice/virtqemud.service",
    "/system.slice/libvirtd.service",
    "/system.slice/virtqemud.service/emulator",
    "/machine.slice",
    "/machine",
    "/machine/emulator",
    "/machine.slice/libvirt/emulator",
    r"/machine.slice/machine-lxc\x2d1\x2dbox.scope",
    "/machine/lxc-1-box.libvirt-lxc",
    "/machine.slice/systemd-nspawn@qemu.service",
    "/machine.slice/libpod-0123.scope",
    "/machine/qemu-one-vm.libvirt-qemu",
    "/machine/qemu-1-vm.libvirt-qemu.d",
    "/machine/xqemu-1-vm.libvirt-qemu",
    "/machine/qemu-1-vm.libvirt-qemu\r",
    "/machine/qemu-\u0661-vm.libvirt-qemu",
    r"/machine.slice/machine-qemu\x2dembed\x2d01234567\x2d1\x2dvm.scope",
]


@pytest.mark.parametrize("path", OF_A_VM)
def test_a_vms_folder_is_found_from_each_of_its_threads(path: str) -> None:
    assert cgroup.own_folder(path) == OF_A_VM[path]


PLAIN = "/machine/qemu-1-vm.libvirt-qemu"

HIERARCHIES = {
    "version 2": (f"0::{SCOPE}/libvirt/emulator\n", [("", SCOPE)]),
    "version 1": (
        f"3:memory:{PLAIN}\n2:cpuset:{PLAIN}/emulator\n1:cpu,cpuacct:{PLAIN}/emulator\n",
        [("cpu,cpuacct", PLAIN), ("cpuset", PLAIN), ("memory", PLAIN)],
    ),
    "both, version 2 with libvirt's threads": (
        f"2:cpu:{PLAIN}/vcpu0\n1:pids:/\n0::{PLAIN}/vcpu0\n",
        [("", PLAIN), ("cpu", PLAIN)],
    ),
    "both, version 2 for systemd alone": (
        f"2:cpuset:{SCOPE}/emulator\n1:name=systemd:{SCOPE}\n0::{SCOPE}\n",
        [("cpuset", SCOPE), ("", SCOPE), ("name=systemd", SCOPE)],
    ),
    "a helper in version 1": (
        f"2:cpuset:{PLAIN}/emulator\n1:memory:/system.slice/libvirtd.service\n",
        [("cpuset", PLAIN)],
    ),
    "no cgroups": ("1:cpu:/\n0::/system.slice/libvirtd.service\n", []),
}


@pytest.mark.parametrize("case", HIERARCHIES)
def test_the_hierarchy_that_lists_helper_processes_comes_first(case: str) -> None:
    text, expected = HIERARCHIES[case]
    folders = cgroup.own_folders(cgroup.parse_memberships(text.encode()))
    assert [(",".join(sorted(folder.controllers)), folder.path) for folder in folders] == expected


@pytest.mark.parametrize("path", FOREIGN)
def test_a_cgroup_that_is_not_a_vms_is_never_taken_for_one(path: str) -> None:
    assert cgroup.own_folder(path) is None


@pytest.mark.parametrize("path", sorted(set(OF_A_VM.values())))
def test_a_vms_folder_has_libvirts_number_of_its_run(path: str) -> None:
    assert cgroup.libvirt_id(f"/sys/fs/cgroup{path}") == (9 if "2d9" in path else 1)


@pytest.mark.parametrize("path", FOREIGN)
def test_another_folder_has_none(path: str) -> None:
    assert cgroup.libvirt_id(f"/sys/fs/cgroup{path}") is None


def test_a_vm_that_is_deep_in_folders_of_anybodys_names_is_found_by_its_own() -> None:
    hostile = rb"/a\r0::/b\x85\xe2\x80\xa8\xff\x1c".decode("unicode_escape").encode("latin-1")
    content = b"1:cpu:" + hostile + b"\n0::" + hostile + PLAIN.encode() + b"\n"
    (found,) = cgroup.own_folders(cgroup.parse_memberships(content))
    assert os.fsencode(found.path) == hostile + PLAIN.encode()


HOSTILE_LINES = {
    "no fields": b"",
    "one colon": b"0:",
    "no path": b"0::",
    "no slash": b"0::machine",
    "only blanks": b"    ",
    "no text": b"\xff\x00\xfe",
}


@pytest.mark.parametrize("line", HOSTILE_LINES.values(), ids=HOSTILE_LINES)
def test_a_line_that_is_no_membership_ends_no_other(line: bytes) -> None:
    content = b"\n".join((b"3:cpu:/a", line, b"0::/b", b""))
    assert [found.path for found in cgroup.parse_memberships(content)] == ["/a", "/b"]


CGROUP2 = rb"41 31 0:38 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw"

HOSTILE_MOUNTS = {
    "a carriage return": b"50 1 0:9 / /home/u/a\rb rw - fuse.x x rw",
    "a carriage return, and a line of a cgroup with its blanks": (
        b"50 1 0:9 / /home/u/a\r" + CGROUP2.replace(b" ", rb"\040") + b" rw - fuse.x x rw"
    ),
    "every other break of lines": b"50 1 0:9 / /u/\x0b\x0c\x1c\x1d\x1e\x1f\x85\xc2\x85\xe2\x80\xa8 rw - fuse.x x rw",
    "no separator": b"50 1 0:9 / /home/u/a rw",
    "two fields": b"50 1 - cgroup2 cgroup2 rw",
    "no options": b"50 1 0:9 / /a rw - cgroup2 cgroup2",
    "no text": b"50 1 0:9 / /\xff\xfe rw - fuse x rw",
    "nothing": b"",
    "very long": b"50 1 0:9 / /" + b"x" * 100_000 + b" rw - cgroup2 cgroup2 rw",
}


@pytest.mark.parametrize("line", HOSTILE_MOUNTS.values(), ids=HOSTILE_MOUNTS)
def test_a_mount_of_any_name_hides_no_other(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_bytes(b"\n".join((line, CGROUP2, line, b"")))
    found = list(cgroup.parse_mounts(cgroup._lines(str(tmp_path / "mountinfo"))))
    assert [mount for mount in found if mount.path == "/sys/fs/cgroup"] == [V2]
    assert len(found) == 1


def test_only_the_beginning_of_a_file_that_is_too_long_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "LONGEST_MOUNTS", 1 << 20)
    line = b"50 1 0:9 / /home/u/a rw - fuse.x x rw"
    (tmp_path / "mountinfo").write_bytes(b"\n".join((CGROUP2, *[line] * 100_000, CGROUP2, b"")))
    assert list(cgroup.parse_mounts(cgroup._lines(str(tmp_path / "mountinfo")))) == [V2]


@pytest.mark.parametrize("of_cpu", [True, False])
def test_no_more_mounts_are_read_than_it_takes_to_find_a_vms_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_cpu: bool
) -> None:
    parts = ("cpu", "unified") if of_cpu else ("unified",)
    for part in parts:
        (tmp_path / part / PLAIN[1:] / "emulator").mkdir(parents=True)
    mounts = [
        *[b"49 1 0:9 / /home/u/a rw - fuse.x x rw"] * 3,
        f"50 1 0:8 / {tmp_path}/unified rw - cgroup2 cgroup2 rw".encode(),
        f"51 1 0:9 / {tmp_path}/cpu rw - cgroup cgroup rw,cpu".encode(),
        *[b"52 1 0:9 / /home/u/a rw - fuse.x x rw"] * 1000,
    ]
    read = list[bytes]()

    def lines(path: str) -> Iterator[bytes]:
        for line in mounts:
            read.append(line)
            yield line

    memberships = f"1:cpu:{PLAIN}/emulator\n0::{PLAIN}\n" if of_cpu else f"0::{PLAIN}/emulator\n"
    monkeypatch.setattr(cgroup, "_lines", lines)
    monkeypatch.setattr(processes, "cgroups", lambda pid: memberships.encode())
    assert cgroup.vm_cgroup(1) == f"{tmp_path}/{parts[0]}{PLAIN}"
    assert len(read) == (5 if of_cpu else 4)


def test_a_folder_that_the_first_hierarchy_does_not_show_is_found_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / PLAIN[1:] / "emulator").mkdir(parents=True)
    mounts = [
        f"50 1 0:8 / {tmp_path} rw - cgroup2 cgroup2 rw".encode(),
        b"51 1 0:9 / /nowhere rw - cgroup cgroup rw,cpu",
    ]
    monkeypatch.setattr(cgroup, "_lines", lambda path: iter(mounts))
    monkeypatch.setattr(processes, "cgroups", lambda pid: f"1:cpu:{PLAIN}/emulator\n0::{PLAIN}\n".encode())
    assert cgroup.vm_cgroup(1) == f"{tmp_path}{PLAIN}"


def test_octal_numbers_in_a_mount_point_are_bytes() -> None:
    line = rb"41 31 0:38 / /a\303\274\040\134b rw - cgroup2 cgroup2 rw"
    assert [mount.path for mount in cgroup.parse_mounts([line])] == ["/a\u00fc \\b"]


@pytest.mark.parametrize(
    ("mount", "membership", "directory"),
    [
        (V2, Membership(frozenset(), "/machine/vm"), "/sys/fs/cgroup/machine/vm"),
        (V1, Membership(frozenset({"cpu", "cpuacct"}), "/machine/vm"), "/sys/fs/cgroup/cpu,cpuacct/machine/vm"),
        (V1, Membership(frozenset(), "/machine/vm"), None),
        (V2, Membership(frozenset({"cpu"}), "/machine/vm"), None),
        (V1, Membership(frozenset({"memory"}), "/machine/vm"), None),
        (CgroupMount("/c", "/docker/ab", frozenset()), Membership(frozenset(), "/docker/ab/vm"), "/c/vm"),
        (CgroupMount("/c", "/docker/ab", frozenset()), Membership(frozenset(), "/docker/abc/vm"), None),
        (CgroupMount("/", "/", frozenset()), Membership(frozenset(), "/vm"), "/vm"),
    ],
)
def test_a_cgroup_is_found_below_the_mount_of_its_hierarchy(
    mount: CgroupMount, membership: Membership, directory: str | None
) -> None:
    assert cgroup.below(mount, membership) == directory


def test_this_process_is_in_no_vm() -> None:
    assert cgroup.vm_cgroup(os.getpid()) is None


def test_a_process_that_has_ended_is_said_to_have() -> None:
    with pytest.raises(exceptions.ProcessVanished):
        cgroup.vm_cgroup(2**22 + 1)


def tree(root: Path, files: dict[str, str]) -> str:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return str(root)


def test_processes_of_version_1_are_those_of_every_folder(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "cgroup.procs": "",
            "emulator/cgroup.procs": "7\n9\n",
            "vcpu0/cgroup.procs": "7\n",
            "a/cgroup.procs": "",
            "a/b/cgroup.procs": "11\n",
        },
    )
    assert cgroup.processes_in(root) == {7, 9, 11}


def test_processes_of_a_threaded_domain_are_those_of_its_top(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "cgroup.procs": "5\n",
            "cgroup.type": "domain\n",
            "libvirt/cgroup.procs": "7\n9\n",
            "libvirt/cgroup.type": "domain threaded\n",
            "libvirt/emulator/cgroup.procs": "never read\n",
        },
    )
    assert cgroup.processes_in(root) == {5, 7, 9}


def test_processes_of_another_pid_namespace_do_not_count(tmp_path: Path) -> None:
    assert cgroup.processes_in(tree(tmp_path, {"cgroup.procs": "0\n7\n0\n"})) == {7}


def test_a_folder_counts_only_if_it_and_those_above_are_the_agents_or_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "machine" / "vm"
    folder.mkdir(parents=True)
    (tmp_path / "machine" / "link").symlink_to(folder)
    assert cgroup._is_roots(str(folder), str(tmp_path))
    assert not cgroup._is_roots(str(tmp_path / "machine" / "link"), str(tmp_path))
    assert not cgroup._is_roots(str(folder / "gone"), str(tmp_path))
    real = os.lstat

    def of_a_user(path: str) -> os.stat_result:
        found = list(real(path))
        found[4] = os.geteuid() + 1000 if path == str(tmp_path / "machine") else os.geteuid()
        return os.stat_result(found)

    monkeypatch.setattr(os, "lstat", of_a_user)
    assert not cgroup._is_roots(str(folder), str(tmp_path))


def test_a_tree_of_too_many_cgroups_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "MOST_CGROUPS", 10)
    wide = tree(tmp_path / "wide", {f"{number}/cgroup.procs": "7\n" for number in range(12)} | {"cgroup.procs": ""})
    deep = tree(tmp_path / "deep", {f"{'a/' * depth}cgroup.procs": "7\n" for depth in range(12)})
    for root in (wide, deep):
        with pytest.raises(exceptions.CgroupTooLarge, match="more than 10 cgroups"):
            cgroup.processes_in(root)


def test_a_cgroup_of_too_many_processes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree(tmp_path, {"cgroup.procs": "".join(f"{pid}\n" for pid in range(1, 20_001))})
    with pytest.raises(exceptions.CgroupTooLarge, match="processes"):
        cgroup.processes_in(root)
    monkeypatch.setattr(cgroup, "_LONGEST_LIST", 1 << 20)
    with pytest.raises(exceptions.CgroupTooLarge, match="more than 16384 processes"):
        cgroup.processes_in(root)


def test_a_line_that_is_no_process_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_bytes(b"7\n\xff\n-9\n\n\xd9\xa1\n11\r\n13\n")
    assert cgroup.processes_in(str(tmp_path)) == {7, 13}


def test_a_cgroup_that_is_gone_has_no_processes(tmp_path: Path) -> None:
    assert cgroup.processes_in(str(tmp_path / "gone")) == set()
