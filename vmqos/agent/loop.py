# SPDX-License-Identifier: Apache-2.0
"""The agent's life: a pass when something happened, and a pass when nothing did for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from oslo_config import cfg

from vmqos import allocation
from vmqos.agent import notify
from vmqos.agent.assign_counters import assign_counters
from vmqos.agent.backoff import Backoff
from vmqos.agent.flavor_lookup import FlavorLookup
from vmqos.agent.inventory import Inventory
from vmqos.agent.observer import Observer, Sight
from vmqos.agent.pass_times import PassTimes
from vmqos.agent.placement_sync import PlacementSync
from vmqos.agent.reconcile import Change, Reconciler
from vmqos.agent.resctrl_access import Closer
from vmqos.agent.snapshot import CacheTopology, Health, Snapshot
from vmqos.agent.wakeup import Wakeup
from vmqos.conf.exceptions import ConfigurationError
from vmqos.hypervisor.connection import Call, Connection
from vmqos.resctrl import exceptions, mount, topology
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

DYING_POLL = 0.1
"""Seconds until a VM that libvirt no longer lists, but whose process still lives, is looked at again."""

DYING_PATIENCE = 10.0
"""Seconds after which such a VM is left to the audits: libvirt has lost it, and it may live for ever."""

ANSWER_PATIENCE = 1.0
"""Seconds that a pass waits for libvirt, which answers within milliseconds; later answers get a pass of their own."""

ANSWER_PATIENCE_ONCE = 30.0
"""The same where there is one pass only (``--once``)."""

HUNG_AFTER = 5.0
"""Seconds after which an unanswered call is worth telling."""

HOTPLUG_SETTLES = 1.0
"""Seconds after which another full audit follows the one that saw CPUs come or go: the kernel calls a CPU online before
it knows the CPU's caches and has opened them to resctrl."""

PASSES_IN_A_ROW = 4
"""How many passes may follow each other at once, as long as each gets further."""


def policy_from(conf: cfg.ConfigOpts) -> allocation.Policy:
    """The ``[allocation]`` section as the planner wants it."""
    section = conf.allocation
    return allocation.Policy(
        default_ways_min=section.default_ways_min,
        use_shareable_ways=section.use_shareable_ways,
        reserved_ways=CapacityBitmask.parse(section.reserved_ways),
        when_full=allocation.WhenFull(section.when_full),
        kernel_exclusive=section.kernel_exclusive,
    )


class Agent:
    """The loop; :meth:`run` is its whole life, the other methods may be called from any thread.

    :param conf: the checked configuration.
    :param read_again: reads it anew for :meth:`reload`, and checks it.
    :raises vmqos.conf.exceptions.ConfigurationError: if its sections contradict each other.
    """

    def __init__(self, conf: cfg.ConfigOpts, read_again: Callable[[], cfg.ConfigOpts] | None = None) -> None:
        self.conf = conf
        self._read_again = read_again
        self.uri: str = conf.libvirt.uri
        self.started = time.monotonic()
        self.health = Health()
        self.pass_times = PassTimes()
        self.backoff = Backoff(conf.agent.retry_delay_min, conf.agent.retry_delay_max)
        self.filesystem = Filesystem(conf.resctrl.path)
        self._closer = Closer(conf.resctrl.path, conf.resctrl.readers_group)
        self._configured_hostname: str | None = conf.placement.hypervisor_hostname
        self.flavors = FlavorLookup.of(conf, self._hostname, self._on_change)
        self.reconciler = Reconciler(self.filesystem, self.backoff, self.flavors)
        self.placement = PlacementSync.of(conf, self._hostname)
        self.connection = Connection(conf.libvirt.uri, self._on_change, run_dir=conf.libvirt.run_dir)
        self._wakeup = Wakeup()
        self._inventory = Inventory(self.connection)
        self._observer = Observer(self._inventory, lambda: self.connection.running, self._wakeup.set)
        self._sight = Sight()
        self._patience = ANSWER_PATIENCE
        self._hangs = False
        self._policy = policy_from(conf)
        self._topology = CacheTopology()
        self._caches: tuple[int, ...] | None = None
        self._online = topology.online_cpus(conf.resctrl.sysfs_cpu_path)
        self._stop = False
        self._reload = False
        self._changes = 1
        self._changes_seen = 0
        self._next_full = 0.0
        self._dying_until = 0.0

    @property
    def snapshot(self) -> Snapshot:
        """What was known at the end of the last pass."""
        return self.reconciler.snapshot

    @property
    def simulated(self) -> bool:
        """Whether resctrl is the simulator; ``False`` where there is none at all."""
        try:
            return mount.find(self.filesystem.root).simulated
        except exceptions.ResctrlError:
            return False

    @property
    def starting(self) -> bool:
        """Whether the first look at the host is still under way, and nothing is known to be wrong."""
        if self.health.looked or self.health.last_error or self.unanswered():
            return False
        return self.connection.is_connected or not self.connection.was_tried

    def unanswered(self) -> Call | None:
        """The call that libvirt should have answered by now, if there is one."""
        call = self.connection.under_way
        return call if call is not None and time.monotonic() - call.since > HUNG_AFTER else None

    def stop(self) -> None:
        """End :meth:`run` after the pass under way. The VMs keep their groups."""
        self._stop = True
        self._wakeup.set()

    def reload(self) -> None:
        """Read the configuration files again before the next pass."""
        self._reload = True
        self._wakeup.set()

    def run(self) -> None:
        """Watch over the host until :meth:`stop`."""
        self.connection.start()
        for part in (self.flavors, self.placement):
            part.start()
        watchdog = notify.watchdog_interval()
        try:
            while not self._stop:
                if self._reload:
                    self._reload = False
                    self._read_configuration_again()
                self.run_passes()
                notify.notify(f"READY=1\nWATCHDOG=1\nSTATUS={self._summary()}")
                self._wakeup.wait(min(self._pause(), watchdog / 3) if watchdog else self._pause())
        finally:
            notify.notify("STOPPING=1")
            for part in (self.placement, self.flavors):
                part.stop()
            self._observer.close()
            self.connection.close()

    def run_once(self) -> bool:
        """One look at everything and all that follows from it; whether that went without an error."""
        self.connection.start(wait=True)
        self._patience = ANSWER_PATIENCE_ONCE
        try:
            self.run_passes()
            return not self.health.resctrl_error and self._sight.answered
        finally:
            self._observer.close()
            self.connection.close()

    def run_passes(self) -> None:
        """One pass, and more as long as each gets further."""
        for _ in range(PASSES_IN_A_ROW):
            if not self._run_pass():
                break

    def _run_pass(self) -> bool:
        began = time.monotonic()
        changes, again, failed = self._changes, False, True
        online = topology.online_cpus(self.conf.resctrl.sysfs_cpu_path)
        hotplug, self._online = online != self._online, online
        everything = changes != self._changes_seen or began >= self._next_full or hotplug or self._caches_changed()
        self._changes_seen = changes
        if everything:
            self._next_full = began + (HOTPLUG_SETTLES if hotplug else self.conf.agent.full_audit_interval)
        try:
            again = self._observe_and_act(everything)
        except exceptions.ResctrlError as error:
            cause = self._better(error)
            if str(cause) != self.health.resctrl_error:
                LOG.error("%s", cause)
            self.health = replace(self.health, resctrl_error=str(cause), last_error=str(cause))
            if isinstance(cause, exceptions.MountError):
                self.reconciler.lose(str(cause), self._sight.vms)
            elif not isinstance(cause, exceptions.LockTimeout):
                self.reconciler.forget()
        except Exception as error:
            # Whatever one VM made us stumble over, the others' promises are still to be watched.
            LOG.exception("a pass failed")
            self.reconciler.forget()
            self.health = replace(self.health, last_error=str(error))
        else:
            failed = False
            looked = self.health.looked or self._sight.answered
            self.health = replace(self.health, resctrl_error="", looked=looked)
        self.placement.offer(self.snapshot)
        took = time.monotonic() - began
        self.pass_times.add(took, failed)
        self.health = replace(self.health, passes=self.health.passes + 1, last_pass_seconds=took)
        return again

    def _caches_changed(self) -> bool:
        """Whether the last pass saw other caches than the one before it: then nothing is where it was."""
        if self.snapshot.view is None:
            return False
        before, self._caches = self._caches, self.snapshot.view.capabilities.l3_caches
        return before is not None and before != self._caches

    def _observe_and_act(self, everything: bool) -> bool:
        self._sight = sight = self._observer.look(everything, self._patience)
        self._watch_libvirt()
        if everything or not self._topology.cpus:
            self._topology = CacheTopology.read(self.conf.resctrl.sysfs_cpu_path)
        self._closer.close()
        with self.filesystem.lock(exclusive=sight.answered, timeout=self.conf.resctrl.lock_timeout):
            if not sight.answered:
                # Without libvirt's word nobody knows which groups are still needed.
                self.reconciler.peek(self._topology)
                return False
            change = Change(sight.changed, sight.unseen, everything)
            again = self.reconciler.run(change, sight.vms, self._topology, self._policy)
            if everything or sight.changed:
                assign_counters(self.filesystem, self.snapshot)
            return again

    def _better(self, error: exceptions.ResctrlError) -> exceptions.ResctrlError:
        """The cause behind the error, where resctrl is not even there."""
        if isinstance(error, exceptions.LockTimeout):
            return error
        try:
            mount.find(self.filesystem.root)
        except exceptions.ResctrlError as cause:
            return cause
        return error

    def _hostname(self) -> str:
        return self._configured_hostname or self.connection.hostname()

    def _on_change(self, uuid: str | None) -> None:
        if uuid is None:
            self._changes += 1
        else:
            self._inventory.mark(uuid)
        self._wakeup.set()

    def _watch_libvirt(self) -> None:
        """Say once that libvirt does not answer, and once that it does again."""
        unanswered = self.unanswered()
        if unanswered and not self._hangs:
            self._hangs = True
            LOG.warning(
                "libvirt does not answer %s: VMs that start or change are not served until it does; "
                "those that are known keep what they have",
                unanswered.name,
            )
        elif self._hangs and not unanswered and self.connection.is_connected:
            self._hangs = False
            LOG.info("libvirt answers again")

    def _pause(self) -> float:
        """Seconds until the next pass, if nothing happens before."""
        pauses = [self.conf.agent.audit_interval]
        due = self.backoff.next_due()
        if due is not None:
            pauses.append(due or self.backoff.shortest)
        if not self._sight.dying:
            self._dying_until = time.monotonic() + DYING_PATIENCE
        elif time.monotonic() < self._dying_until:
            pauses.append(DYING_POLL)
        return float(min(pauses))

    def _read_configuration_again(self) -> None:
        notify.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            if self._read_again is not None:
                self.conf = self._read_again()
        except ConfigurationError as error:
            LOG.error("the new configuration is not used: %s", error)
            return
        self._policy = policy_from(self.conf)
        self.backoff.shortest = self.conf.agent.retry_delay_min
        self.backoff.longest = self.conf.agent.retry_delay_max
        self._changes += 1
        LOG.info(
            "configuration read again; [libvirt], [api], [http], [nova], [placement], [telemetry], [resctrl] path and "
            "[agent] state_path need a restart"
        )

    def _summary(self) -> str:
        counts = {state: 0 for state in allocation.PromiseState}
        for outcome in self.snapshot.outcomes.values():
            counts[outcome.state] += 1
        return ", ".join(f"{number} {state.value}" for state, number in counts.items())
