# SPDX-License-Identifier: Apache-2.0
"""What a case does to a resctrl: system calls, each with its answer, each recorded."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tests.conformance.answer import Answer
from tests.conformance.differences import Difference
from tests.conformance.recording import Names, Operation, comparable
from tests.conformance.registers import registers_of
from tests.conformance.target import Target
from vmqos.simulator.profiles import Profile

T = TypeVar("T")
_PATIENCE = 300
"""How often a case that needs an RMID lets limbo pass."""


class Resctrl:
    """One machine's resctrl, for one case.

    :param profile: the machine.
    :ivar recording: every operation so far.
    """

    def __init__(self, target: Target, profile: Profile) -> None:
        self.profile = profile
        self.recording: list[Operation] = []
        self.names = Names()
        self._target = target
        self._mounted = False
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._threads: list[tuple[threading.Thread, threading.Event]] = []
        self._steered = False

    def has(self, difference: Difference) -> bool:
        """Whether its kernel does it the newer way."""
        return difference.is_in(self.profile.kernel.version)

    @property
    def root(self) -> str:
        """The mount point."""
        return self._target.root

    def cache_ids(self, level: int) -> list[int]:
        """The ids of the caches of a level, ascending."""
        return [cache.id for cache in self.profile.topology.caches(level)]

    # -- mounting -----------------------------------------------------------------------------------------------

    def mount(self, options: str = "") -> str | None:
        """Mount it.

        :return: the name of the error if it is refused.
        """
        failed = self._target.mount(options)
        self._record("mount", "", options, failed)
        if failed is None:
            self._mounted = True
            self._steered = "mba_MBps" in options.split(",")
            self._let_rmids_drain()
        return failed

    def umount(self) -> str | None:
        """Unmount it.

        :return: the name of the error if it is refused.
        """
        failed = self._target.umount()
        self._record("umount", "", "", failed)
        self._mounted = self._mounted and failed is not None
        return failed

    # -- operations ---------------------------------------------------------------------------------------------

    def write(self, path: str, data: str) -> Answer:
        """Open a file and write all of ``data`` (in Latin-1) at once."""

        def act() -> None:
            descriptor = os.open(self._path(path), os.O_WRONLY | os.O_TRUNC)
            try:
                taken = os.write(descriptor, data.encode("latin-1"))
            finally:
                os.close(descriptor)
            assert taken == len(data), f"{taken} of {len(data)} bytes were taken"

        return self._act("write", path, self.names.in_text(data) if path.endswith("tasks") else data, act)

    def mkdir(self, path: str, mode: int = 0o755) -> Answer:
        """Make a group."""
        return self._act("mkdir", path, f"{mode:o}", lambda: os.mkdir(self._path(path), mode))

    def rmdir(self, path: str) -> Answer:
        """Remove a group."""
        return self._act("rmdir", path, "", lambda: os.rmdir(self._path(path)))

    def rename(self, old: str, new: str) -> Answer:
        """Rename a group."""
        return self._act("rename", old, new, lambda: os.rename(self._path(old), self._path(new)))

    def do(self, name: str, path: str, act: Callable[[str], object], data: str = "") -> Answer:
        """Another system call.

        :param name: for the recording.
        :param act: is given the whole path.
        """
        return self._act(name, path, data, lambda: act(self._path(path)))

    def group(self, path: str) -> str:
        """Make a group that the case needs, however long the RMIDs of those before stay in limbo.

        :return: ``path``.
        """
        for attempt in range(_PATIENCE):
            try:
                os.mkdir(self._path(path), 0o755)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                self._target.let_limbo_pass()
                continue
            if attempt:
                self._forget_messages()
            break
        else:
            raise TimeoutError(f"no RMID left limbo for {path}")
        self._record("group", path, "", None)
        return path

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, path: str) -> str:
        """The content of a file.

        :raises OSError: if it cannot be read.
        """
        return self._look("read", path, lambda: _read(self._path(path)))

    def refusal_to_read(self, path: str) -> str | None:
        """The name of the error that reading a file gives; ``None`` if there is none."""
        try:
            self.read(path)
        except OSError as error:
            return errno.errorcode[error.errno or errno.EIO]
        return None

    def ls(self, path: str = "") -> list[str]:
        """The names in a folder, sorted."""
        return self._look("ls", path, lambda: sorted(os.listdir(self._path(path))))

    def permissions(self, path: str) -> str:
        """Type and permissions, in octal."""
        return self._look("stat", path, lambda: f"{os.lstat(self._path(path)).st_mode:o}")

    @property
    def status(self) -> str:
        """``info/last_cmd_status``."""
        return self.read("info/last_cmd_status")

    def lines(self, path: str) -> dict[str, dict[int, str]]:
        """``schemata`` or ``size``: by the line's name and the cache's id, without the blanks."""
        found = {}
        for line in self.read(path).splitlines():
            name, _, values = line.partition(":")
            pairs = (value.partition("=") for value in values.split(";"))
            found[name.strip()] = {int(number): value.strip() for number, _, value in pairs}
        return found

    def masks(self, name: str, group: str = "") -> dict[int, int]:
        """The masks of a line of a group's ``schemata``, by the cache's id."""
        return {number: int(value, 16) for number, value in self.lines(_in(group, "schemata"))[name].items()}

    def bandwidths(self, group: str = "") -> dict[int, int]:
        """The values of the line ``MB`` of a group's ``schemata``, by the cache's id."""
        return {number: int(value) for number, value in self.lines(_in(group, "schemata"))["MB"].items()}

    def usage(self, name: str) -> dict[int, str]:
        """``bit_usage``, by the cache's id."""
        pairs = (value.partition("=") for value in self.read(f"info/{name}/bit_usage").strip().split(";"))
        return {int(number): letters for number, _, letters in pairs}

    def tasks(self, group: str = "") -> set[int]:
        """The tasks of a group that the case started, itself included."""
        return {int(word) for word in self.read(_in(group, "tasks")).split()} & self.names.tids()

    def cpus(self, group: str = "") -> str:
        """The CPUs of a group as a list."""
        return self.read(_in(group, "cpus_list")).strip()

    # -- registers ----------------------------------------------------------------------------------------------

    def register(self, level: int, cache: int, number: int) -> int | str:
        """What is in a register of a cache: every CPU of it has to say the same.

        :return: the value, or the name of the error if there is no such register.
        """
        topology = self.profile.topology
        cpus = next(sorted(one.cpus) for one in topology.caches(level) if one.id == cache)
        values = set(self._target.registers([(cpu, number) for cpu in cpus]))
        self._record("rdmsr", f"L{level} {cache}", f"{number:#x}", None, sorted(map(str, values)))
        assert len(values) == 1, f"the CPUs of L{level} {cache} do not agree on {number:#x}: {values}"
        return values.pop()

    def record_registers(self) -> None:
        """Record what is in every register of allocation.

        Under ``mba_MBps`` those of bandwidth are left out: the kernel changes them every second by what it measures
        (``update_mba_bw()`` in ``fs/resctrl/monitor.c``).
        """
        wanted = [one for one in registers_of(self.profile) if not (self._steered and one.cache.startswith("MB "))]
        values = self._target.registers([(one.cpu, one.number) for one in wanted])
        content = {
            f"{one.cache} {one.number:#x}": f"{value:#x}" if isinstance(value, int) else value
            for one, value in zip(wanted, values, strict=True)
        }
        self._record("registers", "", "", None, content)

    # -- tasks --------------------------------------------------------------------------------------------------

    def start(self, name: str) -> int:
        """Start a process that sleeps.

        :param name: in the recording.
        """
        child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
        self._children[child.pid] = child
        self.names.add(child.pid, name)
        return child.pid

    def kill(self, tid: int) -> None:
        """Kill a process but leave it a zombie."""
        self._children[tid].send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, tid, os.WEXITED | os.WNOWAIT)

    def reap(self, tid: int) -> None:
        """Kill a process, and let nothing of it be left."""
        child = self._children.pop(tid)
        child.kill()
        child.wait()

    def myself(self) -> int:
        """The case's own process."""
        self.names.add(os.getpid(), "myself")
        return os.getpid()

    def start_thread(self, name: str) -> int:
        """Start a thread of the case's own process; it waits until :meth:`end_threads`."""
        event = threading.Event()
        thread = threading.Thread(target=event.wait, daemon=True)
        thread.start()
        assert thread.native_id is not None
        self._threads.append((thread, event))
        self.names.add(thread.native_id, name)
        return thread.native_id

    def end_threads(self) -> None:
        """End the threads."""
        for thread, event in self._threads:
            event.set()
            thread.join()
        self._threads.clear()

    # -- the end ------------------------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """Leave nothing mounted and nobody running.

        :raises AssertionError: if it cannot be unmounted.
        """
        if self._mounted:
            self.record_registers()
            self._unlock_regions()
            failed = self._target.umount()
            self._mounted = failed is not None
            assert failed is None, f"umount: {failed}"

    def end_tasks(self) -> None:
        """End what the case started."""
        self.end_threads()
        for tid in list(self._children):
            self.reap(tid)

    # -- within -------------------------------------------------------------------------------------------------

    def _path(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root

    def _unlock_regions(self) -> None:
        """Remove pseudo-locked groups: to unmount while there is one hangs newer kernels (see ``differences``)."""
        if not self.profile.pseudo_lock:
            return
        for name in os.listdir(self.root):
            mode = self._path(f"{name}/mode")
            if os.path.exists(mode) and _read(mode) == "pseudo-locked\n":
                os.rmdir(self._path(name))

    def _let_rmids_drain(self) -> None:
        """Raise the threshold of limbo where it is 0 at boot: no RMID would ever be free again."""
        threshold = self._path("info/L3_MON/max_threshold_occupancy")
        if self.profile.monitoring and self.profile.threshold == 0 and _read(threshold) == "0\n":
            with open(threshold, "w", encoding="ascii") as file:
                file.write(f"{self.profile.threshold_limit}\n")

    def _forget_messages(self) -> None:
        """Clear ``last_cmd_status``, as a write of no tasks does on every kernel."""
        with open(self._path("tasks"), "w", encoding="ascii") as file:
            file.write("\n")

    def _act(self, op: str, path: str, data: str, act: Callable[[], object]) -> Answer:
        failed = None
        try:
            act()
        except OSError as error:
            failed = errno.errorcode[error.errno or errno.EIO]
        status = None
        if self._mounted:
            status = _read(self._path("info/last_cmd_status"))
        shown = self.names.in_text(status) if status is not None and path.endswith("tasks") else status
        self.recording.append(Operation(op, path, data, failed, shown))
        return Answer(failed, status)

    def _look(self, op: str, path: str, look: Callable[[], T]) -> T:
        try:
            found = look()
        except OSError as error:
            self._record(op, path, "", errno.errorcode[error.errno or errno.EIO])
            raise
        self._record(op, path, "", None, comparable(self.names, path, found))
        return found

    def _record(self, op: str, path: str, data: str, failed: str | None, content: Any = None) -> None:
        self.recording.append(Operation(op, path, data, failed, None, content))


def _in(group: str, file: str) -> str:
    return f"{group}/{file}" if group else file


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = b""
        while piece := os.read(descriptor, 65536):
            found += piece
        return found.decode("latin-1")
    finally:
        os.close(descriptor)
