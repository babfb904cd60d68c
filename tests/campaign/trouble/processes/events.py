# SPDX-License-Identifier: Apache-2.0
"""What happens by chance, as a table, and the live migrations among it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable

import libvirt

from tests.campaign.trouble.processes.migration import Migration
from tests.campaign.trouble.processes.stage import FLAVORS, MOST_VMS, Actor, Stage
from tests.functional.agent.stopped import stopped
from tools.lab import processes, vms

Event = Callable[[Stage, random.Random], None]
Meanwhile = Callable[[Stage, Migration, random.Random], None]

MOST_ELSEWHERE = 2
"""VMs of the other host."""

SLOWLY = 1
"""MiB of memory a second that are sent where something happens meanwhile."""

END_PATIENCE = 10.0
"""Seconds that a libvirtd takes at most to end its part of a migration that has failed."""


def vm_leaves(stage: Stage, luck: random.Random) -> None:
    """A VM migrates to the other host."""
    if not stage.actors:
        return stage.start_vm(luck)
    while len(stage.others) >= MOST_ELSEWHERE:
        _forget(stage, stage.others, stage.others[0])
    stage.left += _migrate(stage, luck.choice(stage.actors), luck, luck.choice(MEANWHILE))


def vm_comes(stage: Stage, luck: random.Random) -> None:
    """A VM migrates from the other host to this one: it was here before, or was started there."""
    if len(stage.actors) >= MOST_VMS:
        return vm_leaves(stage, luck)
    if not stage.others:
        stage.others.append(stage.run_vm(stage.other, luck.choice(FLAVORS)))
        stage.tell_truth()
    actor = luck.choice(stage.others)
    if luck.random() < 0.3:
        stage.resize(actor, luck.choice(FLAVORS))
    stage.came += _migrate(stage, actor, luck, luck.choice(MEANWHILE))


def vm_leaves_and_comes_back(stage: Stage, luck: random.Random) -> None:
    """The agent sees all of it, or is stopped meanwhile and finds another process of the VM."""
    if not stage.actors:
        return stage.start_vm(luck)
    assert stage.agent.pid is not None
    with stopped(stage.agent.pid) if luck.random() < 0.5 else contextlib.nullcontext():
        stage.left += _migrate(stage, luck.choice(stage.actors), luck, nothing)
        stage.came += _migrate(stage, stage.others[-1], luck, nothing)


def _migrate(stage: Stage, actor: Actor, luck: random.Random, meanwhile: Meanwhile) -> bool:
    """A VM migrates, and something happens meanwhile; whether the VM runs on the other one of the hosts then.

    Until its process here has ended, its promise is in force as before: that it migrates changes nothing.
    """
    is_leaving = actor in stage.actors
    source, target = (stage.actors, stage.others) if is_leaving else (stage.others, stage.actors)
    stage.happened.append(f"  {meanwhile.__name__}")
    bandwidth = 0 if meanwhile is nothing else luck.choice((0, SLOWLY))
    host = stage.other if is_leaving else stage.host
    with Migration(actor.running, host, undefines=luck.random() < 0.7, bandwidth=bandwidth) as migration:
        if not migration.has_begun:
            raise AssertionError("a migration does not begin") from migration.error
        target.append(arriving := stage.actor(migration.arriving, actor.truth.specs))
        stage.tell_truth()
        meanwhile(stage, migration, luck)
    if migration.error is not None and meanwhile not in ENDS_IT:
        raise migration.error
    with contextlib.suppress(TimeoutError):
        what = "one of the two libvirtds giving the VM up"
        processes.wait_until(lambda: not (_runs(actor) and _runs(arriving)), what, END_PATIENCE)
    has_moved = _runs(arriving)
    stage.happened[-1] += f": it {'has moved' if has_moved else 'has not moved'}"
    if has_moved or not _runs(actor):
        # Where the source can't know of the success, it keeps the VM, and leaves it to the operator to end it.
        _forget(stage, source, actor, end=_runs(actor))
    if not has_moved:
        _forget(stage, target, arriving)
    return has_moved


def _runs(actor: Actor) -> bool:
    """Whether a VM runs where it was seen to."""
    if processes.start_time(actor.truth.pid) is None:
        return False
    try:
        return bool(actor.running.domain.isActive())
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise
        return False


def _forget(stage: Stage, actors: list[Actor], actor: Actor, *, end: bool = True) -> None:
    """A VM of one host is no more.

    :param end: whether to have libvirt end it, or wait until it has; it also forgets its definition.
    """
    actors.remove(actor)
    stage.tell_truth()
    if end:
        vms.remove(actor.running.host.connection(), actor.running.uuid)


# What happens while a VM migrates.


def nothing(stage: Stage, migration: Migration, luck: random.Random) -> None: ...


def it_is_cancelled(stage: Stage, migration: Migration, luck: random.Random) -> None:
    time.sleep(luck.uniform(0.0, 0.3))
    migration.cancel()


def the_receiver_is_killed(stage: Stage, migration: Migration, luck: random.Random) -> None:
    """The QEMU that is to run the VM, or runs it by then."""
    time.sleep(luck.uniform(0.0, 0.3))
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(pid := migration.arriving.pid, signal.SIGKILL)
        processes.wait_until(lambda: processes.start_time(pid) is None, "the end of a killed QEMU", END_PATIENCE)


def the_agent_is_killed(stage: Stage, migration: Migration, luck: random.Random) -> None:
    stage.kill_agent(luck)


def the_agent_is_stopped_until_it_is_over(stage: Stage, migration: Migration, luck: random.Random) -> None:
    assert stage.agent.pid is not None
    with stopped(stage.agent.pid):
        migration.join()
        time.sleep(luck.uniform(0.0, 0.3))


def libvirtd_is_killed(stage: Stage, migration: Migration, luck: random.Random) -> None:
    """The one of this host; when it is started again, it decides what becomes of its part of the migration."""
    time.sleep(luck.uniform(0.0, 0.3))
    stage.host.kill()
    time.sleep(luck.random())
    stage.host.start()


MEANWHILE: tuple[Meanwhile, ...] = (
    *(nothing, nothing, nothing, it_is_cancelled, it_is_cancelled, the_receiver_is_killed),
    *(the_agent_is_killed, the_agent_is_stopped_until_it_is_over, libvirtd_is_killed),
)
ENDS_IT = (it_is_cancelled, the_receiver_is_killed, libvirtd_is_killed)
"""After these, a migration may have failed."""

EVENTS: tuple[Event, ...] = (
    *(Stage.start_vm, Stage.start_vm, Stage.start_vm, Stage.end_vm, Stage.kill_vm),
    *(Stage.resize_vm, Stage.resize_vm, Stage.resize_vm),
    *(vm_leaves, vm_leaves, vm_leaves, vm_comes, vm_comes, vm_leaves_and_comes_back),
    *(Stage.kill_agent, Stage.kill_agent_at_a_write, Stage.kill_agent_at_a_write, Stage.kill_agent_at_a_write),
    *(Stage.stop_agent_for_a_while, Stage.restart_agent, Stage.reload_agent, Stage.kill_gateway),
    Stage.stop_gateway_for_a_while,
    *(Stage.exchange_agent, Stage.overflow_inotify),
    *(Stage.kill_libvirtd, Stage.fill_the_disk, Stage.fail_counters, Stage.hold_the_lock),
)


def lacking(stage: Stage) -> list[Event]:
    """What has not happened yet, and has to happen in each run."""
    counts = ((stage.outcome.kills, Stage.kill_agent), (stage.left, vm_leaves), (stage.came, vm_comes))
    return [event for count, event in counts if not count]
