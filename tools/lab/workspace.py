# SPDX-License-Identifier: Apache-2.0
"""One directory that knows everything we started, so that all of it can be ended, whichever process died.

A workspace is ``/tmp/vmqos-lab-XXXXXXXX``. Beside what its users put there it holds:

- ``owner``: PID and start time of the process it belongs to;
- ``processes/<pid>``: the start time of a process that was started for it;
- ``mounts``: mount points, one a line, in the order of mounting;
- ``commands``: to be run at the end, one a line, each a JSON list: for what removing files can't undo;
- ``directories``: elsewhere, one a line; removed at the end if they are empty then.

Processes of the private libvirtd and its VMs need no record: they live in a mount namespace in which
``<workspace>/run`` lies over ``/run/libvirt``. Three can do the cleaning, all by :func:`remove`: the owner; the
reaper, a process that waits for the owner's death; and the next owner, for what a machine's reset of both left.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from tools.lab import mounts, processes

BASE = Path("/tmp")
PREFIX = "vmqos-lab-"
AGENT_LOCKS = Path("/run/vmqos")
CHECKOUT = Path(__file__).resolve().parents[2]
"""The top of the source tree."""


class Workspace:
    """A directory, and a reaper that empties it when this process dies.

    :ivar path: the directory; short enough for sockets in it (a Unix socket's path has at most 107 bytes).
    """

    def __init__(self) -> None:
        remove_stale()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=BASE))
        (self.path / "processes").mkdir()
        (self.path / "owner").write_text(f"{os.getpid()} {processes.start_time(os.getpid())}\n")
        self._reaper = subprocess.Popen(
            [sys.executable, "-m", "tools.lab.reaper", str(self.path)],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record_process(self, pid: int) -> None:
        """Have ``pid``, which is running now, ended with the workspace."""
        started = processes.start_time(pid)
        if started is not None:
            (self.path / "processes" / str(pid)).write_text(f"{started}\n")

    def forget_process(self, pid: int) -> None:
        """The opposite of :meth:`record_process`, for one that has ended."""
        (self.path / "processes" / str(pid)).unlink(missing_ok=True)

    def record_mount(self, path: Path) -> None:
        """Have ``path`` unmounted with the workspace; to be called before the mount is made."""
        self._append("mounts", str(path))

    def record_command(self, command: Sequence[str]) -> None:
        """Have ``command`` run at the workspace's end, after its processes'."""
        self._append("commands", json.dumps(command))

    def record_directory(self, path: Path) -> None:
        """Have ``path``, outside the workspace, removed with it if it is empty then."""
        self._append("directories", str(path))

    def _append(self, file: str, line: str) -> None:
        with (self.path / file).open("a") as opened:
            opened.write(f"{line}\n")

    def close(self) -> None:
        """End and remove everything, the reaper included."""
        remove(self.path)
        if self._reaper.stdin:
            self._reaper.stdin.close()
        self._reaper.wait()


def remove_stale() -> None:
    """Remove the workspaces whose owner is dead (their reaper may be at it: both can)."""
    for path in BASE.glob(f"{PREFIX}*"):
        try:
            if path.is_symlink() or path.stat().st_uid != os.geteuid():
                continue
            owner, started = (path / "owner").read_text().split()
        except (FileNotFoundError, ValueError):
            if path.exists() and time.time() - path.stat().st_mtime > 60:
                # No process makes one this slowly.
                shutil.rmtree(path, ignore_errors=True)
            continue
        if processes.start_time(int(owner)) != int(started):
            remove(path)


def remove(path: Path) -> None:
    """End the workspace's processes, unmount its mounts, remove its cgroups and its directory; idempotent."""
    recorded = _recorded_processes(path)
    for pid, started in recorded.items():
        processes.end(pid, partial(_started_at, started), polite_for=5.0)
    while inside := [pid for pid in processes.all_pids() if _lives_in(path, pid)]:
        for pid in inside:
            processes.end(pid, partial(_lives_in, path))
    for command in _lines(path / "commands"):
        subprocess.run(json.loads(command), cwd=CHECKOUT, stdin=subprocess.DEVNULL, timeout=60, check=False)
    for mount in _mounts(path):
        subprocess.run(["umount", "--lazy", mount], stderr=subprocess.DEVNULL, check=False)
    for root in _cgroup_roots():
        _remove_cgroup(root / path.name)
    # A killed agent's lock file is named after its resctrl, which was in the workspace.
    for lock in AGENT_LOCKS.glob(f"*{path.name}*"):
        lock.unlink(missing_ok=True)
    for directory in _lines(path / "directories"):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    shutil.rmtree(path, ignore_errors=True)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []


def _recorded_processes(path: Path) -> dict[int, int]:
    found = {}
    for file in sorted((path / "processes").glob("*")):
        try:
            found[int(file.name)] = int(file.read_text())
        except (FileNotFoundError, ValueError):
            continue
    return found


def _started_at(started: int, pid: int) -> bool:
    return processes.start_time(pid) == started


def _lives_in(path: Path, pid: int) -> bool:
    """Whether ``pid`` sees the workspace's ``run`` in place of ``/run/libvirt``: only what our libvirtd made does."""
    try:
        lines = mounts.fields(f"/proc/{pid}/mountinfo")
    except OSError:
        return False
    # Field 4 is the part of the source file system, field 5 the mount point (proc(5)).
    return any(line[3].endswith(f"/{path.name}/run") and line[4] == "/run/libvirt" for line in lines)


def _mounts(path: Path) -> list[str]:
    """What is mounted of the recorded mounts, last made first, and whatever else is mounted in the workspace."""
    recorded = set(_lines(path / "mounts"))
    return [mount for mount in reversed(mounts.points()) if mount in recorded or mount.startswith(f"{path}/")]


def cgroups() -> Iterator[Path]:
    """Every cgroup of the machine. Others come and go meanwhile, which :meth:`pathlib.Path.glob` does not bear."""
    return (Path(path) for path, _, _ in os.walk("/sys/fs/cgroup"))


def _cgroup_roots() -> list[Path]:
    return [Path(line[1]) for line in mounts.fields("/proc/self/mounts") if line[2] in ("cgroup", "cgroup2")]


def _remove_cgroup(path: Path) -> None:
    for directory, _, _ in os.walk(path, topdown=False):
        try:
            processes.wait_until(partial(_try_rmdir, directory), f"rmdir {directory}", 5.0)
        except TimeoutError as error:
            print(f"vmqos lab: {error}", file=sys.stderr)


def _try_rmdir(path: str) -> bool:
    """Remove a cgroup, which the kernel refuses for a moment after its last process."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
