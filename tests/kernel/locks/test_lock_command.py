# SPDX-License-Identifier: Apache-2.0
"""``vmqos lock`` on processors that a kernel can lock cache on, and on one that it can't."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.locks.conftest import Command, Mapper, masks
from tests.kernel.pytest_guest import GuestMachine
from vmqos.pseudo_lock import lifecycle
from vmqos.pseudo_lock.choose_ways import Choice
from vmqos.pseudo_lock.regions import Host
from vmqos.resctrl import exceptions
from vmqos.resctrl.bitmask import CapacityBitmask

pytestmark = [pytest.mark.guest(machines=("broadwell", "goldmont")), pytest.mark.feature("lock")]

SIZE = 262144


@pytest.fixture
def cache(root: Path) -> str:
    """The level of the cache that can be locked here."""
    return (root / "schemata").read_text().strip()[:2]


@pytest.fixture
def create(cache: str) -> tuple[str, ...]:
    return ("create", "table", "--cache", f"{cache}:1", "--size", "256K")


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def usage(root: Path, cache: str) -> str:
    """How the kernel says that cache 1 is used, a letter a way."""
    return (root / f"info/{cache}/bit_usage").read_text().strip().split(";")[1].partition("=")[2]


def test_a_lock_ends_in_pseudo_locked_with_a_device_that_can_be_mapped(
    root: Path, command: Command, create: tuple[str, ...], cache: str, mapper: Mapper
) -> None:
    before = masks(root)
    made = command.read(*create)
    assert (root / "vmqos.lock-table/mode").read_text() == "pseudo-locked\n"
    assert made["state"] == "pseudo-locked" and made["size"] >= SIZE
    assert (root / "vmqos.lock-table/size").read_text().strip() == f"{cache}:1={made['size']}"
    assert usage(root, cache).endswith("P") and usage(root, cache).count("P") == 1
    assert made["device"] == "/dev/pseudo_lock/vmqos.lock-table"
    assert stat.S_ISCHR(Path(made["device"]).stat().st_mode)
    first = mapper(made["device"], SIZE, made["cpus"])
    assert said(first) == f"mapped: zeros, {SIZE} bytes read back"
    assert f"{made['device']}\n" in Path(f"/proc/{first.pid}/maps").read_text()
    (user,) = command.read("show", "table")["users"]
    assert user["pid"] == first.pid
    assert f"in use by process {first.pid}" in command.refusal("remove", "table")
    assert (root / "vmqos.lock-table/mode").read_text() == "pseudo-locked\n"
    first.communicate()
    removed = command("remove", "table")
    assert removed.returncode == 0
    assert "P" not in usage(root, cache)
    assert not Path(made["device"]).exists()
    assert masks(root) == before


def test_only_who_is_confined_to_the_caches_cpus_maps_it_and_each_mapping_empties_it(
    root: Path, command: Command, create: tuple[str, ...], mapper: Mapper
) -> None:
    made = command.read(*create)
    device = made["device"]
    assert said(mapper(device, SIZE)) == "refused: Invalid argument"
    assert said(mapper(device, SIZE, "0")) == "refused: Invalid argument"
    assert said(mapper(device, made["size"] + 4096, made["cpus"])) == "refused: No space left on device"
    for _ in range(2):
        process = mapper(device, SIZE, made["cpus"])
        assert said(process) == f"mapped: zeros, {SIZE} bytes read back"
        process.communicate()


def test_the_cpus_of_a_cache_take_one_region_and_those_of_another_take_theirs(
    root: Path, command: Command, create: tuple[str, ...], cache: str
) -> None:
    command.read(*create)
    before = masks(root)
    assert "have a locked region already, table" in command.refusal("create", "b", *create[2:])
    assert masks(root) == before
    other = command.read("create", "b", "--cache", f"{cache}:0", "--size", "4096")
    assert other["state"] == "pseudo-locked" and Path(other["device"]).exists()
    assert [one["name"] for one in command.read("list")] == ["b", "table"]


@pytest.fixture
def wrong_choice(monkeypatch: pytest.MonkeyPatch, root: Path) -> Iterator[None]:
    """Has the command lock a way that somebody has: what a group that comes at the wrong moment would do."""
    (root / "late").mkdir()
    choice = Choice(CapacityBitmask(0x1), {"": CapacityBitmask(0xC)})
    monkeypatch.setattr(lifecycle, "choose", lambda *_: choice)
    yield
    (root / "late").rmdir()


@pytest.mark.usefixtures("wrong_choice")
def test_where_the_kernel_refuses_nothing_is_left_behind_and_its_reason_is_told(root: Path, cache: str) -> None:
    before = masks(root)
    with pytest.raises(exceptions.MasksOverlap, match="Overlaps with other group"):
        lifecycle.create(Host(str(root)), lifecycle.Wanted("table", cache, 1, SIZE))
    assert masks(root) == before


@pytest.mark.long
@pytest.mark.feature("lock", kept=False)
@pytest.mark.guest(machines=("cascade-lake",))
def test_another_processor_says_that_it_can_not_and_nothing_is_written(
    root: Path, command: Command, guest_machine: GuestMachine
) -> None:
    status = (root / "info/last_cmd_status").read_text()
    told = command.refusal("create", "table", "--cache", "L3:0", "--size", "256K")
    assert "Broadwell-EP" in told and "Goldmont" in told and "this one is " in told
    assert (root / "info/last_cmd_status").read_text() == status
    assert command.read("list") == []
