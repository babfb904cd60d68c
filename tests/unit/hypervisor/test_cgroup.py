# SPDX-License-Identifier: Apache-2.0
"""A VM's cgroup. What libvirt and the kernel really make is seen in the functional tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vmqos.hypervisor import cgroup, exceptions
from vmqos.hypervisor.cgroup import CgroupMount, Membership

V1 = CgroupMount("/sys/fs/cgroup/cpu,cpuacct", "/", frozenset({"cpu", "cpuacct"}))
V2 = CgroupMount("/sys/fs/cgroup", "/", frozenset())

MOUNTINFO = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:7 - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 /docker/ab /mnt/two\040words ro,relatime shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate
""".strip().splitlines(keepends=True)


def test_the_mounts_of_all_hierarchies_are_found() -> None:
    assert cgroup.parse_mounts(MOUNTINFO) == [
        V1,
        CgroupMount("/sys/fs/cgroup/systemd", "/", frozenset({"xattr", "name=systemd"})),
        CgroupMount("/mnt/two words", "/docker/ab", frozenset()),
    ]


def test_the_memberships_of_all_hierarchies_are_read() -> None:
    assert cgroup.parse_memberships("9:name=systemd:/\n1:cpu,cpuacct:/a:b/emulator\n0::/c\n") == [
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
    folders = cgroup.own_folders(cgroup.parse_memberships(text))
    assert [(",".join(sorted(folder.controllers)), folder.path) for folder in folders] == expected


@pytest.mark.parametrize("path", FOREIGN)
def test_a_cgroup_that_is_not_a_vms_is_never_taken_for_one(path: str) -> None:
    assert cgroup.own_folder(path) is None


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


def test_a_cgroup_that_is_gone_has_no_processes(tmp_path: Path) -> None:
    assert cgroup.processes_in(str(tmp_path / "gone")) == set()
