# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from vmqos.host import host_checks
from vmqos.host.finding import Status

CASCADE_LAKE = "fpu vme cat_l3 cdp_l3 mba cqm cqm_llc cqm_occup_llc cqm_mbm_total"


@pytest.mark.parametrize(
    ("flags", "simulated", "status", "words"),
    [
        (CASCADE_LAKE, False, Status.OK, "cat_l3 (L3 allocation)"),
        ("fpu vme", False, Status.PROBLEM, "can't be partitioned"),
        ("fpu cqm_llc", False, Status.PROBLEM, "only cqm_llc (monitoring)"),
        ("fpu hypervisor", False, Status.PROBLEM, "This is a virtual machine"),
        ("fpu hypervisor", True, Status.OK, "the simulator stands in"),
        ("fpu cat_l3_imposter", False, Status.PROBLEM, "has no cat_l3"),
        ("", False, Status.PROBLEM, "has no cat_l3"),
    ],
)
def test_the_cpu_needs_l3_allocation_unless_it_is_simulated(
    flags: str, simulated: bool, status: Status, words: str
) -> None:
    found = host_checks.cpu_flags(flags.split(), simulated)
    assert found.status is status
    assert words in found.detail
    assert bool(found.command) is (status is Status.PROBLEM)


@pytest.mark.parametrize(
    ("filesystems", "simulated", "status"),
    [
        ("nodev\tsysfs\nnodev\tresctrl\n", False, Status.OK),
        ("nodev\tsysfs\n\text4\n", False, Status.PROBLEM),
        ("nodev\tmyresctrl\n", False, Status.PROBLEM),
        ("nodev\tsysfs\n", True, Status.OK),
    ],
)
def test_the_kernel_has_to_offer_resctrl_unless_it_is_simulated(
    filesystems: str, simulated: bool, status: Status
) -> None:
    assert host_checks.kernel_support(filesystems, simulated).status is status


@pytest.mark.parametrize(
    ("cmdline", "status", "words"),
    [
        ("quiet splash", Status.OK, "turns nothing off"),
        ("quiet rdt=l3cat,mba", Status.OK, "has rdt=l3cat,mba"),
        ("rdt=!mba", Status.WARNING, "rdt=!mba turns off mba"),
        ("rdt=cmt,!l3cat,!mba ro", Status.PROBLEM, "turns off l3cat, mba"),
    ],
)
def test_the_boot_parameter_may_turn_things_off(cmdline: str, status: Status, words: str) -> None:
    found = host_checks.kernel_command_line(cmdline)
    assert found.status is status
    assert words in found.detail
    assert ("update-grub" in found.command) is (status is not Status.OK)


def test_pid_files_are_counted(tmp_path: Path) -> None:
    for name in ("web.pid", "db.pid", "driver.pid", "autostart", "web.xml"):
        (tmp_path / name).touch()
    found = host_checks.pid_files(str(tmp_path))
    assert (found.status, found.detail) == (Status.OK, f"{tmp_path} can be read, 2 PID files")


def test_a_missing_run_directory_is_a_warning_that_names_the_option(tmp_path: Path) -> None:
    found = host_checks.pid_files(str(tmp_path / "nothing"))
    assert found.status is Status.WARNING
    assert found.detail.endswith("A VM that starts gets its ways only once it runs")
    assert "[libvirt] run_dir" in found.command


@pytest.mark.parametrize(
    ("mounts", "status", "words"),
    [
        ("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", Status.OK, "v2"),
        ("cgroup /sys/fs/cgroup/cpuset cgroup rw 0 0\n", Status.OK, "v1"),
        ("cgroup /a cgroup rw 0 0\ncgroup2 /b cgroup2 rw 0 0\n", Status.OK, "v1 and v2 (hybrid)"),
        ("tmpfs /sys/fs/cgroup tmpfs rw 0 0\n", Status.WARNING, "swtpm"),
        (
            "x /home/u/a\r0\\0400\u2028cgroup fuse.x rw 0 0\nx /b\x0bcgroup2\x0bcgroup2 fuse.x rw 0 0\n",
            Status.WARNING,
            "swtpm",
        ),
        ("x /home/u/a\r\u2028\x1c b\ncgroup2 /b cgroup2 rw 0 0\n", Status.OK, "v2"),
        ("", Status.WARNING, "not mounted"),
    ],
)
def test_the_cgroup_version_is_told(mounts: str, status: Status, words: str) -> None:
    found = host_checks.cgroups(mounts)
    assert found.status is status
    assert words in found.detail


@pytest.mark.parametrize(
    ("limit", "status"),
    [(1024, Status.WARNING), (4096, Status.OK), (resource.RLIM_INFINITY, Status.OK)],
)
def test_counters_need_descriptors(limit: int, status: Status) -> None:
    found = host_checks.descriptors(limit)
    assert found.status is status
    assert ("LimitNOFILE" in found.command) is (status is Status.WARNING)


def test_a_libvirt_that_does_not_answer_is_a_problem(tmp_path: Path) -> None:
    found = host_checks.libvirt_answers(f"qemu:///system?socket={tmp_path}/nobody")
    assert found.status is Status.PROBLEM
    assert str(tmp_path) in found.detail
    assert found.command == f"systemctl start {host_checks.libvirt_daemon()}"


@pytest.mark.parametrize(
    ("listening", "installed", "daemon"),
    [
        (["libvirt-sock"], ["virtqemud"], "libvirtd"),
        (["virtqemud-sock"], ["libvirtd"], "virtqemud"),
        ([], ["virtqemud"], "virtqemud"),
        ([], ["libvirtd", "virtqemud"], "libvirtd"),
        ([], [], "libvirtd"),
    ],
)
def test_the_daemon_to_start_is_the_one_that_has_the_vms(
    tmp_path: Path, listening: list[str], installed: list[str], daemon: str
) -> None:
    for name in listening:
        (tmp_path / name).touch()
    for name in installed:
        (tmp_path / name).touch(mode=0o755)
    assert host_checks.libvirt_daemon(str(tmp_path), str(tmp_path)) == daemon


def test_a_libvirt_that_hangs_is_a_problem_and_keeps_the_doctor_waiting_no_longer_than_it_must(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "mute"))
        listener.listen()
        found = host_checks.libvirt_answers(f"qemu:///system?socket={tmp_path}/mute", patience=0.2)
    assert found.status is Status.PROBLEM
    assert "does not answer" in found.detail
    assert found.command == f"systemctl restart {host_checks.libvirt_daemon()}"


def test_a_libvirt_that_answers_tells_its_version_and_its_vms() -> None:
    found = host_checks.libvirt_answers("test:///default")
    assert found.status is Status.OK
    assert "answers on test:///default, 1 running VM" in found.detail
