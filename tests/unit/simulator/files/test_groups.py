# SPDX-License-Identifier: Apache-2.0
"""Groups are made, removed and renamed under the kernel's rules."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.simulator.table import Bench, small
from vmqos.simulator.hardware.kernel_versions import LINUX_6_12, LINUX_7_2, Kernel
from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.kernel.tree import Caller

OLDER, NEWER = small(PROFILES["cascade-lake"]), small(PROFILES["sapphire-rapids"])


def _code(bench: Bench, act: str, *arguments: str) -> int | None:
    with pytest.raises(OSError) as refused:
        getattr(bench.machine if act != "mkdir" else bench, act)(*arguments)
    return refused.value.errno


@pytest.fixture
def bench() -> Bench:
    bench = Bench(OLDER)
    for path in ("p", "q", "p/mon_groups/m"):
        bench.mkdir(path)
    return bench


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("p", errno.EEXIST),
        ("schemata", errno.EEXIST),
        ("a/b", errno.ENOENT),
        ("nl\nname", errno.EINVAL),
        ("info/x", errno.EPERM),
        ("mon_data/x", errno.EPERM),
        ("p/sub", errno.EPERM),
        ("p/mon_groups/m/mon_groups", errno.EPERM),
        ("schemata/x", errno.ENOTDIR),
    ],
)
def test_groups_are_made_in_two_places_only(bench: Bench, path: str, code: int) -> None:
    assert _code(bench, "mkdir", path) == code


def test_the_newer_kernel_has_another_errno_below_info() -> None:
    assert _code(Bench(NEWER), "mkdir", "info/x") == errno.ENODEV


@pytest.mark.parametrize("path", ["info", "info/L3", "mon_data", "mon_groups", "p/mon_groups", "p/mon_data", ""])
def test_nothing_but_groups_can_be_removed(bench: Bench, path: str) -> None:
    assert _code(bench, "rmdir", path) == errno.EPERM


def test_the_smallest_num_closids_counts() -> None:
    bench = Bench(OLDER)
    for number in range(7):
        bench.mkdir(f"c{number}")
    assert _code(bench, "mkdir", "c7") == errno.ENOSPC
    assert bench.status == "Out of CLOSIDs\n"
    bench.machine.rmdir("c3")
    bench.mkdir("again")


@pytest.mark.parametrize(("kernel", "mask"), [(LINUX_6_12, "f"), (LINUX_7_2, "7fcf")])
def test_only_the_newer_kernel_starts_a_group_with_a_mask_that_has_a_gap(kernel: Kernel, mask: str) -> None:
    bench = Bench(replace(NEWER, kernel=kernel, l2=None))
    bench.write("schemata", "L3:0=3;1=3\n")
    bench.mkdir("g")
    bench.write("g/schemata", "L3:0=30;1=30\n")
    bench.write("g/mode", "exclusive\n")
    bench.mkdir("h")
    shown = bench.read("h/schemata").partition("L3:")[2].split(";")[0]
    assert int(shown.removeprefix("0="), 16) == int(mask, 16)


def test_rmids_run_out_for_both_kinds_of_groups() -> None:
    bench = Bench("minimal")
    for number in range(7):
        bench.mkdir(f"mon_groups/m{number}")
    assert _code(bench, "mkdir", "mon_groups/m7") == errno.ENOSPC
    assert _code(bench, "mkdir", "c") == errno.ENOSPC
    assert bench.status == "Out of RMIDs\n" * 2
    bench.machine.rmdir("mon_groups/m0")
    assert _code(bench, "mkdir", "c") == errno.EBUSY
    bench.now += 1.5
    bench.mkdir("c")


def test_lines_that_have_not_drained_keep_an_rmid_in_limbo() -> None:
    bench = Bench("minimal", "debug")
    bench.mkdir("mon_groups/m")
    rmid = int(bench.read("mon_groups/m/mon_hw_id"))
    bench.machine.hardware.counters.counter(rmid, 0).occupancy = 4 << 20
    bench.machine.rmdir("mon_groups/m")
    bench.now += 100
    for number in range(6):
        bench.mkdir(f"mon_groups/m{number}")
    assert _code(bench, "mkdir", "mon_groups/m6") == errno.EBUSY
    bench.machine.hardware.counters.counter(rmid, 0).occupancy = 0
    bench.now += 1
    bench.mkdir("mon_groups/m6")


def test_a_monitoring_group_moves_with_its_tasks(bench: Bench) -> None:
    bench.table.start(10)
    bench.write("p/tasks", "10\n")
    bench.write("p/mon_groups/m/tasks", "10\n")
    bench.machine.rename("p/mon_groups/m", "q/mon_groups/n")
    assert (bench.read("p/tasks"), bench.read("q/tasks"), bench.read("q/mon_groups/n/tasks")) == ("", "10\n", "10\n")


@pytest.mark.parametrize(
    ("old", "new", "code", "status"),
    [
        ("p/mon_groups/m", "m", errno.EPERM, "Destination must be a mon_groups subdirectory\n"),
        ("p/mon_groups/m", "p/m", errno.EPERM, "Destination must be a mon_groups subdirectory\n"),
        ("q", "qq", errno.EPERM, "Source must be a MON group\n"),
        ("p/mon_groups", "p/mg", errno.EPERM, "Source must be a MON group\n"),
        ("p/tasks", "p/tasks2", errno.EPERM, "Source and destination must be directories"),
        ("p/mon_groups/m", "q/mon_groups/taken", errno.EEXIST, "ok\n"),
        ("info", "info2", errno.ENOENT, "ok\n"),
    ],
)
def test_nothing_else_can_be_renamed(bench: Bench, old: str, new: str, code: int, status: str) -> None:
    bench.mkdir("q/mon_groups/taken")
    assert _code(bench, "rename", old, new) == code
    assert bench.status == status


def test_a_monitoring_group_with_cpus_stays_with_its_parent(bench: Bench) -> None:
    bench.write("p/cpus", "8\n")
    bench.write("p/mon_groups/m/cpus", "8\n")
    assert _code(bench, "rename", "p/mon_groups/m", "q/mon_groups/m") == errno.EPERM
    assert bench.status == "Cannot move a MON group that monitors CPUs\n"
    bench.machine.rename("p/mon_groups/m", "p/mon_groups/n")


def test_a_group_that_an_ordinary_user_makes_is_his() -> None:
    bench = Bench(OLDER)
    bench.mkdir("g", 0o700, Caller(1000, 1000, 1))
    owners = {(bench.machine.find(path).uid, oct(bench.machine.find(path).mode)) for path in ("g", "g/mon_data")}
    assert owners == {(1000, "0o40700")}
    assert bench.machine.find("g/tasks").uid == 1000


class Groups(RuleBasedStateMachine):
    """Whatever is done to groups, nothing is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench("minimal")

    @rule(name=st.sampled_from("abcd"))
    def make_control(self, name: str) -> None:
        self._try(lambda: self.bench.mkdir(name))

    @rule(parent=st.sampled_from(["", "a/", "b/"]), name=st.sampled_from("xyz"))
    def make_monitoring(self, parent: str, name: str) -> None:
        self._try(lambda: self.bench.mkdir(f"{parent}mon_groups/{name}"))

    @rule(path=st.sampled_from(["a", "b", "c", "mon_groups/x", "a/mon_groups/x", "b/mon_groups/y"]))
    def remove(self, path: str) -> None:
        self._try(lambda: self.bench.machine.rmdir(path))

    @rule(name=st.sampled_from("xyz"), old=st.sampled_from(["", "a/"]), new=st.sampled_from(["", "b/"]))
    def rename(self, name: str, old: str, new: str) -> None:
        self._try(lambda: self.bench.machine.rename(f"{old}mon_groups/{name}", f"{new}mon_groups/{name}"))

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.bench.now += seconds

    @rule()
    def mount_again(self) -> None:
        self.bench.machine.unmount()
        self.bench.machine.mount()

    @invariant()
    def every_rmid_is_somewhere(self) -> None:
        rmids = self.bench.machine.hardware.rmids
        held = [group.rmid for group in self.bench.machine.mounted.every_group() if group.rmid]
        assert sorted([*held, *rmids.free, *rmids.in_limbo]) == list(range(1, 8))

    @invariant()
    def every_control_group_has_a_class_of_its_own(self) -> None:
        mounted = self.bench.machine.mounted
        assert sorted(group.closid for group in mounted.groups) == [closid for closid, _ in mounted.taken_closids()]

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            assert error.errno in (errno.EEXIST, errno.ENOENT, errno.ENOSPC, errno.EBUSY)


Groups.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestGroups = Groups.TestCase
