# SPDX-License-Identifier: Apache-2.0
"""The sweep on a mounted resctrl, without the agent and without libvirt."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.conftest import WaitFor
from tests.functional.telemetry.conftest import Faulty
from tests.functional.telemetry.faulty_simulator import BEGIN, STEP
from tests.functional.telemetry.unprivileged import as_nobody
from tools.lab import mounts
from tools.lab.simulator import Simulator
from vmqos.resctrl import exceptions
from vmqos.telemetry import EVENTS, Missing, Reading, Sweeper, rates

OCCUPANCY, TOTAL, LOCAL = EVENTS
VM = "00000000-0000-4000-8000-{:012d}"


def vm_group(root: Path, number: int, control: str = "") -> Path:
    """Make a VM's monitoring group."""
    group = root / control / "mon_groups" / f"vmqos.{VM.format(number)}"
    group.mkdir()
    return group


@pytest.fixture
def sweeper(simulator: Simulator) -> Iterator[Sweeper]:
    with Sweeper(str(simulator.root)) as made:
        yield made


IDLE = "import time; print('ready', flush=True); time.sleep(600)"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def burn(seconds: float) -> subprocess.Popen[bytes]:
    """A process that keeps a CPU busy."""
    code = f"import time\nuntil = time.monotonic() + {seconds}\nwhile time.monotonic() < until: sum(range(1000))"
    return subprocess.Popen([sys.executable, "-c", code])


def test_counters_follow_the_vm_that_works(simulator: Simulator, sweeper: Sweeper, wait_for: WaitFor) -> None:
    busy, idle = vm_group(simulator.root, 1), vm_group(simulator.root, 2)
    with burn(120) as worker, subprocess.Popen([sys.executable, "-c", IDLE], stdout=subprocess.PIPE) as sleeper:
        try:
            # Its start takes CPU time, and with it the cache.
            assert sleeper.stdout is not None and sleeper.stdout.readline() == b"ready\n"
            wait_for(lambda: _state(sleeper.pid) == "S", "the idle one sleeping")
            (busy / "tasks").write_text(f"{worker.pid}\n")
            (idle / "tasks").write_text(f"{sleeper.pid}\n")
            before = sweeper.sweep()
            wait_for(lambda: (sweeper.sweep().vms[VM.format(1)].totals[TOTAL].value or 0) > 1 << 20, "traffic")
            after = sweeper.sweep()
        finally:
            worker.kill()
            sleeper.kill()
    found = rates(before, after)
    working = found[VM.format(1)]
    assert working.total.value is not None and working.local.value is not None and working.remote.value is not None
    assert working.total.value > 0
    # The files are read one after the other, and the worker goes on meanwhile.
    assert working.remote.value == pytest.approx(max(0.0, working.total.value - working.local.value))
    assert found[VM.format(2)].total == Reading(0.0)
    assert after.vms[VM.format(1)].totals[OCCUPANCY].value
    assert after.vms[VM.format(2)].totals[OCCUPANCY] == Reading(0)


def test_a_vm_in_two_control_groups_is_the_sum_of_both_and_begins_anew_with_either(
    simulator: Simulator, sweeper: Sweeper, wait_for: WaitFor
) -> None:
    uuid = VM.format(1)
    rest, own = vm_group(simulator.root, 1), simulator.root / f"vmqos.{uuid}"
    alone = sweeper.sweep().vms[uuid]
    own.mkdir()
    with burn(120) as first, burn(120) as second:
        try:
            (own / "tasks").write_text(f"{first.pid}\n")
            (rest / "tasks").write_text(f"{second.pid}\n")
            wait_for(lambda: all(_moved(group) > 1 << 20 for group in (own, rest)), "traffic of both")
        finally:
            first.kill()
            second.kill()
    for process in (first, second):
        process.wait()
    sweeper.sweep()
    both = sweeper.sweep().vms[uuid]
    for event in (TOTAL, LOCAL):
        files = [path for group in (own, rest) for path in (group / "mon_data").glob(f"*/{event}")]
        assert both.totals[event] == Reading(sum(int(path.read_text()) for path in files))
    assert (both.group, both.policy) == (own.name, "exclusive")
    rest.rmdir()
    after = sweeper.sweep().vms[uuid]
    assert len({alone.generation, both.generation, after.generation}) == 3
    assert after.totals[TOTAL].value == _moved(own)


def _moved(group: Path) -> int:
    """What a group moved of every cache: on a busy machine, a process may run on one of them alone."""
    return sum(int(path.read_text()) for path in (group / "mon_data").glob(f"*/{TOTAL}"))


@pytest.mark.parametrize("word", ["Unavailable", "Error"])
def test_an_injected_word_never_becomes_0_or_a_spike(faulty: Faulty, word: str) -> None:
    group = vm_group(faulty.root, 1)
    healthy = vm_group(faulty.root, 2)
    uuid, other = VM.format(1), VM.format(2)
    seen = []
    with Sweeper(str(faulty.root)) as sweeper:
        for turn in range(9):
            if turn == 3:
                faulty.say(group, word, 0, 1)
            if turn == 6:
                faulty.recover()
            time.sleep(0.05)
            seen.append(sweeper.sweep())
    expected = Reading(None, Missing(word.lower()))
    for turn, snapshot in enumerate(seen):
        total = snapshot.vms[uuid].totals[TOTAL]
        assert total == expected if 3 <= turn < 6 else (total.value or 0) >= 2 * BEGIN, turn
        assert snapshot.vms[other].totals[TOTAL].value, turn
    found = [rates(before, after) for before, after in itertools.pairwise(seen)]
    reasons = [found[turn][uuid].total.missing for turn in range(8)]
    assert reasons == [None, None, *[Missing(word.lower())] * 3, Missing.NO_PREVIOUS, None, None]
    # Each turn counts a few steps; what was there at the beginning would be a million of them.
    fastest = max(one[uuid].total.value or 0 for one in found)
    assert 0 < fastest < 1000 * STEP / 0.05
    assert all(one[other].total.missing is None for one in found)
    assert healthy.exists()


def test_a_part_that_is_missing_leaves_the_other_caches_visible(faulty: Faulty) -> None:
    faulty.say(vm_group(faulty.root, 1), "Unavailable", 1)
    with Sweeper(str(faulty.root)) as sweeper:
        vm = sweeper.sweep().vms[VM.format(1)]
    assert vm.totals[TOTAL] == Reading(None, Missing.UNAVAILABLE)
    assert vm.caches[0][TOTAL].value is not None
    assert vm.caches[1][TOTAL] == Reading(None, Missing.UNAVAILABLE)


def test_a_group_made_anew_is_another_generation_and_no_rate_is_taken_across(
    simulator: Simulator, sweeper: Sweeper
) -> None:
    group = vm_group(simulator.root, 1)
    before = sweeper.sweep()
    group.rmdir()
    group.mkdir()
    after = sweeper.sweep()
    uuid = VM.format(1)
    assert after.vms[uuid].totals[TOTAL] == Reading(0)
    assert after.vms[uuid].generation != before.vms[uuid].generation
    assert rates(before, after)[uuid].total == Reading(None, Missing.NO_PREVIOUS)


def test_a_group_that_moves_into_another_class_stays_the_same_generation(
    simulator: Simulator, sweeper: Sweeper
) -> None:
    group, uuid = vm_group(simulator.root, 1), VM.format(1)
    before = sweeper.sweep()
    (simulator.root / "vmqos.shared-ways2").mkdir()
    group.rename(simulator.root / "vmqos.shared-ways2" / "mon_groups" / group.name)
    after = sweeper.sweep()
    assert (before.vms[uuid].policy, after.vms[uuid].policy) == (None, "shared")
    assert after.vms[uuid].generation == before.vms[uuid].generation
    assert rates(before, after)[uuid].total == Reading(0.0)


def test_a_mount_made_anew_makes_every_group_another_generation(simulator: Simulator) -> None:
    generations = []
    with Sweeper(str(simulator.root), keep_open=False) as sweeper:
        for _ in range(2):
            vm_group(simulator.root, 1)
            generations.append(sweeper.sweep().vms[VM.format(1)].generation)
            simulator.stop()
            with pytest.raises(exceptions.MountError):
                sweeper.sweep()
            simulator.start()
    assert len(set(generations)) == 2


def test_open_files_keep_umount_away_and_a_lazy_one_completes_with_the_next_look(
    simulator: Simulator, wait_for: WaitFor
) -> None:
    vm_group(simulator.root, 1)
    with Sweeper(str(simulator.root)) as sweeper:
        sweeper.sweep()
        assert subprocess.run(["umount", str(simulator.root)], capture_output=True, check=False).returncode != 0
        subprocess.run(["umount", "-l", str(simulator.root)], check=True)
        time.sleep(0.2)
        assert simulator.pid is not None
        with pytest.raises(exceptions.MountError):
            sweeper.sweep()
        wait_for(lambda: simulator.pid is None, "the simulator being let go")


def test_without_kept_files_umount_works_at_any_time(simulator: Simulator, wait_for: WaitFor) -> None:
    vm_group(simulator.root, 1)
    with Sweeper(str(simulator.root), keep_open=False) as sweeper:
        sweeper.sweep()
        # For a moment it is busy while any process of the machine walks over it; files that are kept open last.
        mounts.unmount(simulator.root)
        wait_for(lambda: simulator.pid is None, "the simulator being let go")


def test_anybody_may_read_what_the_agent_makes_and_is_told_what_not(simulator: Simulator) -> None:
    simulator.root.parent.chmod(0o755)
    own = simulator.root / f"vmqos.{VM.format(1)}"
    own.mkdir(0o755)
    (simulator.root / "schemata").write_text("L3:0=7fc;1=7fc\n")
    (own / "schemata").write_text("L3:0=3;1=3\n")
    closed = simulator.root / "mon_groups" / f"vmqos.{VM.format(2)}"
    closed.mkdir(0o700)
    assert as_nobody(simulator.root) == [
        f"{VM.format(1)} 0 0 0 4",
        f"{VM.format(2)} unreadable unreadable unreadable 0",
    ]


def test_a_resctrl_that_may_not_be_looked_into_is_an_error_that_says_so(simulator: Simulator) -> None:
    simulator.root.parent.chmod(0o755)
    (simulator.root / "mon_data").chmod(0o700)
    assert as_nobody(simulator.root) == ["Unreadable"]


@pytest.mark.parametrize("simulator", ["sapphire-rapids"], indirect=True)
@pytest.mark.parametrize("limit", ["64", "300", "4096"])
def test_200_vms_are_read_however_few_files_may_be_open(simulator: Simulator, limit: str) -> None:
    simulator.root.parent.chmod(0o755)
    for number in range(200):
        vm_group(simulator.root, number)
    found = as_nobody(simulator.root, "prlimit", f"--nofile={limit}:{limit}")
    assert len(found) == 200
    assert {line.split(maxsplit=1)[1] for line in found} == {"0 0 0 0"}


def test_an_unmounted_resctrl_is_named_with_what_mends_it(simulator: Simulator) -> None:
    root = str(simulator.root)
    simulator.stop()
    with Sweeper(root) as sweeper, pytest.raises(exceptions.MountError, match=os.path.basename(root)):
        sweeper.sweep()


@pytest.mark.parametrize("simulator", ["broadwell"], indirect=True)
def test_a_pseudo_locked_group_keeps_nobody_from_reading_the_others(simulator: Simulator) -> None:
    simulator.root.parent.chmod(0o755)
    vm_group(simulator.root, 1)
    (simulator.root / "vmqos.lock-table").mkdir()
    (simulator.root / "vmqos.lock-table/mode").write_text("pseudo-locksetup\n")
    assert [line.split()[0] for line in as_nobody(simulator.root)] == [VM.format(1)]
    (simulator.root / "schemata").write_text("L3:0=ffffc\n")
    (simulator.root / "vmqos.lock-table/schemata").write_text("L3:0=3\n")
    assert [line.split()[0] for line in as_nobody(simulator.root)] == [VM.format(1)]
