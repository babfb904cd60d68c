# SPDX-License-Identifier: Apache-2.0
"""What happens in a guest. Each event is a name and three numbers, which choose whom it concerns when it happens.

So each part of a story is a story, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import libvirt

from tests.campaign.trouble.choices import POLICIES, choose
from tests.kernel.agent import foreign
from tests.kernel.agent.trouble.stage import Actor, Stage
from tools.lab import vms

MOST_VMS = 4
"""To which something may happen at a time."""
MOST_IOTHREADS = 3
FOREIGN = ("containers", "pod-7")
WRITES = 6
"""Writes to resctrl of which one is the agent's last: what one event takes, about."""
COMES = 2.0
"""Seconds to wait for that write; then something else happens."""
TRIES = 3
"""How often something happens until the agent comes to that write."""
LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE

FLAVORS: tuple[Mapping[str, str], ...] = (
    {"hw:cache_ways": "1"},
    {"hw:cache_ways": "2"},
    {"hw:cache_ways": "2"},
    {"hw:cache_ways": "4"},
    {"hw:cache_ways": "2", "hw:cache_policy": "shared"},
    {},
)


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    :ivar name: one of :data:`EVENTS`.
    :ivar a: chooses whom it concerns.
    :ivar b: chooses how.
    :ivar c: chooses when, and what happens meanwhile.
    """

    name: str
    a: int
    b: int
    c: int

    def happen(self, stage: Stage) -> None:
        """Let it happen."""
        EVENTS[self.name].act(stage, self)

    def __str__(self) -> str:
        return f"{self.name}({self.a}, {self.b}, {self.c})"


Act = Callable[[Stage, Event], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """A kind of event.

    :ivar weight: how often it happens, compared with the others.
    """

    act: Act
    weight: int


def _vm(stage: Stage, event: Event) -> Actor | None:
    return choose(stage.actors, event.a)


def _moment(event: Event) -> float:
    """A part of a second."""
    return event.c % 100 / 100


# VMs.


def _start(stage: Stage, event: Event) -> None:
    if len(stage.actors) >= MOST_VMS:
        return _end(stage, event)
    stage.actors.append(stage.start_vm(FLAVORS[event.b % len(FLAVORS)]))


def _end(stage: Stage, event: Event) -> None:
    if (actor := _vm(stage, event)) is not None:
        stage.leave(actor)
        vms.remove(stage.pool.host.connection(), actor.running.uuid)


def _die(stage: Stage, event: Event) -> None:
    """The VM's process is killed."""
    if (actor := _vm(stage, event)) is not None:
        stage.leave(actor)
        os.kill(actor.truth.pid, signal.SIGKILL)


def _resize(stage: Stage, event: Event) -> None:
    if (actor := _vm(stage, event)) is not None:
        others = [specs for specs in FLAVORS if specs != actor.truth.specs]
        specs = others[event.b % len(others)]
        stage.judge.touch(actor.truth, specs)
        actor.running.change_flavor(vms.Flavor("another", specs))


def _pin(stage: Stage, event: Event) -> None:
    """The VM is pinned to the CPUs of one cache, or of all, and libvirt says so."""
    if (actor := _vm(stage, event)) is not None:
        cpus = _cpus(event.b)
        chosen = tuple(cpu in cpus for cpu in range(max(os.sched_getaffinity(0)) + 1))
        with stage.moving(actor):
            domain = actor.running.domain
            domain.pinEmulator(chosen, LIVE)
            for number in range(actor.vcpus):
                domain.pinVcpuFlags(number, chosen, LIVE)
            for number in range(actor.iothreads):
                domain.pinIOThread(number + 1, chosen, LIVE)


def _confine(stage: Stage, event: Event) -> None:
    """The VM's threads get other CPUs, of which nobody is told."""
    if (actor := _vm(stage, event)) is not None:
        with stage.moving(actor):
            for tid in actor.truth.tasks():
                # Its cgroup may not have these CPUs.
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(tid, _cpus(event.b))


def _cpus(number: int) -> frozenset[int]:
    every = sorted(os.sched_getaffinity(0))
    half = len(every) // 2
    return (frozenset(every), frozenset(every[:half]), frozenset(every[half:]))[number % 3]


def _plug(stage: Stage, event: Event) -> None:
    """The VM gets another I/O thread, or another vCPU."""
    if (actor := _vm(stage, event)) is None:
        return
    with stage.moving(actor):
        if event.b % 3 == 0 and actor.vcpus == 1:
            actor.vcpus += 1
            actor.running.domain.setVcpusFlags(actor.vcpus, LIVE)
        elif actor.iothreads < MOST_IOTHREADS:
            actor.iothreads += 1
            actor.running.domain.addIOThread(actor.iothreads, LIVE)


# The agent.


def _kill(stage: Stage, event: Event) -> None:
    """The agent is killed at any moment of what it does for another event."""
    _meanwhile(stage, event)
    time.sleep(_moment(event))
    stage.kill_agent(wait=event.c % 2 == 0)


def _kill_at_write(stage: Stage, event: Event) -> None:
    """The agent is killed while one of its writes waits, and dies before it is made."""
    if _signalled_at_write(stage, event, signal.SIGKILL):
        stage.kill_agent(wait=event.c % 2 == 0)


def _stop_at_write(stage: Stage, event: Event) -> None:
    """The agent is stopped while one of its writes waits; something happens, and the agent goes on."""
    _signalled_at_write(stage, event, signal.SIGSTOP)
    try:
        _meanwhile(stage, Event(event.name, event.b, event.c, event.a))
        time.sleep(_moment(event))
    finally:
        stage.signal_agent(signal.SIGCONT)


def _signalled_at_write(stage: Stage, event: Event, number: signal.Signals) -> bool:
    """Whether the agent came to that write in time."""
    assert stage.agent.pid is not None
    before = len(stage.judge.signalled)
    stage.judge.arm(stage.agent.pid, 1 + event.b % WRITES, number)
    for turn in range(TRIES):
        _meanwhile(stage, Event(event.name, event.a + turn, event.b + turn, event.c + 7 * turn))
        until = time.monotonic() + COMES
        while len(stage.judge.signalled) == before and time.monotonic() < until:
            time.sleep(0.05)
        if len(stage.judge.signalled) > before:
            return True
    stage.judge.arm(0, 0, number)
    # It may have come to it a moment ago.
    return len(stage.judge.signalled) > before


def _stop(stage: Stage, event: Event) -> None:
    """The agent is stopped for a while, and something happens meanwhile."""
    with stage.stopped_agent():
        _meanwhile(stage, event)
        time.sleep(_moment(event))


def _restart(stage: Stage, event: Event) -> None:
    stage.agent.stop()
    _meanwhile(stage, event)
    stage.agent.start(wait=event.c % 2 == 0)


def _reload(stage: Stage, event: Event) -> None:
    """The operator changes the policy, which takes no VM's ways."""
    stage.reload_agent(POLICIES[event.a % len(POLICIES)])


def _meanwhile(stage: Stage, event: Event) -> None:
    """Something that the agent has to act on."""
    act = (_resize, _start, _resize, _end, _die, _foreign_comes)[event.c // 7 % 6]
    (act if stage.actors else _start)(stage, event)


# Others.


def _lock(stage: Stage, event: Event) -> None:
    """Another program holds the lock on resctrl for a while."""
    with stage.held_lock():
        _meanwhile(stage, event)
        time.sleep(2 * _moment(event))


def _foreign_comes(stage: Stage, event: Event) -> None:
    """Another program makes a group, and mostly gives it ways and a task."""
    name = FOREIGN[event.a % len(FOREIGN)]
    # The kernel refuses where there is no CLOSID or RMID left, or the ways are an exclusive group's.
    with stage.meddling(politely=event.a % 4 > 0):
        (stage.root / name).mkdir(exist_ok=True)
        if event.b % 2:
            foreign.write(stage.root / name / "tasks", str(stage.stranger()))
        if event.b % 3:
            foreign.set_masks(stage.root, name, _ways(stage, event))


def _foreign_goes(stage: Stage, event: Event) -> None:
    with stage.meddling(politely=event.a % 4 > 0):
        os.rmdir(stage.root / FOREIGN[event.a % len(FOREIGN)])


def _other_default_ways(stage: Stage, event: Event) -> None:
    """Another program gives the default group other ways."""
    with stage.meddling(politely=event.a % 4 > 0):
        foreign.set_masks(stage.root, "", _ways(stage, event))


def _ways(stage: Stage, event: Event) -> int:
    """One to three neighbouring ways."""
    size = 1 + event.b // 6 % 3
    return ((1 << size) - 1) << event.c % (stage.ways - size + 1)


def _remove_ours(stage: Stage, event: Event) -> None:
    """Another program removes a group of ours."""
    if (name := choose(stage.groups_of_ours(), event.b)) is not None:
        with stage.meddling(politely=event.a % 4 > 0):
            os.rmdir(stage.root / name)


def _stray(stage: Stage, event: Event) -> None:
    """Another program moves a task of a VM to the default group."""
    if (actor := _vm(stage, event)) is not None and (tid := choose(sorted(actor.truth.tasks()), event.b)) is not None:
        with stage.meddling(politely=event.a % 4 > 0):
            foreign.write(stage.root / "tasks", str(tid))


EVENTS: Mapping[str, Entry] = {
    "start": Entry(_start, 10),
    "end": Entry(_end, 3),
    "die": Entry(_die, 2),
    "resize": Entry(_resize, 6),
    "pin": Entry(_pin, 3),
    "confine": Entry(_confine, 1),
    "plug": Entry(_plug, 2),
    "kill": Entry(_kill, 5),
    "kill-at-write": Entry(_kill_at_write, 10),
    "stop-at-write": Entry(_stop_at_write, 4),
    "stop": Entry(_stop, 2),
    "restart": Entry(_restart, 1),
    "reload": Entry(_reload, 2),
    "lock": Entry(_lock, 2),
    "foreign-comes": Entry(_foreign_comes, 3),
    "foreign-goes": Entry(_foreign_goes, 2),
    "other-default-ways": Entry(_other_default_ways, 2),
    "remove-ours": Entry(_remove_ours, 1),
    "stray": Entry(_stray, 1),
}
"""Every kind of event by its name."""
