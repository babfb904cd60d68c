# SPDX-License-Identifier: Apache-2.0
"""The two parties of the experiment: who is measured, and who disturbs."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from vmqos.bench import exceptions, left_paused, processes, vms
from vmqos.bench.left_paused import LeftPaused
from vmqos.bench.place import Place
from vmqos.bench.processes import Load
from vmqos.hypervisor.model import VirtualMachine
from vmqos.resctrl import groups, tasks
from vmqos.resctrl.filesystem import Filesystem

STRESS_NG = "stress-ng"
STREAM_LIMIT = 256 << 20
"""Bytes that one neighbour copies at most; it has to be more than the cache, and is not to starve the host."""
LEAST_STREAM = 8 << 20
"""Bytes where the kernel does not say how large the cache is, or says that it is tiny."""


class Victim(Protocol):
    """Who is measured."""

    unit: str
    """What :meth:`measure` counts: ``ns per access`` or ``s per run``."""

    def tids(self) -> frozenset[int]:
        """Its tasks."""

    def prepare(self, filesystem: Filesystem) -> None:
        """Put it into the default group, or see that it is there."""

    def enter(self, filesystem: Filesystem, group: str) -> None:
        """Put it into that control group."""

    def measure(self, seconds: float) -> float:
        """How long the same work takes now."""

    def tidy_up(self, filesystem: Filesystem) -> None:
        """After it has fallen back into the default group, put back what that does not."""

    def end(self) -> None:
        """Leave nothing."""


class Neighbor(Protocol):
    """Who disturbs."""

    name: str
    """What it is, for people."""

    def hush(self) -> None:
        """Be quiet, from the beginning or after having been loud."""

    def disturb(self, filesystem: Filesystem) -> None:
        """Be loud."""

    def check(self) -> None:
        """Do nothing while it is loud; :raises vmqos.bench.exceptions.LoadFailed: if it ended by itself."""

    def end(self) -> None:
        """Leave nothing."""


class Chaser:
    """The built-in victim, see :mod:`vmqos.bench.load`.

    :param place: where it runs.
    :param size: the bytes that it works on.
    """

    unit = "ns per access"

    def __init__(self, place: Place, size: int) -> None:
        self._load = Load("the victim", place.victim, "victim", str(size))

    def tids(self) -> frozenset[int]:
        """Its one task."""
        return frozenset({self._load.pid})

    def prepare(self, filesystem: Filesystem) -> None:
        """It starts in the group of the process that ran the command."""
        self._load.wait_until_ready()
        tasks.move(filesystem, "", self.tids())

    def enter(self, filesystem: Filesystem, group: str) -> None:
        """Move its one task."""
        tasks.move(filesystem, group, self.tids())

    def measure(self, seconds: float) -> float:
        """Nanoseconds an access takes, on an average of so many seconds."""
        return self._load.ask(seconds)

    def tidy_up(self, filesystem: Filesystem) -> None:
        """Nothing."""

    def end(self) -> None:
        """Kill it."""
        self._load.end()


class VmVictim:
    """A VM of the operator's, measured by a command of the operator's that has it do something.

    :param vm: the VM; all its tasks are in the default control group.
    :param command: for the shell; how long it runs is what is measured.
    """

    unit = "s per run"

    def __init__(self, vm: VirtualMachine, command: str) -> None:
        self._vm = vm
        self._command = command
        self._monitored: Mapping[str, frozenset[int]] = {}

    def tids(self) -> frozenset[int]:
        """All tasks of the VM, as they are now."""
        return vms.tasks_of(self._vm)

    def prepare(self, filesystem: Filesystem) -> None:
        """See that it has no ways of its own, and which of its tasks are monitored by a group of theirs.

        :raises vmqos.bench.exceptions.VmHasWays: if some of its tasks are in another control group.
        """
        mine = self.tids()
        elsewhere = mine - tasks.read_tasks(filesystem, "")
        if elsewhere:
            raise exceptions.VmHasWays(name=self._vm.name, count=len(elsewhere), total=len(mine))
        directories = [groups.monitoring_directory("", name) for name in groups.list_monitoring_groups(filesystem, "")]
        self._monitored = {
            directory: found for directory in directories if (found := mine & tasks.read_tasks(filesystem, directory))
        }

    def enter(self, filesystem: Filesystem, group: str) -> None:
        """Move all its tasks; those that are born later start in their creators' group."""
        tasks.move(filesystem, group, self.tids())

    def measure(self, seconds: float) -> float:
        """Seconds that one run of the command takes, however many were asked for.

        :raises vmqos.bench.exceptions.LoadFailed: if it fails.
        """
        start = time.perf_counter()
        done = subprocess.run(
            self._command, shell=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        taken = time.perf_counter() - start
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()
            problem = f"exit status {done.returncode}" + (f": {words[-1]}" if words else "")
            raise exceptions.LoadFailed(what=f"the command '{self._command}'", problem=problem)
        return taken

    def tidy_up(self, filesystem: Filesystem) -> None:
        """Put its tasks back into their monitoring group; an agent would do so by itself."""
        for directory, tids in self._monitored.items():
            tasks.move(filesystem, directory, tids)

    def end(self) -> None:
        """Nothing: the VM goes on."""


class Program:
    """A program of the operator's, started anew for each measurement.

    :param place: where it runs, with whatever it starts.
    :param command: for the shell; how long it runs is what is measured.
    """

    unit = "s per run"

    def __init__(self, place: Place, command: str) -> None:
        self._cpus = place.victim
        self._command = command
        self._group = ""
        self._filesystem: Filesystem | None = None
        self._load: Load | None = None

    def tids(self) -> frozenset[int]:
        """None that last."""
        return frozenset()

    def prepare(self, filesystem: Filesystem) -> None:
        """From here on it starts in the default group."""
        self.enter(filesystem, "")

    def enter(self, filesystem: Filesystem, group: str) -> None:
        """From here on it starts in that group."""
        self._filesystem, self._group = filesystem, group

    def measure(self, seconds: float) -> float:
        """Seconds that one run of the command takes, however many were asked for.

        :raises vmqos.bench.exceptions.LoadFailed: if it fails.
        """
        assert self._filesystem is not None
        self._load = Load(f"the command '{self._command}'", self._cpus, "run", "sh", "-c", self._command)
        try:
            self._load.wait_until_ready()
            tasks.move(self._filesystem, self._group, {self._load.pid})
            start = time.perf_counter()
            self._load.tell("go")
            self._load.wait_until_done()
            return time.perf_counter() - start
        finally:
            self.end()

    def tidy_up(self, filesystem: Filesystem) -> None:
        """From here on it starts in the default group again."""
        self.enter(filesystem, "")

    def end(self) -> None:
        """Kill it, if it runs."""
        if self._load is not None:
            self._load.end()
            self._load = None


class Streams:
    """Processes that copy memory, stress-ng's or our own.

    :param kind: ``builtin``, or a stressor of stress-ng's: ``stream`` or ``cache``.
    :param place: where they run, one on each CPU.
    """

    def __init__(self, kind: str, place: Place) -> None:
        self._loads: list[Load] = []
        self._cpus = place.neighbors
        count = len(self._cpus)
        self._size = min(max(2 * (place.size or 0), LEAST_STREAM), STREAM_LIMIT)
        self._stress = [] if kind == "builtin" else [STRESS_NG, f"--{kind}", str(count), "--timeout", "0", "--quiet"]
        self.name = " ".join(self._stress[:3]) if self._stress else f"{count} x copying {self._size >> 20} MiB"

    def hush(self) -> None:
        """End them."""
        while self._loads:
            self._loads.pop().end()

    def disturb(self, filesystem: Filesystem) -> None:
        """Start them, in the default group."""
        if self._stress:
            self._loads.append(Load(self.name, self._cpus, "run", *self._stress))
        else:
            for cpu in sorted(self._cpus):
                self._loads.append(Load("a neighbour", {cpu}, "stream", str(self._size)))
        tasks.move(filesystem, "", {load.pid for load in self._loads})
        processes.start(self._loads)

    def check(self) -> None:
        """See that each still runs."""
        for load in self._loads:
            load.check()

    def end(self) -> None:
        """End them."""
        self.hush()


class VmNeighbor:
    """A VM of the operator's that is noisy by itself; while it is to be quiet, it is paused.

    A VM that others have paused is not resumed: to let it run is their decision.

    :param uri: libvirt's connection URI.
    :param vm: the VM, which runs.
    :param tell: tells the guardian whether the VM is paused here.
    :raises vmqos.bench.exceptions.VmNotRunning: if it does not run.
    """

    def __init__(self, uri: str, vm: VirtualMachine, tell: Callable[[bool], None]) -> None:
        if not vms.is_running(uri, vm.uuid):
            raise exceptions.VmNotRunning(name=vm.name)
        self.name = f"VM {vm.name}"
        self._uri = uri
        self._vm = vm
        self._tell = tell
        self._is_paused = False

    def hush(self) -> None:
        """Pause it."""
        # The guardian first: this process may be killed right after the VM is paused.
        self._tell(True)
        self._is_paused = True
        # Who comes later, lest both are killed.
        left_paused.note(LeftPaused(self._uri, self._vm.uuid, self._vm.name))
        vms.pause(self._uri, self._vm.uuid)

    def disturb(self, filesystem: Filesystem) -> None:
        """Let it run."""
        self.end()

    def check(self) -> None:
        """See that it runs."""
        if not vms.is_running(self._uri, self._vm.uuid):
            raise exceptions.VmNotRunning(name=self._vm.name)

    def end(self) -> None:
        """Let it run, if it was paused here."""
        if self._is_paused:
            vms.resume(self._uri, self._vm.uuid)
            left_paused.forget(self._vm.uuid)
            self._is_paused = False
            self._tell(False)


def noise(wanted: str) -> str:
    """The kind of noise: what was wanted, or for ``auto`` stress-ng's where it is installed.

    :raises vmqos.bench.exceptions.LoadFailed: if stress-ng is wanted and not there.
    """
    installed = shutil.which(STRESS_NG) is not None
    if wanted == "auto":
        return "stream" if installed else "builtin"
    if wanted != "builtin" and not installed:
        raise exceptions.LoadFailed(
            what=f"{STRESS_NG} --{wanted}", problem="it is not installed; --noise builtin needs no program"
        )
    return wanted
