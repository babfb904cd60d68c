# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.serve.test_vms import GROUP, snapshot, with_record
from vmqos.agent.act.mbm_counters import CounterTurns, assign_counters, counted_groups
from vmqos.agent.act.move_tasks import TaskGroup
from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    info = tmp_path / "info" / "L3_MON"
    info.mkdir(parents=True)
    (info / "mbm_assign_mode").write_text("[mbm_event]\ndefault\n")
    (info / "available_mbm_cntrs").write_text("0=1;1=1\n")
    (tmp_path / GROUP).mkdir()
    (tmp_path / GROUP / "mbm_L3_assignments").write_text("mbm_total_bytes:0=_;1=e\nmbm_local_bytes:0=_;1=e\n")
    return tmp_path


def test_a_vm_gets_what_counters_are_free_and_no_more(root: Path) -> None:
    assert assign_counters(Filesystem(str(root)), snapshot()) == 1
    assert (root / GROUP / "mbm_L3_assignments").read_text().startswith("mbm_total_bytes:0=e\n")


def test_nothing_is_written_where_no_counter_is_free(root: Path) -> None:
    (root / "info" / "L3_MON" / "available_mbm_cntrs").write_text("0=0;1=0\n")
    before = (root / GROUP / "mbm_L3_assignments").read_text()
    assert assign_counters(Filesystem(str(root)), snapshot()) == 0
    assert (root / GROUP / "mbm_L3_assignments").read_text() == before


def test_nothing_is_done_where_every_group_is_counted(root: Path) -> None:
    (root / "info" / "L3_MON" / "mbm_assign_mode").write_text("mbm_event\n[default]\n")
    assert assign_counters(Filesystem(str(root)), snapshot()) == 0


def test_a_group_that_is_gone_is_passed_over(root: Path) -> None:
    (root / GROUP / "mbm_L3_assignments").unlink()
    assert assign_counters(Filesystem(str(root)), snapshot()) == 0


def test_a_mode_without_a_count_is_told_in_the_log_and_harms_nothing(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "info" / "L3_MON" / "available_mbm_cntrs").unlink()
    assert assign_counters(Filesystem(str(root)), snapshot()) == 0
    assert "available_mbm_cntrs" in caplog.text


def test_a_vm_that_nobody_monitors_is_left_alone(root: Path) -> None:
    assert assign_counters(Filesystem(str(root)), with_record(snapshot(), unmonitored="no RMID")) == 0


VMS = tuple(f"0000000{number}-0000-4000-8000-000000000000" for number in range(5))
EVENTS = ("mbm_total_bytes", "mbm_local_bytes")


class Kernel(Filesystem):
    """Gives out the counters of two caches as Linux does in the mode ``mbm_event``, and says what was done.

    :param root: an empty directory.
    :param counters: how many counters each cache has.
    """

    def __init__(self, root: Path, counters: int) -> None:
        super().__init__(str(root))
        self.free = {0: counters, 1: counters}
        self.holds: dict[str, set[tuple[str, int]]] = {}
        self.done: list[str] = []
        (root / "info" / "L3_MON").mkdir(parents=True)
        (root / "info" / "L3_MON" / "mbm_assign_mode").write_text("[mbm_event]\ndefault\n")

    def make(self, directory: str) -> str:
        """Make a group, which gets the counters that are free."""
        self.holds[directory] = set()
        for event in EVENTS:
            for cache, free in self.free.items():
                if free:
                    self._assign(directory, event, cache)
        return directory

    def counted(self) -> set[str]:
        """The groups that have all their counters."""
        return {directory for directory, held in self.holds.items() if len(held) == 4}

    def read(self, *relative: str) -> str:
        name = relative[-1]
        self.done.append(f"read {'/'.join(filter(None, relative))}")
        if name == "available_mbm_cntrs":
            return ";".join(f"{cache}={free}" for cache, free in self.free.items()) + "\n"
        if name == "mbm_L3_assignments":
            if relative[0] not in self.holds:
                raise exceptions.Vanished(path=relative[0])
            states = {(event, cache): "e" for event, cache in self.holds[relative[0]]}
            return "".join(
                f"{event}:0={states.get((event, 0), '_')};1={states.get((event, 1), '_')}\n" for event in EVENTS
            )
        return super().read(*relative)

    def write(self, relative: str, text: str) -> None:
        self.done.append(f"write {relative} {text}")
        event, _, rest = text.partition(":")
        cache, _, state = rest.partition("=")
        directory = relative.removesuffix("/mbm_L3_assignments")
        if directory not in self.holds:
            raise exceptions.Vanished(path=relative)
        if state == "e":
            if not self.free[int(cache)]:
                raise exceptions.CommandFailed(
                    action="write", path=relative, data=text, errno_name="ENOSPC", last_cmd_status="Failed to allocate"
                )
            self._assign(directory, event, int(cache))
        elif (event, int(cache)) in self.holds[directory]:
            self.holds[directory].remove((event, int(cache)))
            self.free[int(cache)] += 1

    def _assign(self, directory: str, event: str, cache: int) -> None:
        if (event, cache) not in self.holds[directory]:
            self.holds[directory].add((event, cache))
            self.free[cache] -= 1


class Turns:
    """VMs that take turns, and a clock that the test turns."""

    def __init__(self, kernel: Kernel, length: float = 10.0) -> None:
        self.kernel = kernel
        self.now = 0.0
        self.groups: dict[str, tuple[str, ...]] = {}
        self._turns = CounterTurns(kernel, length, lambda: self.groups, lambda: self.now)

    def add(self, *uuids: str) -> None:
        """Start VMs."""
        for uuid in uuids:
            self.groups[uuid] = (self.kernel.make(f"mon_groups/vmqos.{uuid}"),)

    def counted(self) -> set[str]:
        """The VMs that have their counters."""
        found = self.kernel.counted()
        return {uuid for uuid, groups in self.groups.items() if found.issuperset(groups)}

    def sweep(self, seconds: float = 2.0, times: int = 1) -> None:
        """Sweeps that find out who has counters, each after so many seconds."""
        for _ in range(times):
            self.now += seconds
            self._turns.after_sweep(self.counted() != self.groups.keys())

    def turn(self) -> set[str]:
        """Sweep until a turn is over; who has the next one."""
        self.sweep(times=5)
        return self.counted()


def test_vms_take_turns_and_other_groups_keep_their_counters(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, 8)
    kernel.make("")
    kernel.make("mon_groups/theirs")
    turns = Turns(kernel)
    turns.add(*VMS)
    assert turns.counted() == set(VMS[:2])
    had = [turns.turn() for _ in range(5)]
    assert had == [set(VMS[2:4]), {VMS[4], VMS[0]}, set(VMS[1:3]), set(VMS[3:5]), set(VMS[:2])]
    assert {"", "mon_groups/theirs"} <= kernel.counted()
    assert not [line for line in kernel.done if line.startswith("write mbm_L3") or "theirs" in line]
    assert kernel.free == {0: 0, 1: 0}


def test_a_turn_lasts_for_its_time_and_for_enough_sweeps(tmp_path: Path) -> None:
    turns = Turns(Kernel(tmp_path, 2), length=1.0)
    turns.add(*VMS[:2])
    turns.sweep(1.0, times=4)
    assert turns.counted() == {VMS[0]}
    turns.sweep(1.0)
    assert turns.counted() == {VMS[1]}
    turns.sweep(60.0, times=2)
    assert turns.counted() == {VMS[1]}
    turns.sweep(60.0)
    assert turns.counted() == {VMS[0]}


@pytest.mark.parametrize(("counters", "length"), [(10, 10.0), (4, 0.0)])
def test_nothing_is_read_or_written_where_counters_suffice_or_there_are_no_turns(
    tmp_path: Path, counters: int, length: float
) -> None:
    kernel = Kernel(tmp_path, counters)
    turns = Turns(kernel, length)
    turns.add(*VMS)
    turns.sweep(times=20)
    assert kernel.done == []


def test_a_vm_with_two_groups_is_counted_in_both_or_in_none(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, 4)
    turns = Turns(kernel)
    turns.add(*VMS[:2])
    turns.groups[VMS[2]] = kernel.make(f"vmqos.{VMS[2]}"), kernel.make(f"mon_groups/vmqos.{VMS[2]}")
    assert [turns.turn() for _ in range(3)] == [{VMS[2]}, set(VMS[:2]), {VMS[2]}]


def test_a_counter_that_another_program_takes_is_no_longer_given_and_a_group_that_went_takes_no_part(
    tmp_path: Path,
) -> None:
    kernel = Kernel(tmp_path, 4)
    turns = Turns(kernel)
    turns.add(*VMS[:4])
    assert turns.turn() == set(VMS[2:4])
    del kernel.holds[turns.groups[VMS[0]][0]]
    for event, cache in list(kernel.holds[turns.groups[VMS[2]][0]]):
        kernel.holds[turns.groups[VMS[2]][0]].remove((event, cache))
        kernel.free[cache] += 1
    kernel.make("mon_groups/theirs")
    assert [turns.turn() for _ in range(3)] == [{VMS[1]}, {VMS[2]}, {VMS[3]}]
    assert "mon_groups/theirs" in kernel.counted()


def test_half_of_a_groups_counters_are_not_kept_from_the_vm_whose_turn_it_is(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, 3)
    turns = Turns(kernel)
    turns.add(*VMS[:2])
    assert len(kernel.holds[turns.groups[VMS[1]][0]]) == 2
    assert turns.turn() == {VMS[1]}
    assert kernel.holds[turns.groups[VMS[0]][0]] == set()


def test_while_the_lock_is_held_only_groups_are_read_whose_counters_are_taken_or_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path, 4)
    turns = Turns(kernel)
    turns.add(*VMS)
    lock, done = kernel.lock, list[str]()

    @contextlib.contextmanager
    def watched(exclusive: bool, timeout: float | None = None) -> Iterator[None]:
        with lock(exclusive, timeout):
            before = len(kernel.done)
            yield
            done.extend(kernel.done[before:])

    monkeypatch.setattr(Kernel, "lock", lambda self, **how: watched(**how))
    assert turns.turn() == set(VMS[2:4])
    read = {line.split("vmqos.")[1].split("/")[0] for line in done if line.startswith("read")}
    assert read == set(VMS[:4]), "the host may have a thousand others"


def test_a_counter_that_a_pass_gives_meanwhile_is_left_and_the_next_turn_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path, 4)
    turns = Turns(kernel)
    turns.add(*VMS[:4])
    lock = kernel.lock

    def meddle(self: Kernel, **how: Any) -> contextlib.AbstractContextManager[None]:
        # A pass takes the counters of the first VM and gives them to one that has just come.
        monkeypatch.setattr(Kernel, "lock", lambda self, **how: lock(**how))
        for event in EVENTS:
            for cache in (0, 1):
                kernel.write(f"{turns.groups[VMS[0]][0]}/mbm_L3_assignments", f"{event}:{cache}=_")
        turns.add(VMS[4])
        return lock(**how)

    monkeypatch.setattr(Kernel, "lock", meddle)
    assert turns.turn() == {VMS[2], VMS[4]}
    assert turns.turn() == set(VMS[:2])


def test_while_another_program_has_the_lock_the_turn_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmqos.agent.act.mbm_counters.LOCK_PATIENCE", 0.01)
    turns = Turns(Kernel(tmp_path, 2))
    turns.add(*VMS[:2])
    with Filesystem(str(tmp_path)).lock(exclusive=False):
        assert turns.turn() == {VMS[0]}
    turns.sweep()
    assert turns.counted() == {VMS[1]}


def test_a_kernel_that_tells_no_count_is_told_in_the_log_once_a_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turns = Turns(Kernel(tmp_path, 2))
    turns.add(*VMS[:2])
    (tmp_path / "info" / "L3_MON" / "mbm_assign_mode").unlink()
    (tmp_path / "info" / "L3_MON" / "mbm_assign_mode").mkdir()
    turns.sweep(times=11)
    assert caplog.text.count("no turn of the hardware counters") == 2


def test_vms_are_counted_in_their_groups_those_with_a_control_group_first() -> None:
    known = snapshot()
    (record,) = known.vms.values()
    rest = TaskGroup("", GROUP)
    own = replace(record, tasks=replace(record.tasks, rest=rest))
    plain = replace(record, tasks=replace(record.tasks, target=TaskGroup("", "vmqos.plain"), rest=None))
    untold, unplaced = replace(plain, unmonitored="no RMID"), replace(plain, tasks=None)
    vms = {"plain": plain, "own": own, "untold": untold, "unplaced": unplaced}
    assert list(counted_groups(replace(known, vms=vms)).items()) == [
        ("own", (GROUP, f"mon_groups/{GROUP}")),
        ("plain", ("mon_groups/vmqos.plain",)),
    ]
