# SPDX-License-Identifier: Apache-2.0
"""The agent's life: a pass when something happened, and a pass when nothing did for a while."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Set
from dataclasses import replace

from oslo_config import cfg

from vmqos import allocation
from vmqos.agent.act.mbm_counters import assign_counters
from vmqos.agent.courtesy import Courtesy
from vmqos.agent.early_start import EarlyStart
from vmqos.agent.observe.owed import Claim, Owed
from vmqos.agent.observe.process_ends import ProcessEnds
from vmqos.agent.observe.running_vms import WAITING, RunningVms, VmList
from vmqos.agent.observe.starting_vms import StartWatch
from vmqos.agent.observe.told_flavors import ToldFlavors
from vmqos.agent.reconcile import GaveWay, Reconciler
from vmqos.agent.remember import changes
from vmqos.agent.remember.announce import LIBVIRT, RESCTRL, announce, announce_other_reason
from vmqos.agent.remember.event_log import EventLog
from vmqos.agent.remember.pass_times import PassTimes
from vmqos.agent.remember.revision import Revision
from vmqos.agent.snapshot import Health, Snapshot
from vmqos.agent.steps import Change
from vmqos.agent.trial import Trials
from vmqos.conf import keystone, loader
from vmqos.conf.exceptions import ConfigurationError
from vmqos.conf.libvirt import DEFAULT_GROUP
from vmqos.daemon import notify
from vmqos.daemon.backoff import Backoff
from vmqos.daemon.log_once import LogOnce
from vmqos.daemon.wakeup import Wakeup
from vmqos.extra_specs import resources
from vmqos.host.resctrl_access import Closer
from vmqos.hypervisor.connection import Call, Connection
from vmqos.hypervisor.model import Process
from vmqos.reason import NO_REASON, Code, Reason, of_error
from vmqos.resctrl import exceptions, mount, topology
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem
from vmqos.resctrl.topology import CacheTopology

LOG = logging.getLogger(__name__)

DYING_POLL = 0.1
"""Seconds until the next look at a VM that libvirt no longer lists and whose process still lives."""

DYING_PATIENCE = 10.0
"""Seconds after which only audits look at such a VM: libvirt has lost it, and it may live for ever."""

ANSWER_PATIENCE = 1.0
"""Seconds that a pass waits for libvirt, which answers within milliseconds; later answers get a pass of their own."""

ANSWER_PATIENCE_ONCE = 30.0
"""Seconds that ``--once`` waits for libvirt: no later pass could use a late answer."""

HUNG_AFTER = 5.0
"""Seconds after which the agent tells the operator that libvirt has not answered a call."""

HOTPLUG_SETTLES = 1.0
"""Seconds after which another full audit follows the one that saw CPUs come or go: the kernel calls a CPU online before
it knows the CPU's caches and has opened them to resctrl."""

PASSES_IN_A_ROW = 4
"""How many passes may follow each other at once, as long as each gets further."""

BREATHS = (0.02, 0.25)
"""Seconds until the next pass after :data:`PASSES_IN_A_ROW` that all got further, the first time and at most. Other
programs may want resctrl's lock, too."""

RETRY_DELAYS = (0.1, 5.0)
"""Seconds from a pass that failed to the next one, the first time and at most, unless an audit is due before."""

ENDING_PATIENCE = 10.0
"""Seconds after which an agent that ends begins no further pass to put back what was only tried. Its unit gives it 45
(``TimeoutStopSec``), and a pass may wait for the lock for as long as ``[resctrl] lock_timeout``."""

SHORTEST_PAUSE = 0.01
"""Seconds between two passes, at least, where no event called for the second one."""

_PASS = "pass"
"""The key under which the back-off and the log keep what concerns a whole pass."""


def policy_from(conf: cfg.ConfigOpts) -> allocation.Policy:
    """The ``[allocation]`` section as the planner wants it.

    :raises vmqos.conf.exceptions.ConfigurationError: if it lists a shared class that is not possible.
    """
    section = conf.allocation
    try:
        classes = tuple(map(resources.class_of, section.shared_classes))
    except ValueError as error:
        raise ConfigurationError(f"{loader.place(conf, 'allocation', 'shared_classes')}: {error}") from error
    return allocation.Policy(
        default_ways_min=section.default_ways_min,
        use_shareable_ways=section.use_shareable_ways,
        reserved_ways=CapacityBitmask.parse(section.reserved_ways),
        when_full=allocation.WhenFull(section.when_full),
        kernel_exclusive=section.kernel_exclusive,
        shared_classes=tuple(dict.fromkeys(classes)),
        other_classes=section.other_classes,
        placement_counts=bool(conf.placement.provider_yaml) or keystone.is_configured(conf, "placement"),
    )


class Agent:
    """The agent. :meth:`run` is its whole life; the other methods may be called from any thread.

    :param conf: the checked configuration.
    :param read_again: reads the configuration anew for :meth:`reload`, and checks it.
    :raises vmqos.conf.exceptions.ConfigurationError: if its sections contradict each other.
    """

    def __init__(self, conf: cfg.ConfigOpts, read_again: Callable[[], cfg.ConfigOpts] | None = None) -> None:
        self.conf = conf
        self.resctrl = conf.resctrl
        """The section as it was at the start: another one needs a restart."""
        self._hypervisor_hostname: str | None = conf.placement.hypervisor_hostname
        self._read_again = read_again
        self.uri: str = conf.libvirt.uri
        self.started = time.monotonic()
        self.health = Health()
        self.pass_times = PassTimes()
        self.events = EventLog()
        self.revision = Revision(self.events.epoch)
        self._seen = changes.Seen()
        self.backoff = Backoff(conf.agent.retry_delay_min, conf.agent.retry_delay_max)
        self.filesystem = Filesystem(conf.resctrl.path)
        self._closer = Closer(conf.resctrl.path, conf.resctrl.readers_group)
        self.flavors = ToldFlavors(keystone.is_configured(conf, "nova"), self._on_change)
        self._courtesy = Courtesy()
        flavors = self.flavors if self.flavors.is_on else None
        self.reconciler = Reconciler(self.filesystem, self.backoff, flavors, self._courtesy)
        leaves_incoming = conf.libvirt.incoming_memory == DEFAULT_GROUP
        self.connection = Connection(
            conf.libvirt.uri, self._on_change, conf.libvirt.run_dir, tells_of_waiting=leaves_incoming
        )
        self._early = EarlyStart(self.filesystem, self.reconciler.starting, leaves_incoming=leaves_incoming)
        self.reconciler.is_wanted = lambda: self._early.is_at_work
        self.start_watch = StartWatch(conf.libvirt.run_dir, self._early.begin, self._on_end)
        self._wakeup = Wakeup()
        self._calm = threading.Event()
        """Whether each VM is served that is known to have ended or changed."""
        self.trials = Trials(self._wakeup.set)
        self._once = LogOnce(LOG)
        self._owed = Owed()
        self._retry = Backoff(*RETRY_DELAYS)
        self._breath = Backoff(*BREATHS)
        self._running_vms = RunningVms(self.connection, self._wakeup.set, self._courtesy)
        self.reconciler.has_news = lambda: self._running_vms.has_news
        self._ends = ProcessEnds(self._on_process_end)
        self._follows_ends = False
        self._vm_list = VmList()
        self._patience = ANSWER_PATIENCE
        self._policy = policy_from(conf)
        self._topology = CacheTopology()
        self._topology_read_for = 0
        self._caches: tuple[int, ...] | None = None
        self._online = topology.online_cpus(conf.resctrl.sysfs_cpu_path)
        self._watchdog: float | None = None
        self._stop = False
        self._reload = False
        self._next_full = 0.0
        self._settles_at: float | None = None
        self._dying_until = 0.0

    @property
    def snapshot(self) -> Snapshot:
        """What was known at the end of the last pass."""
        return self.reconciler.snapshot

    @property
    def hostname(self) -> str | None:
        """The compute node's hypervisor hostname in Nova; ``None`` where libvirt is to tell it and did not yet."""
        return self._hypervisor_hostname or self.connection.hostname

    @property
    def starting(self) -> bool:
        """Whether the first look at the host has not ended yet, and nothing is known to be wrong."""
        if self.health.looked or self.health.last_error or self.unanswered():
            return False
        return self.connection.is_connected or not self.connection.was_tried

    def unanswered(self) -> Call | None:
        """The call that libvirt should have answered by now, if there is one."""
        call = self.connection.under_way
        return call if call is not None and time.monotonic() - call.since > HUNG_AFTER else None

    def give_way_to_vms(self, longest: float) -> None:
        """Wait while a VM is about to get its group or its first thread, or has ended or changed and is not served yet.

        Another thread that computes or reads would take half of the loop's time: Python runs one of them at a time.

        :param longest: seconds to wait at most.
        """
        until = time.monotonic() + longest
        self._early.give_way(longest)
        if not self._calm.is_set():
            self._calm.wait(max(0.0, until - time.monotonic()))

    def stop(self) -> None:
        """End :meth:`run` after the pass that runs now. The VMs keep their groups."""
        self._stop = True
        self._wakeup.set()

    def reload(self) -> None:
        """Read the configuration files again before the next pass."""
        self._reload = True
        self._wakeup.set()

    def run(self) -> None:
        """Watch over the host until :meth:`stop`."""
        self.connection.start()
        if self.conf.libvirt.watch_starts:
            self.start_watch.start()
        self._watchdog = watchdog = notify.watchdog_interval()
        self._follows_ends = True
        try:
            while not self._stop:
                if self._reload:
                    self._reload = False
                    self._read_configuration_again()
                self._run_passes_whatever_happens()
                self._notify(f"READY=1\nWATCHDOG=1\nSTATUS={self._summary()}")
                self._calm.set()
                if self._running_vms.has_news:
                    # It was told after the last pass knew what there is to look at.
                    self._calm.clear()
                self._wakeup.wait(min(self._pause(), watchdog / 3) if watchdog else self._pause())
            self._end_trials()
        finally:
            self._notify("STOPPING=1")
            self.start_watch.close()
            self._ends.close()
            self._running_vms.close()
            self.connection.close()

    def run_once(self) -> bool:
        """Look at everything once and do all that follows from it; return whether that went without an error."""
        self.connection.start(wait=True)
        self._patience = ANSWER_PATIENCE_ONCE
        deadline = time.monotonic() + ANSWER_PATIENCE_ONCE
        try:
            self.run_passes()
            while self._is_owing_looks_or_moves() and time.monotonic() < deadline:
                self._wakeup.wait(self._pause())
                self.run_passes()
            return not self.health.resctrl_error and self._vm_list.answered
        finally:
            self._running_vms.close()
            self.connection.close()

    def _is_owing_looks_or_moves(self) -> bool:
        """Whether the agent still has to look at VMs again, or to move tasks."""
        return self.reconciler.is_unfinished or (bool(self._vm_list.troubles) and self._vm_list.due is not None)

    def run_passes(self) -> None:
        """One pass, and more as long as each gets further."""
        for number in range(PASSES_IN_A_ROW):
            if number and self._watchdog:
                # Each pass may have waited for the lock for a third of the time in which systemd wants to hear of us.
                self._notify("WATCHDOG=1")
            if not self._run_pass():
                self._breath.succeed(_PASS)
                return
        self._breath.fail(_PASS, NO_REASON)

    def _end_trials(self) -> None:
        """Put back what is tried on a VM, or was until just now: it does not outlive the agent."""
        until = time.monotonic() + ENDING_PATIENCE
        if not (self.trials.close() or self._is_anything_tried()):
            return
        self._run_passes_whatever_happens()
        while (self.reconciler.is_unfinished or self._is_anything_tried()) and time.monotonic() < until:
            self._wakeup.wait(self._pause())
            self._run_passes_whatever_happens()

    def _is_anything_tried(self) -> bool:
        """Whether a VM had what is only tried on it at the end of the last pass that ended well."""
        return any(record.request.trial for record in self.snapshot.vms.values())

    def _run_passes_whatever_happens(self) -> None:
        try:
            self.run_passes()
        except Exception as error:  # a pass catches its own errors; this one came from the code that handles them
            self._retry.fail(_PASS, of_error(error))
            self._once.log(logging.ERROR, "passes", "a pass failed unexpectedly: %s", error, error=error)

    def _run_pass(self) -> bool:
        began = time.monotonic()
        self._note_changes_of_the_host(began)
        claim, again, error = self._owed.claim(), False, ""
        if claim.is_news:
            self._next_full = began + self.conf.agent.full_audit_interval
        try:
            taken_over = self._look_at_vms(claim)
            # Nothing else may call for the pass that makes an audit which was put off.
            again = self._act(taken_over) or taken_over is not claim
        except GaveWay:
            again = True
        except exceptions.ResctrlError as found:
            error = self._failed_on_resctrl(self._better(found))
        except Exception as found:
            # Whatever went wrong, the agent must go on watching the promises.
            error = f"{type(found).__name__}: {found}"
            self._once.log(logging.ERROR, _PASS, "a pass failed unexpectedly: %s", error, error=found)
            self.reconciler.forget()
        else:
            self._ended_well(taken_over)
        if error:
            self._retry.fail(_PASS, Reason(Code.OTHER, error))
            self.health = replace(self.health, last_error=error, failed_at=time.monotonic())
            if (listed := self._vm_list).answered:
                self.reconciler.note_ends(listed.vms.keys() | listed.unseen)
        self._courtesy.end_pass()
        took = time.monotonic() - began
        self.pass_times.add(took, bool(error))
        self.health = replace(
            self.health,
            passes=self.health.passes + 1,
            last_pass_seconds=took,
            looked_at=self._vm_list.looked_at,
            unserved=self._unserved(error),
        )
        self._tell_changes(error)
        return again

    def _failed_on_resctrl(self, cause: exceptions.ResctrlError) -> str:
        """Note that resctrl could not be read or written; return why."""
        error = str(cause)
        if self.health.resctrl_error not in ("", error):
            announce_other_reason(RESCTRL, error, self._once)
        self.health = replace(self.health, resctrl_error=error)
        if isinstance(cause, exceptions.MountError):
            self.reconciler.lose(of_error(cause), self._vm_list.vms)
            self.trials.note(self.snapshot)
        elif not isinstance(cause, exceptions.LockTimeout):
            self.reconciler.forget()
        return error

    def _tell_changes(self, error: str) -> None:
        """Remember as events, and log, what this pass changed, or found changed.

        :param error: why the pass failed; empty where it did not.
        """
        troubles = {
            RESCTRL: self.health.resctrl_error,
            LIBVIRT: self._trouble_of_libvirt(),
            "passes": "" if self.health.resctrl_error else error,
        }
        seen = changes.Seen(self.snapshot.vms, troubles)
        told = self.events.add(changes.between(self._seen, seen))
        announce(self._seen, seen, told)
        before, now = self._seen.troubles.get(LIBVIRT), troubles[LIBVIRT]
        if not now:
            self._once.end(LIBVIRT)
        elif before and before != now:
            announce_other_reason(LIBVIRT, now, self._once)
        self._seen = seen

    def _trouble_of_libvirt(self) -> str:
        """Why libvirt does not tell of VMs now; empty where it does, or may just not have answered yet."""
        is_lost, why = self.connection.was_tried and not self.connection.is_connected, self.connection.last_error
        if is_lost and why:
            return f"no connection to {self.uri}: {why}"
        unanswered = self.unanswered()
        return f"libvirt does not answer {unanswered.name}" if unanswered else ""

    def _note_changes_of_the_host(self, now: float) -> None:
        """Order a look at everything if CPUs or caches came or went, or if a full audit is due."""
        online = topology.online_cpus(self.resctrl.sysfs_cpu_path)
        settled = self._settles_at is not None and now >= self._settles_at
        if settled:
            self._settles_at = None
        hotplug, self._online = online != self._online, online
        if hotplug:
            self._settles_at = now + HOTPLUG_SETTLES
        # The last pass may have seen other caches than the pass before it: then all VMs are looked at anew.
        before, resctrl = self._caches, self.reconciler.snapshot.resctrl
        if resctrl is not None:
            self._caches = resctrl.capabilities.l3_caches
        changed = before is not None and before != self._caches
        if hotplug or settled or changed or now >= self._next_full:
            self._owed.note()

    def _ended_well(self, claim: Claim) -> None:
        """Note that a pass ended without an error. Its claim is paid if libvirt has said by now which VMs run."""
        self._retry.succeed(_PASS)
        self._once.end(_PASS)
        self._once.end(RESCTRL)
        self.health = replace(self.health, resctrl_error="", looked=self.health.looked or self._vm_list.answered)
        if not self._vm_list.answered:
            return
        self._owed.pay(claim, self._vm_list.vms)
        self.health = replace(self.health, passed_at=time.monotonic())

    def _unserved(self, error: str) -> dict[str, str]:
        """Why VMs that libvirt lists are not served, by UUID.

        :param error: why the pass failed; empty where it did not.
        """
        listed, known = self._vm_list, self.snapshot.vms
        found = {
            uuid: record.request.unknown.text
            for uuid, record in known.items()
            if record.request.unknown and uuid in listed.vms
        }
        for uuid in self._owed.changed(listed.vms) & listed.vms.keys():
            found[uuid] = f"what changed of it is not acted on yet: {error}" if error else WAITING
        found |= {uuid: WAITING for uuid in listed.unseen}
        return found | {
            uuid: why for uuid, why in listed.troubles.items() if uuid in listed.vms or uuid in listed.unseen
        }

    def _look_at_vms(self, claim: Claim) -> Claim:
        """Find out which VMs run, and how they are.

        :returns: what this pass takes over: no audit if a VM has ended or changed meanwhile, whose pass is made first.
        """
        self._vm_list = self._running_vms.look(claim.is_news, self._patience)
        # Before the pass acts: on a busy host, passes may follow each other at once for seconds.
        self._follow_ends()
        if claim.number != self._topology_read_for or not self._topology.cpus:
            self._topology = CacheTopology.read(self.resctrl.sysfs_cpu_path)
            self._topology_read_for = claim.number
        is_put_off = claim.everything and self._courtesy.is_given and self.snapshot.resctrl is not None
        return claim.without_audit() if is_put_off else claim

    def _act(self, claim: Claim) -> bool:
        found = self._vm_list
        change = Change(self._owed.changed(found.vms), found.unseen, claim.everything)
        if found.answered:
            self.reconciler.request(change, found.vms, self.trials.running)
        self._closer.close()
        self._early.give_way()
        # systemd hears of the agent between two passes only, so no pass waits for as long as the watchdog does.
        longest = self._watchdog / 3 if self._watchdog else math.inf
        with self.filesystem.lock(exclusive=found.answered, timeout=min(self.resctrl.lock_timeout, longest)):
            if not found.answered:
                # Until libvirt has said which VMs run, the agent does not know which groups are still needed.
                self.reconciler.read(self._topology, self._policy)
                return False
            before = self.reconciler.snapshot
            again = self.reconciler.run(change, found.vms, self._topology, self._policy)
            now = self.reconciler.snapshot
            self.trials.note(now, self.reconciler.given_up)
            # A monitoring group may be made some passes after its VM has come.
            if change.everything or now.vms is not before.vms:
                assign_counters(self.filesystem, now)
            return again

    def _better(self, error: exceptions.ResctrlError) -> exceptions.ResctrlError:
        """The error of the mount if resctrl is not mounted as it should be; otherwise the error itself."""
        if isinstance(error, exceptions.LockTimeout):
            return error
        try:
            mount.find(self.filesystem.root)
        except exceptions.ResctrlError as cause:
            return cause
        except Exception as unexpected:
            self._once.log(logging.ERROR, "mount", "the mounts can't be read: %s", unexpected, error=unexpected)
        return error

    def _follow_ends(self) -> None:
        """Have the kernel tell of the ends of all VMs that are known, unless the agent acts only once."""
        if self._follows_ends:
            known = {observed.vm.process for observed in self._vm_list.vms.values()}
            self._ends.follow(known | self.reconciler.lost)

    def _on_change(self, uuid: str | None) -> None:
        if uuid is None:
            self._owed.note()
        else:
            self._running_vms.mark(uuid)
            # Not before: the loop asks for news once it has set this.
            self._calm.clear()
        self._wakeup.set()

    def _on_process_end(self, ended: Set[Process]) -> None:
        self._running_vms.note_end(ended)
        self._calm.clear()
        self._wakeup.set()

    def _on_end(self, file: str) -> None:
        """Act on the end of a VM, or of a start that failed."""
        self._early.end(file)
        self._wakeup.set()

    def _pause(self) -> float:
        """Seconds until the next pass, if nothing happens before."""
        if self.reconciler.is_unfinished and self._retry.get(_PASS) is None:
            # The last pass gave the lock back with work left.
            return 0.0
        pauses = [self.conf.agent.audit_interval]
        due = self.backoff.next_due()
        if due is not None:
            pauses.append(due or self.backoff.shortest)
        due_times = (self._retry.next_due(), self._breath.next_due(), self.trials.due)
        pauses += [wait for wait in due_times if wait is not None]
        if self._vm_list.due is not None and self._retry.get(_PASS) is None:
            pauses.append(self._vm_list.due - time.monotonic())
        if not self._vm_list.dying:
            self._dying_until = time.monotonic() + DYING_PATIENCE
        elif time.monotonic() < self._dying_until:
            pauses.append(DYING_POLL)
        return max(SHORTEST_PAUSE, float(min(pauses)))

    def _read_configuration_again(self) -> None:
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            conf = self._read_again() if self._read_again is not None else self.conf
            # Whether the agent tells Placement was decided at its start.
            policy = replace(policy_from(conf), placement_counts=self._policy.placement_counts)
        except ConfigurationError as error:
            LOG.error("the new configuration is not used: %s", error)
            return
        except Exception:
            LOG.exception("the new configuration is not used")
            return
        self.conf, self._policy = conf, policy
        self.backoff.shortest = self.conf.agent.retry_delay_min
        self.backoff.longest = self.conf.agent.retry_delay_max
        self._owed.note()
        LOG.info(
            "configuration read again; [libvirt], [api], [gateway], [nova], [placement], [telemetry], [resctrl] and "
            "[agent] state_path need a restart, and vmqos-gateway reads it only when it starts"
        )

    def _notify(self, state: str) -> None:
        notify.notify(state, self._once)

    def _summary(self) -> str:
        counts = {state: 0 for state in allocation.PromiseState}
        for record in self.snapshot.vms.values():
            counts[record.allocation.state] += 1
        told = ", ".join(f"{number} {state.value}" for state, number in counts.items())
        unserved = len(self.health.unserved)
        told = f"{told}, {unserved} not served" if unserved else told
        # The counts are of the last pass that went well then.
        return f"{told}; the last pass failed" if self.pass_times.last_failed else told
