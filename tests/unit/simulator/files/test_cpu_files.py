# SPDX-License-Identifier: Apache-2.0
"""CPUs belong to one control group each, and to one of its monitoring groups at most."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.simulator.table import Bench, small
from vmqos.simulator.hardware.profiles import PROFILES

MACHINE = small(PROFILES["cascade-lake"])
NEWER = small(PROFILES["sapphire-rapids"])


@pytest.fixture
def bench() -> Bench:
    bench = Bench(MACHINE)
    for path in ("a", "b", "a/mon_groups/m", "a/mon_groups/n"):
        bench.mkdir(path)
    return bench


def test_a_group_takes_cpus_from_the_others(bench: Bench) -> None:
    bench.write("a/cpus", "3\n")
    bench.write("b/cpus_list", "1-2\n")
    assert [bench.read(f"{group}cpus_list") for group in ("a/", "b/", "")] == ["0\n", "1-2\n", "3\n"]
    assert [bench.read(f"{group}cpus") for group in ("a/", "b/", "")] == ["1\n", "6\n", "8\n"]


def test_dropped_cpus_return_to_the_default_group(bench: Bench) -> None:
    bench.write("a/cpus", "f\n")
    bench.write("a/cpus", "\n")
    assert bench.read("cpus") == "f\n"


def test_the_default_group_cannot_drop_cpus(bench: Bench) -> None:
    with pytest.raises(OSError):
        bench.write("cpus_list", "0\n")
    assert bench.status == "Can't drop CPUs from default group\n"


def test_a_monitoring_group_has_only_its_parents_cpus(bench: Bench) -> None:
    bench.write("a/cpus", "3\n")
    bench.write("a/mon_groups/m/cpus", "3\n")
    bench.write("a/mon_groups/n/cpus", "2\n")
    assert bench.read("a/mon_groups/m/cpus") == "1\n"
    with pytest.raises(OSError):
        bench.write("a/mon_groups/m/cpus", "4\n")
    assert bench.status == "Can only add CPUs to mongroup that belong to parent\n"
    bench.write("b/cpus", "1\n")
    assert bench.read("a/mon_groups/m/cpus") == "0\n"
    bench.write("a/cpus", "6\n")
    assert bench.read("a/mon_groups/n/cpus") == "0\n"


def test_an_offline_cpu_cannot_be_assigned(bench: Bench) -> None:
    bench.machine.set_online(3, False)
    with pytest.raises(OSError) as refused:
        bench.write("a/cpus_list", "3\n")
    assert (refused.value.errno, bench.status) == (errno.EINVAL, "Can only assign online CPUs\n")


def test_a_cpu_leaves_its_group_when_it_goes_offline(bench: Bench) -> None:
    bench.write("a/cpus", "8\n")
    bench.machine.set_online(3, False)
    bench.machine.set_online(3, True)
    assert (bench.read("a/cpus_list"), bench.read("cpus_list")) == ("\n", "0-3\n")


@pytest.mark.parametrize(("machine", "said"), [(MACHINE, 2), (NEWER, 1)])
def test_the_newer_kernel_forgets_the_message_before(machine: str, said: int) -> None:
    bench = Bench(machine)
    for _ in range(2):
        with pytest.raises(OSError):
            bench.write("cpus", "xyz\n")
    assert bench.status == "Bad CPU list/mask\n" * said


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sets(st.integers(0, 3))), max_size=8))
def test_every_cpu_is_in_exactly_one_control_group(writes: list[tuple[str, set[int]]]) -> None:
    bench = Bench(MACHINE)
    for name in ("a", "b"):
        bench.mkdir(name)
    for name, cpus in writes:
        bench.write(f"{name}/cpus_list", ",".join(map(str, cpus)) + "\n")
    masks = [int(bench.read(f"{group}cpus"), 16) for group in ("", "a/", "b/")]
    assert sum(masks) == 0xF and masks[0] | masks[1] | masks[2] == 0xF
