# SPDX-License-Identifier: Apache-2.0
"""The simulator at a mount point, used from outside as resctrl is."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.lab import mounts

ROOT = Path(__file__).parents[3]
START_TIMEOUT = 60.0


class Simulator:
    """``python -m vmqos.simulator`` at a directory of the test's."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.root = directory / "resctrl"
        self.root.mkdir()
        self.log = directory / "log"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vmqos.simulator", str(self.root), "--log", str(self.log), *arguments],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        """Until it is mounted and answers."""
        deadline = time.monotonic() + START_TIMEOUT
        while not self.mounted:
            if self.process.poll() is not None or time.monotonic() > deadline:
                assert self.process.stderr is not None
                pytest.fail(f"the simulator did not mount: {self.process.stderr.read()}")
            time.sleep(0.01)
        os.listdir(self.root)

    @property
    def mounted(self) -> bool:
        """Whether something is mounted there."""
        return str(self.root) in mounts.points()

    def gone(self) -> bool:
        """Whether the mount disappears within a moment."""
        deadline = time.monotonic() + START_TIMEOUT
        while self.mounted and time.monotonic() < deadline:
            time.sleep(0.01)
        return not self.mounted

    def close(self) -> None:
        """End it, however far it came."""
        self.process.terminate()
        self.process.wait(START_TIMEOUT)
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.root)], check=False)
        if self.process.stderr is not None:
            self.process.stderr.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that every user may enter."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.fail("serving FUSE to other users needs root and /dev/fuse ('modprobe fuse')")
    for path in (tmp_path, *tmp_path.parents):
        if str(path) not in ("/", "/tmp"):
            path.chmod(path.stat().st_mode | 0o111)
    return tmp_path


@pytest.fixture
def simulator(directory: Path) -> Iterator[Simulator]:
    one = Simulator(directory, "--profile", "cascade-lake")
    try:
        one.wait()
        yield one
    finally:
        one.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(simulator: Simulator, number: int) -> None:
    simulator.process.send_signal(number)
    assert simulator.process.wait(START_TIMEOUT) == 0
    assert not simulator.mounted


def test_umount_ends_it(simulator: Simulator) -> None:
    # For a moment it is busy while any process of the machine walks over it, such as one that lists mounts.
    mounts.unmount(simulator.root)
    assert simulator.process.wait(START_TIMEOUT) == 0


def test_a_kill_leaves_no_mount(directory: Path) -> None:
    def is_gone(number: int) -> bool:
        (directory / str(number)).mkdir()
        one = Simulator(directory / str(number), "--profile", "cascade-lake")
        try:
            one.wait()
            one.process.kill()
            return one.gone()
        finally:
            one.close()

    # fusermount looks once, and if the kernel is about to end the connection at that very moment it gives up: of what
    # open(2) may say then it takes ENOTCONN alone for the server's end (should_auto_unmount in libfuse).
    assert any(is_gone(number) for number in range(3))


def test_an_open_file_keeps_it_mounted(simulator: Simulator) -> None:
    with open(simulator.root / "tasks", encoding="ascii"):
        assert subprocess.run(["umount", str(simulator.root)], capture_output=True, check=False).returncode != 0
    assert simulator.mounted


def test_what_the_machine_cannot_give_is_said(directory: Path) -> None:
    one = Simulator(directory, "--profile", "minimal", "--mount-options", "cdp")
    try:
        assert one.process.wait(START_TIMEOUT) == 1
        assert one.process.stderr is not None
        assert "Invalid argument" in one.process.stderr.read()
    finally:
        one.close()


def test_the_root_can_be_locked(simulator: Simulator) -> None:
    mine, other = (os.open(simulator.root, os.O_RDONLY | os.O_DIRECTORY) for _ in range(2))
    try:
        fcntl.flock(mine, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(mine, fcntl.LOCK_UN)
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(mine)
        os.close(other)


def test_a_removed_groups_open_file_is_no_device_any_more(simulator: Simulator) -> None:
    group = simulator.root / "g"
    for _ in range(2):
        group.mkdir()
        descriptor = os.open(group / "schemata", os.O_RDWR)
        try:
            assert os.pread(descriptor, 4096, 0).startswith(b"    MB:")
            group.rmdir()
            with pytest.raises(OSError) as refused:
                os.pread(descriptor, 4096, 0)
            assert refused.value.errno == errno.ENODEV
            with pytest.raises(OSError) as refused:
                os.write(descriptor, b"L3:0=3\n")
            assert refused.value.errno == errno.ENODEV
        finally:
            os.close(descriptor)


def test_a_kept_descriptor_shows_what_is_now(simulator: Simulator) -> None:
    group = simulator.root / "g"
    group.mkdir()
    descriptor = os.open(group / "tasks", os.O_RDONLY)
    try:
        assert os.pread(descriptor, 4096, 0) == b""
        (group / "tasks").write_text("0\n", encoding="ascii")
        assert str(threading.get_native_id()).encode() in os.pread(descriptor, 4096, 0).split()
    finally:
        os.close(descriptor)
        (simulator.root / "tasks").write_text("0\n", encoding="ascii")


def test_each_change_is_logged(simulator: Simulator) -> None:
    (simulator.root / "g").mkdir()
    descriptor = os.open(simulator.root / "g" / "schemata", os.O_WRONLY)
    with pytest.raises(OSError):
        os.write(descriptor, b"nonsense\n")
    os.close(descriptor)
    (simulator.root / "mon_groups" / "m").mkdir()
    (simulator.root / "mon_groups" / "m").rename(simulator.root / "g" / "mon_groups" / "m")
    (simulator.root / "g").rmdir()
    lines = [json.loads(line) for line in simulator.log.read_text(encoding="utf-8").splitlines()]
    assert [(line["op"], line["path"], line["data"], line["errno"]) for line in lines] == [
        ("mkdir", "g", "", None),
        ("write", "g/schemata", "nonsense\n", "EINVAL"),
        ("mkdir", "mon_groups/m", "", None),
        ("rename", "mon_groups/m", "g/mon_groups/m", None),
        ("rmdir", "g", "", None),
    ]
    assert {line["pid"] for line in lines} == {threading.get_native_id()}


def test_an_observer_may_end_the_client_after_any_write(directory: Path) -> None:
    """What the tests of a killed agent build on."""
    script = (
        "import os, signal, sys\n"
        "from vmqos.simulator import serve\n"
        "writes = []\n"
        "def observe(record):\n"
        "    writes.append(record)\n"
        "    if len(writes) == 3: os.kill(record.pid, signal.SIGKILL)\n"
        "serve(sys.argv[1], 'minimal', observer=observe)\n"
    )
    root = directory / "resctrl"
    root.mkdir()
    server = subprocess.Popen([sys.executable, "-c", script, str(root)], cwd=ROOT)
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while not os.path.ismount(root):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        client = f"import os\nfor name in 'abcdef': os.mkdir('{root}/' + name)"
        done = subprocess.run([sys.executable, "-c", client], check=False)
        assert done.returncode == -signal.SIGKILL
        assert sorted(set("abcdef") & set(os.listdir(root))) == ["a", "b", "c"]
    finally:
        server.terminate()
        assert server.wait(START_TIMEOUT) == 0


def test_an_ordinary_user_reads_but_changes_only_what_was_given_to_him(simulator: Simulator) -> None:
    (simulator.root / "g").mkdir()

    def as_user(command: str) -> int:
        user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
        return subprocess.run(
            [*user, "sh", "-c", command], cwd=simulator.root, capture_output=True, check=False
        ).returncode

    assert as_user("cat schemata g/tasks info/last_cmd_status") == 0
    assert as_user("echo $$ > g/tasks") != 0
    assert as_user("mkdir u") != 0
    os.chown(simulator.root / "g" / "tasks", 1000, -1)
    assert as_user("echo $$ > g/tasks") == 0
    assert as_user("echo 1 > g/tasks") != 0


def test_the_hosts_cpus_are_spread_over_the_caches(directory: Path) -> None:
    one = Simulator(directory, "--profile", "milan", "--sysfs", str(directory / "cpu"))
    try:
        one.wait()
        shown = {
            path.parent.parent.parent.name: path.read_text(encoding="ascii").strip()
            for path in (directory / "cpu").glob("cpu*/cache/index3/id")
        }
        assert set(shown) == {f"cpu{number}" for number in range(os.cpu_count() or 1)}
        assert set(shown.values()) <= {"0", "1", "2", "3"}
        assert (one.root / "cpus_list").read_text(encoding="ascii").startswith("0")
    finally:
        one.close()


def test_thousands_of_threads_are_listed(simulator: Simulator) -> None:
    script = (
        "import sys, threading\n"
        "threading.stack_size(65536)\n"
        "event = threading.Event()\n"
        "for _ in range(1000): threading.Thread(target=event.wait).start()\n"
        "print(flush=True); sys.stdin.read(); event.set()\n"
    )
    crowd = [
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for process in crowd:
            assert process.stdout is not None
            process.stdout.readline()
        expected = {tid for process in crowd for tid in os.listdir(f"/proc/{process.pid}/task")}
        listed = (simulator.root / "tasks").read_text(encoding="ascii").split()
        assert len(expected) == 2002
        assert expected <= set(listed)
        assert len(listed) == len(set(listed))

        (simulator.root / "g").mkdir()
        batch = sorted(expected, key=int)
        for start in range(0, len(batch), 400):
            (simulator.root / "g" / "tasks").write_text(",".join(batch[start : start + 400]) + "\n", encoding="ascii")
        assert set((simulator.root / "g" / "tasks").read_text(encoding="ascii").split()) == expected
    finally:
        for process in crowd:
            process.communicate(b"")
