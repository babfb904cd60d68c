# SPDX-License-Identifier: Apache-2.0
"""The plugin: its pure parts by a program of its own, the rest by what a kernel in a guest makes of it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.functional.resctrl_client.mounted import retry
from tests.kernel import limbo
from tests.kernel.inside import msr
from tests.kernel.lab import recipes
from tests.kernel.lab.errors import GuestDied
from tests.kernel.pytest_guest import GuestMachine, MountResctrl, Run
from vmqos.resctrl.filesystem import Filesystem

NEEDS_QEMU = ("plugin.c", "watch.c")
SELFTEST = [recipes.PLUGIN / "selftest" / name for name in ("selftest.c", "caches.c", "performance.c")]
TESTS_IN_C = [name for path in SELFTEST for name in re.findall(r"^TEST\((\w+)\)", path.read_text(), re.MULTILINE)]
in_guests = pytest.mark.guest(machines=("cascade-lake", "sapphire-rapids", "milan"))


@pytest.fixture(scope="module")
def selftest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("plugin") / "selftest"
    pure = [str(path) for path in sorted(recipes.PLUGIN.glob("*.c")) if path.name not in NEEDS_QEMU]
    flags = ("-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover")
    subprocess.run(["gcc", *flags, "-o", str(program), *map(str, SELFTEST), *pure, "-lm"], check=True)
    return program


@pytest.mark.parametrize("name", TESTS_IN_C)
def test_in_c(selftest: Path, name: str) -> None:
    done = subprocess.run([selftest, name], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"ok {name}"], done.stdout + done.stderr


@pytest.mark.parametrize(
    ("plugin", "complaint"),
    [
        ({"l3way": 3}, "l3way=3: there is no such argument; help=on lists them"),
        ({"l3ways": 99}, "l3ways=99: must be 1 to 32"),
        ({"sockets": 3}, "sockets= does not divide the number of vCPUs (4 vCPUs)"),
        ({"log": "/nonexistent/log"}, "log=/nonexistent/log: No such file or directory"),
    ],
)
def test_bad_arguments_end_qemu_with_the_reason(guest: Run, plugin: dict[str, object], complaint: str) -> None:
    with pytest.raises(GuestDied, match=re.escape(complaint)):
        guest.run("cascade-lake", "6.12", "true", plugin=plugin)


def test_the_plugin_explains_its_arguments(guest: Run) -> None:
    with pytest.raises(GuestDied, match=r"l3shared +1536 .* L3 ways that devices fill too"):
        guest.run("cascade-lake", "6.12", "true", plugin={"help": "on"})


@pytest.mark.timeout(1800)
def test_the_log_has_what_the_kernel_wrote(guest: Run) -> None:
    script = """
        mount -t resctrl resctrl /sys/fs/resctrl
        python3 -c 'from tests.kernel.inside import msr; msr.mark(1)'
        mkdir /sys/fs/resctrl/a
        echo 'L3:1=7' >/sys/fs/resctrl/a/schemata
        echo 'MB:1=50' >/sys/fs/resctrl/a/schemata
    """
    result = guest.run("cascade-lake", "newest", script)
    written = [(write.register, write.value) for write in result.msr if write.cpu in (2, 3)]
    assert (msr.IA32_L3_QOS_MASK_0 + 1, 0x7) in written
    assert (msr.IA32_L2_QOS_EXT_BW_THRTL_0 + 1, 50) in written
    mark = next(write.time for write in result.msr if write.register == msr.MARK)
    assert mark < next(write.time for write in result.msr if write.value == 0x7)


@pytest.fixture
def root(mount_resctrl: MountResctrl) -> Iterator[Path]:
    """resctrl, mounted."""
    mounted = mount_resctrl()
    with limbo.that_ends(Filesystem(str(mounted))):
        yield mounted


@in_guests
def test_a_mask_reaches_the_register_of_its_cache(guest_machine: GuestMachine, root: Path) -> None:
    _make(root / "a")
    (root / "a/schemata").write_text("L3:0=7\n")
    last = guest_machine.machine.cpus - 1
    assert msr.read(0, msr.IA32_L3_QOS_MASK_0 + 1) == 0x7
    assert msr.read(last, msr.IA32_L3_QOS_MASK_0 + 1) == (1 << guest_machine.ways) - 1


@in_guests
def test_traffic_is_counted_for_the_group_and_cache_where_it_is_made(guest_machine: GuestMachine, root: Path) -> None:
    last = guest_machine.machine.cpus - 1
    with _busy(root / "a", 0), _busy(root / "b", last):
        before = _traffic(root)
        time.sleep(2)
        after = _traffic(root)
    grown = {where: after[where] - before[where] for where in after}
    other = guest_machine.machine.sockets - 1
    assert grown["a", 0] > 1e6, grown
    assert grown["b", other] > 1e6, grown
    assert (grown["a", other], grown["b", 0]) == (0, 0), grown


@in_guests
def test_without_a_task_there_is_no_traffic(root: Path) -> None:
    with _busy(root / "a", 0):
        pass
    before = _traffic(root)["a", 0]
    time.sleep(1)
    assert _traffic(root)["a", 0] == before > 0


@in_guests
def test_occupancy_stays_within_the_groups_ways(guest_machine: GuestMachine, root: Path) -> None:
    with _busy(root / "a", 0):
        (root / "a/schemata").write_text("L3:0=7\n")
        time.sleep(2)
        held = int((root / "a/mon_data/mon_L3_00/llc_occupancy").read_text())
    size = int(Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip("K\n")) << 10
    assert 0 < held <= size * 3 // guest_machine.ways


@in_guests
def test_counters_say_what_they_are_told_to(root: Path) -> None:
    counter = root / "mon_data/mon_L3_00/mbm_total_bytes"
    before = int(counter.read_text())
    msr.add_traffic(0, 0, 1 << 32)
    assert int(counter.read_text()) >= before + (1 << 32)
    msr.say_unavailable(0, 0)
    assert counter.read_text() == "Unavailable\n"
    assert (root / "mon_data/mon_L3_01/mbm_total_bytes").read_text() != "Unavailable\n"
    msr.say_error(0, 0)
    assert counter.read_text() == "Error\n"
    msr.say_numbers(0, 0)
    int(counter.read_text())


def _make(group: Path) -> None:
    """Make a group, once an RMID is free: those of an earlier test may be in limbo for a second or two (EBUSY)."""
    retry(group.mkdir, OSError)


@contextmanager
def _busy(group: Path, cpu: int) -> Iterator[None]:
    """A task of a new group that does nothing but run, on one CPU."""
    _make(group)
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as task:
        try:
            os.sched_setaffinity(task.pid, {cpu})
            (group / "tasks").write_text(str(task.pid))
            time.sleep(0.5)
            yield
        finally:
            task.kill()


def _traffic(root: Path) -> dict[tuple[str, int], int]:
    """Bytes by group and cache."""
    return {
        (group, int(domain.name.rpartition("_")[2])): int((domain / "mbm_total_bytes").read_text())
        for group in ("a", "b")
        for domain in (root / group / "mon_data").glob("mon_L3_*")
    }
