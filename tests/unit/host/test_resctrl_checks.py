# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vmqos.allocation import Group, Layout
from vmqos.conf import loader
from vmqos.group_names import Owner
from vmqos.host import resctrl_checks
from vmqos.host.finding import Status
from vmqos.host.resctrl_state import LEFT_LOCKED, ResctrlState
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthResource, BandwidthUnit, CacheResource, Capabilities, Monitoring
from vmqos.resctrl.groups import ControlGroup
from vmqos.resctrl.mount import Mount

VM_GROUP = "vmqos.4f2c1a9e-0f0b-4a55-9c1e-2b6d7a90c3aa"


def l3(**changes: Any) -> CacheResource:
    values: dict[str, Any] = {
        "name": "L3",
        "num_closids": 4,
        "cbm_mask": CapacityBitmask(0x7FF),
        "min_cbm_bits": 1,
        "shareable_bits": CapacityBitmask(0x600),
        "sparse_masks": False,
        "cache_ids": (0, 1),
    }
    return CacheResource(**values | changes)


def view(groups: dict[str, int], resource: CacheResource | None = None, rmids: int | None = 8) -> ResctrlState:
    """A host whose groups have the same mask on both caches."""
    owners = {"": Owner.DEFAULT, VM_GROUP: Owner.VM}
    layout = Layout(
        tuple(
            Group(name, owners.get(name, Owner.FOREIGN), {0: CapacityBitmask(bits), 1: CapacityBitmask(bits)})
            for name, bits in groups.items()
        )
    )
    monitoring = None if rmids is None else Monitoring(rmids, ("llc_occupancy",), 0)
    capabilities = Capabilities(caches={"L3": resource or l3()}, monitoring=monitoring)
    return ResctrlState((0, 1), capabilities, layout, dict.fromkeys(groups, "shareable"), {})


def control(groups: dict[str, int]) -> list[ControlGroup]:
    return [ControlGroup(name, "shareable", {"L3": {0: f"{bits:x}", 1: f"{bits:x}"}}) for name, bits in groups.items()]


@pytest.mark.parametrize(
    ("groups", "status", "words", "command"),
    [
        ({"": 0x7FF}, Status.OK, "11 ways on cache 0", ""),
        ({"": 0x7FC, VM_GROUP: 0x3}, Status.OK, "9 ways on cache 0", ""),
        ({"": 0x7F0, VM_GROUP: 0x3}, Status.WARNING, "no group holds.*L3:0=c;1=c", "echo 'L3:0=7fc;1=7fc' >"),
        ({"": 0x400}, Status.PROBLEM, "fewer than .*default_ways_min = 2 ways: 1 on cache 0", "'L3:0=7ff;1=7ff'"),
        ({"": 0x400, "libvirt": 0x3FF}, Status.PROBLEM, "fewer than", ""),
        ({"": 0x7F8, "libvirt": 0x3}, Status.WARNING, "no group holds.*L3:0=4;1=4", "'L3:0=7fc;1=7fc'"),
    ],
)
def test_the_default_group_has_enough_and_no_way_lies_idle(
    groups: dict[str, int], status: Status, words: str, command: str
) -> None:
    import re

    found = resctrl_checks.default_group(view(groups), control(groups), loader.load([]))
    assert found.status is status
    assert re.search(words, found.detail)
    assert command in found.command
    assert bool(found.command) is bool(command)


def test_reserved_ways_are_not_idle(tmp_path: Path) -> None:
    (tmp_path / "vmqos.conf").write_text("[allocation]\nreserved_ways = 3\n")
    conf = loader.load(["--config-file", str(tmp_path / "vmqos.conf")])
    groups = {"": 0x7FC}
    assert resctrl_checks.default_group(view(groups), control(groups), conf).status is Status.OK


def test_classes_of_service_that_run_out_are_a_warning() -> None:
    assert resctrl_checks.closids(view({"": 1, "a": 2, "b": 4}), "/r").status is Status.OK
    full = resctrl_checks.closids(view({"": 1, "a": 2, "b": 4, "c": 8}), "/r")
    assert (full.status, "4 of 4" in full.detail, "rmdir /r/" in full.command) == (Status.WARNING, True, True)


@pytest.mark.parametrize(
    ("rmids", "status", "words"),
    [
        (8, Status.OK, "2 of 8"),
        (2, Status.WARNING, "can't be monitored"),
        (None, Status.WARNING, "no cache or bandwidth"),
    ],
)
def test_monitoring_that_is_missing_or_runs_out_is_a_warning(rmids: int | None, status: Status, words: str) -> None:
    found = resctrl_checks.rmids(view({"": 1, "a": 2}, rmids=rmids))
    assert found.status is status
    assert words in found.detail


def test_groups_of_others_are_named_with_their_ways() -> None:
    assert resctrl_checks.foreign_groups(view({"": 0x7FC, VM_GROUP: 3})).status is Status.OK
    found = resctrl_checks.foreign_groups(view({"": 0x7FC, "qemu-1-x-vcpus_0": 3}))
    assert found.status is Status.WARNING
    assert "qemu-1-x-vcpus_0 (L3:0=3;1=3)" in found.detail


def test_io_ways_say_whether_they_are_promised() -> None:
    assert "2 (mask 600)" in resctrl_checks.io_ways(view({"": 1}), usable=False).detail
    assert "promised last" in resctrl_checks.io_ways(view({"": 1}), usable=True).detail
    nothing = resctrl_checks.io_ways(view({"": 1}, l3(shareable_bits=CapacityBitmask())), usable=False)
    assert nothing.detail.startswith("none")


def test_ways_that_devices_are_confined_to_are_told_with_the_class_that_they_take() -> None:
    found = resctrl_checks.io_ways(view({"": 1}, l3(io_alloc={0: CapacityBitmask(0xC0)})), usable=False)
    assert "0=c0" in found.detail and "CLOSID" in found.detail


def test_ways_that_are_all_shared_with_devices_are_a_warning_unless_they_are_promised() -> None:
    every = l3(shareable_bits=CapacityBitmask(0x7FF))
    assert resctrl_checks.io_ways(view({"": 1}, every), usable=False).status is Status.WARNING
    assert resctrl_checks.io_ways(view({"": 1}, every), usable=True).status is Status.OK


def test_a_mount_with_cdp_is_fine_and_told() -> None:
    split = ResctrlState((0, 1), Capabilities(caches={"L3CODE": l3(name="L3CODE")}), Layout(()), {}, {})
    found = resctrl_checks.l3_allocation(split)
    assert found.status is Status.OK and "halves the CLOSIDs" in found.detail
    found = resctrl_checks.l3_allocation(view({"": 1}))
    assert found.status is Status.OK and "cdp" not in found.detail


def test_a_host_without_l3_allocation_is_a_problem() -> None:
    bare = ResctrlState((0, 1), Capabilities(), Layout(()), {}, {})
    assert resctrl_checks.l3_allocation(bare).status is Status.PROBLEM


def test_a_host_that_can_partition_its_l2_alone_is_warned_of_l3_ways() -> None:
    small = ResctrlState((0, 1), Capabilities(caches={"L2": l3(name="L2")}), Layout(()), {}, {})
    found = resctrl_checks.l3_allocation(small)
    assert found.status is Status.WARNING and "flavors ask for L3 ways are pending" in found.detail
    found = resctrl_checks.l2_allocation(l3(name="L2"), True)
    assert found.status is Status.OK and found.detail == "11 ways on 2 caches, for code and for data apart (cdpl2)"


def test_caches_whose_cpus_are_unknown_are_a_problem(tmp_path: Path) -> None:
    found = resctrl_checks.cache_ids(view({"": 1}), str(tmp_path), simulated=True)
    assert found.status is Status.PROBLEM
    assert "no CPU for L3 cache 0, 1" in found.detail
    assert "sysfs_cpu_path" in found.command


def test_a_mount_that_is_not_there_says_so(tmp_path: Path) -> None:
    found, mounted = resctrl_checks.find_mount(str(tmp_path))
    assert (found.status, mounted) == (Status.PROBLEM, None)


def test_ways_that_are_left_locked_are_not_idle_and_take_no_control_group() -> None:
    now = view({"": 0x7FC})
    left = Group(LEFT_LOCKED, Owner.FOREIGN, {0: CapacityBitmask(0x3), 1: CapacityBitmask(0x3)}, True, False)
    now = replace(now, layout=Layout((*now.layout.groups, left)))
    assert resctrl_checks.default_group(now, control({"": 0x7FC}), loader.load([])).status is Status.OK
    assert "1 of 4 in use" in resctrl_checks.closids(now, "/sys/fs/resctrl").detail
    assert "is gone" in resctrl_checks.foreign_groups(now).detail


def test_a_threshold_of_limbo_that_no_rmid_gets_under_is_a_warning(tmp_path: Path) -> None:
    (found,) = resctrl_checks.limbo(view({"": 1}), "/r", str(tmp_path))
    assert found.status is Status.WARNING and "never free again" in found.detail
    assert found.command == "echo 1048576 > /r/info/L3_MON/max_threshold_occupancy"
    fine = view({"": 1})
    for monitoring in (None, Monitoring(8, ("llc_occupancy",), 65536), Monitoring(8, ("mbm_total_bytes",), 0)):
        capabilities = replace(fine.capabilities, monitoring=monitoring)
        assert list(resctrl_checks.limbo(replace(fine, capabilities=capabilities), "/r", str(tmp_path))) == []


def test_ways_that_an_experiment_left_behind_are_named_with_what_frees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {"": 0x7F0, "vmqos.bench-0-f": 0xC, "vmqos.bench-1-3": 0x3}
    conf = loader.load([])
    path = conf.resctrl.path
    monkeypatch.setattr(resctrl_checks, "is_running", lambda path, who: False)
    (found,) = resctrl_checks.bench_groups(view(groups), control(groups), conf)
    assert found.status is Status.WARNING
    assert "vmqos.bench-0-f, vmqos.bench-1-3: left behind" in found.detail and "'vmqos reset'" in found.detail
    assert found.command == (
        f"rmdir {path}/vmqos.bench-0-f && rmdir {path}/vmqos.bench-1-3 && echo 'L3:0=7ff;1=7ff' > {path}/schemata"
    )
    assert resctrl_checks.foreign_groups(view(groups)).detail == "none"
    assert list(resctrl_checks.bench_groups(view({"": 0x7FF}), control({"": 0x7FF}), conf)) == []
    monkeypatch.setattr(resctrl_checks, "is_running", lambda path, who: who == "bench")
    (found,) = resctrl_checks.bench_groups(view(groups), control(groups), conf)
    assert (found.status, found.command, "an experiment runs" in found.detail) == (Status.OK, "", True)


def test_locks_of_the_operators_own_are_no_groups_of_others() -> None:
    now = view({"": 0x7F0, "vmqos.lock-table": 0xF})
    assert resctrl_checks.foreign_groups(now).detail == "none"
    assert [finding.detail for finding in resctrl_checks.locks(now)] == ["table: see 'vmqos lock list'"]
    assert list(resctrl_checks.locks(view({"": 1}))) == []


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A directory in the place of resctrl's root, which every user could reach if it let them in."""
    base = Path(tempfile.mkdtemp())
    base.chmod(0o755)
    (base / "resctrl").mkdir()
    yield base / "resctrl"
    shutil.rmtree(base)


ANY_GROUP, NO_GROUP = "daemon", "no-such-group"
"""A group of every system, and one of none."""


@pytest.mark.parametrize(
    ("mode", "group", "status", "command"),
    [
        (0o555, ANY_GROUP, Status.WARNING, "chmod 0750 {root} && chown root:daemon {root}"),
        (0o754, ANY_GROUP, Status.WARNING, "chmod 0750 {root} && chown root:daemon {root}"),
        (
            0o755,
            NO_GROUP,
            Status.WARNING,
            "groupadd --system no-such-group && chmod 0750 {root} && chown root:no-such-group {root}",
        ),
        (0o755, "", Status.WARNING, "groupadd --system resctrl && chmod 0750 {root} && chown root:resctrl {root}"),
        (0o711, ANY_GROUP, Status.OK, ""),
        (0o750, ANY_GROUP, Status.OK, ""),
    ],
)
def test_a_root_that_every_user_can_open_is_told_with_the_command(
    root: Path, mode: int, group: str, status: Status, command: str
) -> None:
    root.chmod(mode)
    found = resctrl_checks.access(str(root), group, user="no-such-user")
    assert (found.status, found.command) == (status, command.format(root=root))


def test_a_root_in_a_directory_that_is_closed_is_closed(root: Path) -> None:
    root.chmod(0o755)
    root.parent.chmod(0o700)
    assert resctrl_checks.access(str(root), ANY_GROUP, user="no-such-user").status is Status.OK


def test_ceilometers_user_is_told_to_join_the_group(root: Path) -> None:
    root.chmod(0o750)
    found = resctrl_checks.access(str(root), ANY_GROUP, user="nobody")
    assert found.status is Status.WARNING and "the user nobody can't read" in found.detail
    assert found.command.startswith(
        f"chmod 0750 {root} && chown root:daemon {root} && usermod --append --groups daemon nobody   #"
    )


def test_a_user_who_is_in_the_group_reads(root: Path) -> None:
    root.chmod(0o750)
    account = pwd.getpwnam("nobody")
    os.chown(root, -1, account.pw_gid)
    assert resctrl_checks.access(str(root), ANY_GROUP, user="nobody").status is Status.OK


PERCENT = BandwidthResource("MB", 8, 10, 10, True, (0, 1))
MBPS = replace(PERCENT, unit=BandwidthUnit.MBPS)
EIGHTHS = replace(PERCENT, unit=BandwidthUnit.EIGHTH_GBPS)
SERVICES = (
    "for info in $(grep -ls ' - resctrl ' /proc/[0-9]*/mountinfo); do "
    'nsenter --mount="${info%mountinfo}ns/mnt" umount -l /mnt 2>/dev/null; done'
)
AGAIN = "until mount -t resctrl {}resctrl /mnt; do sleep 1; done"
CDP, MBA = "Code and data apart (cdp)", "Bandwidth in MB/s (mba_MBps)"


@pytest.mark.parametrize(
    ("flags", "bandwidth", "options", "expected"),
    [
        ("fpu cat_l3", None, (), {}),
        ("fpu cdp_l3", None, (), {CDP: "-o cdp "}),
        ("fpu cdp_l3", None, ("debug",), {CDP: "-o cdp,debug "}),
        ("fpu", PERCENT, (), {MBA: "-o mba_MBps "}),
        ("fpu cdp_l3", PERCENT, ("cdpl2",), {CDP: "-o cdp,cdpl2 ", MBA: "-o cdpl2,mba_MBps "}),
        ("fpu cdp_l3", MBPS, ("mba_MBps",), {CDP: "-o cdp,mba_MBps ", MBA: ""}),
        ("fpu", EIGHTHS, (), {}),
    ],
)
def test_what_other_mount_options_would_bring_is_told_with_the_command(
    flags: str, bandwidth: BandwidthResource | None, options: tuple[str, ...], expected: dict[str, str]
) -> None:
    now = view({"": 0x7FF})
    monitoring = Monitoring(8, ("llc_occupancy", "mbm_local_bytes"), 0)
    bandwidths = {"MB": bandwidth} if bandwidth is not None else {}
    now = replace(now, capabilities=replace(now.capabilities, bandwidths=bandwidths, monitoring=monitoring))
    mounted = Mount("/mnt", frozenset(options), read_only=False, simulated=False)
    found = {one.title: one.command for one in resctrl_checks.mount_options(now, mounted, flags.split())}
    assert found == {
        title: f"umount -l /mnt; {SERVICES}; timeout 60 sh -c '{AGAIN.format(wanted)}'"
        for title, wanted in expected.items()
    }


def test_while_a_region_is_locked_no_command_unmounts(tmp_path: Path) -> None:
    locked = view({"": 0x7FC, "vmqos.lock-a": 0x3})
    mounted = Mount("/mnt", frozenset(), read_only=False, simulated=False)
    (found,) = resctrl_checks.mount_options(locked, mounted, {"cdp_l3"})
    assert found.command == "vmqos lock list" and "remove all locked regions first" in found.detail


def test_of_a_simulator_the_doctor_says_how_it_is_started() -> None:
    mounted = Mount("/mnt", frozenset(), read_only=False, simulated=True)
    (found,) = resctrl_checks.mount_options(view({"": 0x7FF}), mounted, ())
    assert found.command == "" and found.detail.endswith("start the simulator again with --mount-options cdp")
