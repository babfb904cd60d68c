# SPDX-License-Identifier: Apache-2.0
"""What a host in this process has: the real agent's loop, the simulator's machine, a played libvirt and processes."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from tests.campaign.trouble.clock import Clock
from tests.campaign.trouble.killing import Killed, Killer
from tests.campaign.trouble.machine import AgentsResctrl, TroubledMachine
from tests.campaign.trouble.seen import Cache
from tests.campaign.trouble.vm import Vm
from tests.unit.agent.machine import PlayedLibvirt
from vmqos import allocation
from vmqos.agent import loop
from vmqos.agent.loop import Agent
from vmqos.conf import loader
from vmqos.conf.libvirt import OWN_WAYS
from vmqos.daemon.backoff import Backoff
from vmqos.hypervisor.model import Process
from vmqos.resctrl import mount

GIVES_IO_WAYS = "use_shareable_ways = true"

POLICIES = (
    "",
    "kernel_exclusive = false",
    "default_ways_min = 3",
    GIVES_IO_WAYS,
    "when_full = share",
    "shared_classes = ways2",
)
"""The section ``[allocation]`` as the operator may write it."""

LOCK_TIMEOUT = 0.1
RETRY_AT_MOST = 0.5
"""Seconds until what the kernel refused is tried again, at most; as shipped it is a minute."""

FULL_AUDIT = 60.0
"""Seconds until a full audit finds what libvirt's event did not tell, as shipped."""
LOOKS_END = 30.0
"""Seconds of the wall clock in which looks that nothing holds up end on any machine."""
STEP = 0.1
"""Seconds between two passes while the host is quiet."""
VCPU_NAME = re.compile("CPU ([0-9]+)/KVM")
PLANNING = 0.1
"""Seconds that each plan takes, as on a machine whose CPUs are wanted by others, too."""


@dataclass(frozen=True, slots=True)
class Pins:
    """The CPUs that the threads of a VM may run on.

    :ivar vcpus: those of each vCPU, by its number.
    :ivar others: those of the other threads.
    """

    vcpus: tuple[frozenset[int], ...]
    others: frozenset[int]

    def of(self, name: str) -> frozenset[int]:
        """Those of the thread of that name."""
        found = VCPU_NAME.fullmatch(name)
        return self.vcpus[int(found[1])] if found else self.others


@dataclass(eq=False, kw_only=True)
class PlayedVm(Vm):
    """A VM of the played libvirt.

    :ivar pins: where its threads may run.
    :ivar is_incoming: whether it comes by a migration, and its memory is not all there.
    :ivar waiting: the threads that are to have its ways until its memory is there; ``None``: as ever.
    :ivar is_listed: whether libvirt lists it as running.
    :ivar is_touched: whether something that concerns it has happened since the last pass began.
    :ivar told_early: the agent that was told of its start before its process was forked, and is to hear more of it.
    :ivar passes_at_start: how many passes there had been by then.
    """

    number: int
    child: subprocess.Popen[bytes]
    process: Process
    pins: Pins
    vcpus: int = 0
    is_incoming: bool = False
    waiting: frozenset[int] | None = None
    is_listed: bool = False
    is_touched: bool = False
    told_early: Agent | None = None
    passes_at_start: int = 0

    @property
    def file(self) -> str:
        """The name of libvirt's status file of it; a VM that comes back has the same one."""
        return f"instance-{self.uuid[-8:]}"

    @property
    def is_alive(self) -> bool:
        """Whether its process has not ended."""
        return self.child.poll() is None

    def tasks(self) -> set[int]:
        """Its threads; none once it has ended."""
        return super().tasks() if self.is_alive else set()

    def promised_cpus(self) -> frozenset[int]:
        wants = self.wants
        if wants is None or wants.vcpus is None:
            return self.cpus
        return frozenset().union(*(self.pins.vcpus[number] for number in wants.vcpus if number < self.vcpus))

    def promised_tasks(self) -> set[int]:
        found = super().promised_tasks()
        return found if self.waiting is None else found & self.waiting


@dataclass
class Trouble:
    """What goes wrong now.

    :ivar error: what every :attr:`period`-th write fails with; 0 for none.
    :ivar reads: whether reads fail, too.
    :ivar lock: the descriptor by which another program holds the lock.
    """

    error: int = 0
    period: int = 1
    reads: bool = False
    lock: int | None = None
    count: int = 0


class QuietHost:
    """A host, and the agent that runs on it. What happens to it is told to :class:`.host.Host`.

    :param incoming_memory: ``[libvirt] incoming_memory`` of the agent's.
    :ivar debt: seconds that may pass, as designed, before the agent can know all that happened: nothing told it.
    :ivar is_deaf: whether libvirt's events are lost.
    :ivar is_blind: whether the kernel's word of new status files is lost.
    :ivar meddled: whether another program changed resctrl since the last pass began.
    :ivar foreign: the masks that another program gave to the agent's groups, or to the default group, by group and
        cache; until the agent writes that group's masks itself.
    :ivar refusals: operations on files of resctrl that failed since the last pass began.
    :ivar faults: errors of the agent's own that it logged.
    """

    def __init__(
        self, folder: Path, profile: str, options: str, killer: Killer, incoming_memory: str = OWN_WAYS
    ) -> None:
        self.folder = folder
        self.incoming_memory = incoming_memory
        self.clock = Clock()
        self.troubled = TroubledMachine(folder, profile, options, self.clock)
        self.troubled.before = self._before
        self.killer = killer
        self.libvirt = PlayedLibvirt()
        self.vms: dict[str, PlayedVm] = {}
        self.departed: list[str] = []
        self.trouble = Trouble()
        self.debt = 0.0
        self.policy = POLICIES[0]
        self.is_deaf = self.is_blind = self.meddled = False
        self.refusals = 0
        self.foreign: dict[str, dict[Cache, int]] = {}
        self.during: list[tuple[int, Callable[[], None]]] = []
        self.faults: list[str] = []
        self.passes = 0
        self.last_pass_ended_well = False
        self.before_pass: Callable[[], None] = lambda: None
        self.on_pass: Callable[[], None] = lambda: None
        self.on_begun: Callable[[PlayedVm], None] = lambda vm: None
        self.on_touch: Callable[[PlayedVm | None], None] = lambda vm: None
        self.strangers: list[subprocess.Popen[bytes]] = []
        self._number = 0
        self._is_acting = False
        self._dead: list[Agent] = []
        self._confs: dict[str, cfg.ConfigOpts] = {}
        self._stack = contextlib.ExitStack()
        self._play()
        self.agent: Agent
        self.resctrl: AgentsResctrl
        self.start_agent()

    def start_agent(self) -> None:
        """Start an agent, which knows nothing."""
        self.resctrl = AgentsResctrl(self.troubled)
        self.agent = Agent(self._conf(), self._conf)
        for backoff in self._backoffs():
            _follow(backoff, self.clock)

    def restart(self) -> None:
        """The agent's end, by SIGTERM or by SIGKILL, and the next one's start."""
        self.resctrl.close()
        self.agent._running_vms.close()
        self._dead.append(self.agent)
        for vm in self.vms.values():
            vm.told_early = None
        self.start_agent()

    def run(self, passes: int = 1) -> None:
        """Have the agent make passes, as its loop does after an event."""
        for _ in range(passes):
            if self.agent._settles_at is not None:
                self.agent._settles_at = 0.0
            before = self.agent.health.passes
            self.meddled, self.refusals = False, 0
            for vm in self.vms.values():
                vm.is_touched = False
            self.before_pass()
            self.act(self.agent._run_passes_whatever_happens)
            self.passes += max(0, self.agent.health.passes - before)
            health = self.agent.health
            self.last_pass_ended_well = not health.resctrl_error and self.agent._retry.get(loop._PASS) is None
            self.on_pass()

    def act(self, act: Callable[[], object]) -> bool:
        """Have the agent do something; whether it lived to the end of it.

        :raises Killed: if it was doing something else already, which is over then, too.
        """
        if self._is_acting:
            act()
            return True
        self._is_acting = True
        try:
            with self.killer.watching():
                act()
        except Killed:
            self.restart()
            return False
        finally:
            self._is_acting = False
        return True

    def let_pass(self, seconds: float) -> None:
        """Let time pass without anything happening."""
        self.clock.leap(seconds)
        if seconds >= FULL_AUDIT:
            self.agent._next_full = 0.0

    def waiting(self) -> str:
        """What the agent tries again later, and when; for people."""
        failures = [
            f"{key} in {backoff.seconds_until(failure):.2f} s of {failure.delay:.2f} ({failure.reason.text})"
            for backoff in self._backoffs()
            for key, failure in backoff._failures.items()
        ]
        return f"it tries again: {'; '.join(failures) or 'nothing'}"

    def _backoffs(self) -> tuple[Backoff, ...]:
        agent = self.agent
        return agent.backoff, agent._retry, agent._breath, agent._running_vms._backoff

    def let_looks_end(self) -> None:
        """Wait until no look at a VM, nor libvirt's list, is under way: their threads need a CPU of a busy machine.

        The agent does not wait for a look that it has left behind. So neither its waits nor the CPU time of its passes
        tell how long such a look takes.
        """
        running, until = self.agent._running_vms, time.monotonic() + LOOKS_END
        while (running._looks.under_way or running._lists.under_way) and time.monotonic() < until:
            time.sleep(0.001)

    def _before(self, operation: str, path: str) -> None:
        self.killer.before(operation, path)
        due = [act for count, act in self.during if count <= 1]
        self.during = [(count - 1, act) for count, act in self.during if count > 1]
        for act in due:
            act()
        trouble = self.trouble
        if trouble.error and (operation != "read" or trouble.reads):
            trouble.count += 1
            if trouble.count % trouble.period == 0:
                self.refusals += 1
                raise OSError(trouble.error, os.strerror(trouble.error))

    def close(self) -> None:
        """End everything."""
        self.resctrl.close()
        for event in self.libvirt.hung.values():
            event.set()
        self.agent._running_vms.close()
        for vm in self.vms.values():
            vm.child.kill()
            vm.child.communicate()
        for child in self.strangers:
            child.kill()
            child.wait()
        for agent in [*self._dead, self.agent]:
            agent._ends.close()
            agent._wakeup.close()
        self._stack.close()

    def _conf(self) -> cfg.ConfigOpts:
        if self.policy not in self._confs:
            file = self.folder / f"vmqos-{len(self._confs)}.conf"
            file.write_text(
                f"[resctrl]\npath = {self.troubled.root}\nsysfs_cpu_path = {self.troubled.sysfs}\n"
                f"lock_timeout = {LOCK_TIMEOUT}\nreaders_group =\n"
                f"[libvirt]\nincoming_memory = {self.incoming_memory}\n"
                f"[agent]\nstate_path = {self.folder}\nfull_audit_interval = 600\n"
                f"retry_delay_min = 0.1\nretry_delay_max = {RETRY_AT_MOST}\n"
                f"[allocation]\n{self.policy}\n"
            )
            self._confs[self.policy] = loader.load(["--config-file", str(file)])
        return self._confs[self.policy]

    def _play(self) -> None:
        patch = pytest.MonkeyPatch()
        self._stack.callback(patch.undo)
        patch.setattr(loop, "Filesystem", lambda path: self.resctrl)
        patch.setattr(loop, "Connection", lambda *_, **__: self.libvirt)
        patch.setattr(mount, "find", self.troubled.find)
        plan = allocation.plan

        def plan_slowly(*given: Any, **named: Any) -> allocation.Plan:
            found = plan(*given, **named)
            self.clock.leap(PLANNING)
            return found

        patch.setattr(allocation, "plan", plan_slowly)
        patch.setattr(time, "time", self.clock.wall)
        handler = _Faults(self.faults)
        logger = logging.getLogger("vmqos")
        before = logger.level, logger.propagate
        logger.propagate = logging.getLogger().isEnabledFor(logging.INFO)
        logger.setLevel(logging.INFO if logger.propagate else logging.ERROR)
        logger.addHandler(handler)

        def undo() -> None:
            logger.removeHandler(handler)
            logger.setLevel(before[0])
            logger.propagate = before[1]

        self._stack.callback(undo)


class _Faults(logging.Handler):
    """Collects what the agent logs of faults of its own."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info or "unexpectedly" in text:
            if record.exc_info:
                text += f"\n{logging.Formatter().formatException(record.exc_info)}"
            self._faults.append(text)


def _follow(backoff: Backoff, clock: Clock) -> None:
    backoff._clock = clock.monotonic
