# SPDX-License-Identifier: Apache-2.0
"""The VMs of others: they are started, resized and stopped all the time, and looked at from outside.

Nothing here is the agent's word, except what is asked of its API to see whether it answers.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.hostile.stage import AUDIT, Stage
from tests.campaign.hostile.usage import Usage
from tools.lab import processes, vms
from tools.lab.vms import RunningVm

LOG = logging.getLogger(__name__)

WITHIN = 1.0
"""Seconds in which the agent must have served a VM, or have answered, whatever is tried meanwhile. Those in which the
machine had no CPU for anybody do not count."""

GIVE_UP = 30.0
"""Seconds after which what did not happen is told as such. It is no bound of the agent's: what came within it is judged
by :data:`WITHIN`."""

HEALTH = ("health on the socket", "health on the port")
"""The operations that ask the agent, and have nothing to do with resctrl."""

POLL = 0.03
CALM_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Sight:
    """Something that a witness saw and that must not be.

    :ivar what: in words.
    :ivar is_late: whether something took too long, and nothing else was wrong.
    """

    what: str
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Time:
    """What an operation took.

    :ivar took: seconds from outside.
    :ivar simulated: seconds of them that the simulator worked, or waited for a CPU.
    """

    took: float
    simulated: float = 0.0

    def __str__(self) -> str:
        return f"{self.took:.2f} s (simulator {self.simulated:.2f} s)"


@dataclass(slots=True)
class Calm:
    """What takes how long without any attack.

    :ivar seconds: the longest time of each operation, by its name.
    :ivar simulated: the longest time that the simulator worked during each operation, by its name, in seconds.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    simulated: dict[str, float] = field(default_factory=dict)


class Witness:
    """Innocent VMs on the stage, and what happens to them.

    :ivar usage: what the agent and the gateway use meanwhile.
    :ivar resizes_since: the moment from which the time of the resize that is under way counts; ``None`` without one.
    """

    resizes_since: float | None = None

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        stage.witness = self
        self._numbers = itertools.count(1)
        self._sizes = itertools.cycle((3, 2))
        self.steady = self._start({"hw:cache_ways": "2"})
        self.classmate = self._start({"hw:cache_ways": "2", "hw:cache_policy": "shared"})
        self.plain = self._start({})
        self.resized, self._ways = self._start({"hw:cache_ways": "2"}), 2
        self.calm = Calm()
        self.usage = Usage(stage)

    def calibrate(self) -> None:
        """See how long everything takes while all is calm."""
        for vm, ways in ((self.steady, 2), (self.resized, 2)):
            self._until(lambda vm=vm, ways=ways: self._is_served(vm, ways), f"{vm.name} being served")  # type: ignore[misc]
        self._stage.fetch("/metrics")
        with self.usage.calm(CALM_ROUNDS):
            self.calm.seconds = self._longest(CALM_ROUNDS)

    def _longest(self, rounds: int) -> dict[str, float]:
        """The longest time of each operation."""
        longest: dict[str, float] = {}
        for _ in range(rounds):
            for operation, carry_out in self.operations().items():
                before = self.simulated()
                took = carry_out()
                used = self.simulated() - before
                LOG.info("without an attack: %s took %.2f s, the simulator worked for %.2f s", operation, took, used)
                self.calm.simulated[operation] = max(used, self.calm.simulated.get(operation, 0.0))
                longest[operation] = max(took, longest.get(operation, 0.0))
        return longest

    def operations(self) -> dict[str, Callable[[], float]]:
        """What a round consists of; each gives the seconds that it took."""
        started: list[RunningVm] = []

        def start() -> float:
            started.append(self._start({"hw:cache_ways": "1"}))
            began = time.monotonic()
            self._until(lambda: self._is_served(started[0], 1), "a VM that was started being served")
            return self._stage.stalls.took(began)

        def stop() -> float:
            if not started:
                # It could not even be started, which was told.
                return 0.0
            vm = started.pop()
            vms.remove(self._stage.host.connection(), vm.uuid)
            began = time.monotonic()
            self._until(
                lambda: group_of(vm) not in self._stage.tree.groups(), "the group of a VM that ended being gone"
            )
            return self._stage.stalls.took(began)

        return {
            **dict(zip(HEALTH, (self._health_on_socket, self._health_on_port), strict=True)),
            "resize": self.resize,
            "start": start,
            "stop": stop,
        }

    def resize(self, before: Callable[[], None] = lambda: None) -> float:
        """Give a VM another flavor; the seconds until it has what that promises, from outside.

        :param before: is called after the change, and before time counts.
        """
        self._ways = next(self._sizes)
        self.resized.change_flavor(vms.Flavor("resized", {"hw:cache_ways": str(self._ways)}))
        before()
        began = self.resizes_since = time.monotonic()
        try:
            self._until(
                lambda: self._is_served(self.resized, self._ways), f"a VM having {self._ways} ways after a resize"
            )
        finally:
            self.resizes_since = None
        return self._stage.stalls.took(began)

    def start_and_stop(self, before: Callable[[], None]) -> float:
        """Start a VM; the seconds until it is served, from outside.

        :param before: is called after the start, and before time counts.
        """
        vm = self._start({"hw:cache_ways": "1"})
        try:
            before()
            began = time.monotonic()
            self._until(lambda: self._is_served(vm, 1), "a VM that was started being served")
            return self._stage.stalls.took(began)
        finally:
            vms.remove(self._stage.host.connection(), vm.uuid)

    def broken(self) -> list[str]:
        """The promises that are broken now: they are read twice, for a change of the agent's takes several writes."""
        first = self._broken()
        if not first:
            return []
        time.sleep(2 * POLL)
        second = self._broken()
        return [what for what in first if what in second]

    def _broken(self) -> list[str]:
        tree, found = self._stage.tree, list[str]()
        with group_may_go():
            # A group that went while it was looked at is looked at next time.
            found = [text for text in tree.violations([group_of(self.steady), group_of(self.resized)])]
        places = (
            (self.steady, group_of(self.steady), 2),
            (self.classmate, "vmqos.shared-ways2", 2),
            (self.plain, "", None),
        )
        for vm, group, ways in places:
            try:
                masks, tasks = tree.masks(group), tree.tasks(group)
            except FileNotFoundError:
                found.append(f"{vm.name} has no group {group}")
                continue
            if ways is not None and {mask.bit_count() for mask in masks.values()} != {ways}:
                found.append(f"{vm.name} was promised {ways} ways and has {masks}")
            if group:
                missing = vm.tasks().keys() - tasks
                # A thread that was born, or has ended, between the two looks is none of ours.
                missing &= vm.tasks().keys() - tree.tasks(group)
                if missing:
                    found.append(f"{len(missing)} tasks of {vm.name} are not in {group}")
        return found

    def restored(self) -> float:
        """Seconds until no promise is broken."""
        began = time.monotonic()
        self._until(lambda: not self._broken(), "the promises that a neighbour broke being restored")
        return self._stage.stalls.took(began)

    @property
    def restore_limit(self) -> float:
        """Seconds in which a promise must be whole again that another program of root's broke."""
        return WITHIN + AUDIT

    @contextlib.contextmanager
    def watching(self, kernel_waits: float, simulator_works: bool) -> Iterator[Watch]:
        """Look on for the duration of the block.

        :param kernel_waits: seconds that the kernel lets a VM wait that starts meanwhile.
        :param simulator_works: whether the simulator works for seconds where a kernel needs milliseconds.
        """
        watch = Watch(self, kernel_waits, simulator_works)
        watch.begin()
        try:
            yield watch
        finally:
            watch.end()

    def simulated(self) -> float:
        """Seconds that the simulator has worked so far, or would have if it had got a CPU (``/proc/PID/schedstat``)."""
        total = 0
        for thread in Path(f"/proc/{self._stage.simulator.pid}/task").iterdir():
            # A thread may end before its file is opened, or before it is read.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                working, waiting, _ = (thread / "schedstat").read_text().split()
                total += int(working) + int(waiting)
        return total / 1e9

    def _start(self, extra_specs: dict[str, str]) -> RunningVm:
        vm = vms.Vm(f"innocent-{next(self._numbers)}", vms.Flavor("innocent", extra_specs))
        return vms.run(self._stage.host, vm)

    def _is_served(self, vm: RunningVm, ways: int) -> bool:
        """Whether an exclusive VM has its ways alone, and all its tasks are in its group."""
        tree, group, is_served = self._stage.tree, group_of(vm), False
        with group_may_go():
            masks = tree.masks(group)
            if {mask.bit_count() for mask in masks.values()} != {ways}:
                return False
            if list(tree.violations([group])):
                return False
            tasks = vm.tasks().keys()
            is_served = bool(tasks) and not (tasks - tree.tasks(group)) & vm.tasks().keys()
        return is_served

    def _health_on_socket(self) -> float:
        began = time.monotonic()
        while True:
            try:
                self._stage.agent.get("/v1/health", timeout=GIVE_UP)
            except BlockingIOError:
                # The queue of connections is full at this moment; whoever has a time limit is told so at once.
                if time.monotonic() - began > GIVE_UP:
                    raise
                time.sleep(POLL)
            else:
                return self._stage.stalls.took(began)

    def _health_on_port(self) -> float:
        began = time.monotonic()
        self._stage.ask("/v1/health", timeout=GIVE_UP)
        return self._stage.stalls.took(began)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        processes.wait_until(condition, what, GIVE_UP, POLL)


class Watch:
    """A witness that looks on: one thread asks for health all the time, another one resizes a VM, and starts one.

    :ivar sights: what must not be.
    :ivar rounds: how often a VM was resized.
    :ivar took: the longest time of each operation.
    """

    def __init__(self, witness: Witness, kernel_waits: float, simulator_works: bool) -> None:
        self._witness = witness
        self._kernel_waits = kernel_waits
        self._simulator_works = simulator_works
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, name="witness-asks", daemon=True),
            threading.Thread(target=self._act, name="witness-acts", daemon=True),
        ]
        self._wanted, self._started = threading.Event(), threading.Event()
        self.sights: list[Sight] = []
        self.took: dict[str, Time] = {}
        self.rounds = 0

    def begin(self) -> None:
        """Look from now on."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Look no more, once what is under way is over."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def see_a_start(self) -> None:
        """Wait until a VM was started and stopped from now on, or has not come up for far too long."""
        self._wanted.set()
        self._started.wait(3 * GIVE_UP)

    def _ask(self) -> None:
        operations = self._witness.operations()
        while not self._over.is_set():
            for operation in HEALTH:
                self._judge(operation, operations[operation])
            self._over.wait(0.2)

    def _act(self) -> None:
        while not self._over.is_set():
            self.rounds += 1
            operations = self._witness.operations()
            self._judge("resize", operations["resize"])
            if self._wanted.is_set() and not self._started.is_set():
                self._judge("start", operations["start"])
                self._judge("stop", operations["stop"])
                self._started.set()
            self._over.wait(0.1)

    def _judge(self, operation: str, carry_out: Callable[[], float]) -> None:
        before = self._witness.simulated()
        try:
            took = carry_out()
        except Exception as error:
            self.sights.append(Sight(f"{operation}: {type(error).__name__}: {error}"))
            return
        time_, limit = Time(took, self._witness.simulated() - before), WITHIN
        if self._simulator_works and operation not in HEALTH:
            limit += max(0.0, time_.simulated - self._witness.calm.simulated[operation])
        if operation == "start":
            limit += self._kernel_waits
        if took > self.took.get(operation, Time(0.0)).took:
            self.took[operation] = time_
        if took > limit:
            self.sights.append(Sight(f"{operation} took {time_}, {limit:.2f} s are allowed", is_late=True))


@contextlib.contextmanager
def group_may_go() -> Iterator[None]:
    """A control group that is removed while it is read is no harm: ``ENOENT``, or ``ENODEV`` of an open file."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise


def group_of(vm: RunningVm) -> str:
    """The control group of an exclusive VM."""
    return f"vmqos.{vm.uuid}"
