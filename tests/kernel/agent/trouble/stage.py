# SPDX-License-Identifier: Apache-2.0
"""What the trouble befalls: an agent and VMs, all of them processes, on the kernel's resctrl."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.trouble import logged
from tests.campaign.trouble.story import Outcome
from tests.campaign.trouble.verdicts import Kind, Violation
from tests.campaign.trouble.vm import Vm
from tests.kernel.agent.pool import VmPool
from tests.kernel.agent.trouble.judge import Judge
from tools.lab.agent import Agent
from tools.lab.vms import RunningVm
from vmqos.resctrl.exceptions import LockTimeout
from vmqos.resctrl.filesystem import Filesystem

WITHIN = 30.0
"""Seconds of the guest's clock after which all must be settled, once it is quiet and the agent has looked at its host.

It is one second on hardware, and an emulated CPU is some thirty times slower. The full audit, which finds what libvirt
did not tell, comes in this time, too."""
PASSES = 30
"""Passes that the agent may make until then, too, where the machine has no CPU for it: there are 60 in 30 seconds."""
GIVE_UP = 400.0
"""Seconds to wait at most. It ends what hangs: by then an agent that works has made its passes, however slowly."""
POLL = 0.1
PATIENCE = 1.0
"""Seconds that another program waits for the lock."""

SHAPE: Mapping[str, int] = {"vcpus": 1, "max_vcpus": 2}
"""What all VMs are like, so that one story uses those of the story before."""


@dataclass
class Actor:
    """A VM of libvirt's, and what the judge is told of it.

    :ivar iothreads: how many I/O threads it has.
    """

    running: RunningVm
    truth: Vm
    vcpus: int = SHAPE["vcpus"]
    iothreads: int = 1


@dataclass
class Stage:
    """Where a story is played.

    :param root: resctrl.
    :param ways: how many ways of each L3 VMs may have.
    :param virt_type: of the VMs.
    :ivar actors: the VMs to which something may happen.
    :ivar outcome: what came of it so far.
    :ivar default_ways_min: how many ways the default group keeps, as the agent is configured.
    """

    agent: Agent
    judge: Judge
    pool: VmPool
    root: Path
    ways: int
    virt_type: str
    actors: list[Actor] = field(default_factory=list)
    outcome: Outcome = field(default_factory=lambda: Outcome(stories=1))
    default_ways_min: int = 2
    _strangers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for vm in self.pool.idle:
            self.judge.add(Vm(uuid=vm.uuid, specs={}, pid=vm.pid, cpus=affinity(vm.pid)))

    # The VMs.

    def start_vm(self, specs: Mapping[str, str]) -> Actor:
        """A VM starts, or one that idles is resized: that is quicker, and the agent does as much."""
        running = self.pool.take(specs, virt_type=self.virt_type, **SHAPE)
        truth = next((vm for vm in self.judge.vms if vm.uuid == running.uuid), None)
        if truth is None:
            truth = Vm(uuid=running.uuid, specs=specs, pid=running.pid, cpus=affinity(running.pid))
            self.judge.add(truth)
        else:
            self.judge.touch(truth, specs)
        return Actor(running, truth)

    def leave(self, actor: Actor) -> None:
        """A VM is about to end."""
        self.actors.remove(actor)
        self.judge.remove(actor.truth)

    @contextlib.contextmanager
    def moving(self, actor: Actor) -> Iterator[None]:
        """The VM's threads may run on other CPUs, or there are more of them, after this block."""
        self.judge.touch(actor.truth, cpus=frozenset(os.sched_getaffinity(0)))
        yield
        self.judge.touch(actor.truth, cpus=affinity(actor.truth.pid))

    # The agent.

    @contextlib.contextmanager
    def stopped_agent(self) -> Iterator[None]:
        """The agent is stopped (SIGSTOP) as long as the block runs."""
        self.signal_agent(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal_agent(signal.SIGCONT)

    def signal_agent(self, number: signal.Signals) -> None:
        """Send the agent a signal, if it lives."""
        if (pid := self.agent.pid) is not None:
            os.kill(pid, number)

    def kill_agent(self, *, wait: bool) -> None:
        """The agent is killed, or was; the next one starts.

        :param wait: whether until it has looked at the host.
        """
        self.agent.kill()
        self.outcome.kills += 1
        self.agent.start(wait=wait)

    def reload_agent(self, policy: Mapping[str, object]) -> None:
        """The operator writes another policy, and has the agent read it, once it can be told (SIGHUP ends it before).

        systemd tells no service to reload that has not said that it is ready (``Type=notify``).
        """
        self._until(lambda: self._passes() >= 0, GIVE_UP)
        self.default_ways_min = int(str(policy["default_ways_min"]))
        self.agent.configure({"allocation": policy})
        self.agent.reload()

    # Other programs.

    @contextlib.contextmanager
    def meddling(self, *, politely: bool) -> Iterator[None]:
        """Another program changes resctrl in this block.

        :param politely: whether it waits for the lock. It does not wait for ever: the agent may be stopped.
        """
        with contextlib.ExitStack() as held:
            if politely:
                try:
                    held.enter_context(Filesystem(str(self.root)).lock(exclusive=True, timeout=PATIENCE))
                except LockTimeout:
                    politely = False
            with self.judge.meddling(politely=politely), contextlib.suppress(OSError):
                yield

    @contextlib.contextmanager
    def held_lock(self) -> Iterator[None]:
        """Another program holds the lock on resctrl as long as the block runs."""
        with Filesystem(str(self.root)).lock(exclusive=True, timeout=None):
            yield

    def stranger(self) -> int:
        """The PID of a process that is no VM's."""
        self._strangers.append(subprocess.Popen(["sleep", "infinity"]))
        return self._strangers[-1].pid

    def groups_of_ours(self) -> list[str]:
        """The control groups that the agent has made."""
        return sorted(name for name in os.listdir(self.root) if name.startswith("vmqos."))

    # Once it is quiet.

    def be_quiet(self) -> None:
        """Wait until all is settled; note how long it took, and what is wrong if it never is."""
        if self.agent.pid is None:
            self.fault("the agent has ended")
            return
        self._until(self._has_looked, GIVE_UP)
        began, before, rows = time.monotonic(), self._passes(), list[Any]()
        wrong, last = list[Violation](), list[Violation]()

        def is_settled() -> bool:
            last[:] = wrong or last
            try:
                rows[:] = self.agent.get("/v1/vms")["vms"]
                wrong[:] = self.judge.unsettled(rows, self.ways, max(self.default_ways_min, LARGEST_CLASS))
            except (OSError, RuntimeError) as error:
                wrong[:] = [Violation(Kind.UNSERVED, f"{type(error).__name__}: {error}")]
            return not wrong

        self._until(is_settled, WITHIN)
        self._until(lambda: not wrong or self._passes() - before > PASSES or is_settled(), GIVE_UP - WITHIN)
        self.outcome.quiets += 1
        took = time.monotonic() - began
        self.outcome.longest = max(self.outcome.longest, took)
        if took > LONG:
            print(
                f"quiet for {took:.1f} s and {self._passes() - before} passes, at last because of:", *last, sep="\n  "
            )
        self.outcome.violations += wrong
        if not wrong:
            self.judge.settle(rows)

    def fault(self, text: str) -> None:
        """Note an error of the agent's own."""
        self.outcome.violations.append(Violation(Kind.FAULT, text))

    def violations(self) -> list[Violation]:
        """What was wrong so far."""
        return [*self.judge.violations, *self.outcome.violations]

    def _has_looked(self) -> bool:
        try:
            health = self.agent.get("/v1/health")
        except (OSError, RuntimeError):
            return False
        return bool(health["status"] != "starting" and health["libvirt"]["connected"])

    def _passes(self) -> int:
        """How many passes the agent has made; -1 if it does not answer."""
        try:
            return int(self.agent.get("/v1/health")["passes"])
        except (OSError, RuntimeError):
            return -1

    @staticmethod
    def _until(condition: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not condition() and time.monotonic() < until:
            time.sleep(POLL)

    def close(self) -> None:
        """End the processes that other programs put into their groups."""
        for stranger in self._strangers:
            stranger.kill()
            stranger.wait()

    def verdict(self) -> Outcome:
        """What came of the story, with what the judge says."""
        self.outcome.violations = [*self.violations(), *logged.faults(self.agent.log, "the agent")]
        return self.outcome


LONG = 3.0
"""Seconds of quiet from which on a story says for what it waited."""
LARGEST_CLASS = 2
"""Ways of the largest shared class that a flavor asks for (:mod:`tests.kernel.agent.trouble.events`)."""


def affinity(pid: int) -> frozenset[int]:
    """The CPUs that the threads of a process may run on."""
    found = set[int]()
    for tid in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):
            found |= os.sched_getaffinity(int(tid))
    return frozenset(found)
