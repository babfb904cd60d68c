# SPDX-License-Identifier: Apache-2.0
"""The VMs of this host as libvirt and /proc last showed them. A VM is looked at again when it may have changed."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from vmqos.agent.courtesy import Courtesy
from vmqos.agent.observe.looks import Done, Looks, NoThreadLeft
from vmqos.daemon import journal
from vmqos.daemon.backoff import Backoff
from vmqos.daemon.log_once import LogOnce
from vmqos.hypervisor import exceptions, processes, vm_tasks
from vmqos.hypervisor.connection import Connection
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.reason import Code, Reason, of_error

LOG = logging.getLogger(__name__)

LIST_PATIENCE = 0.1
"""Seconds that a round waits for libvirt's list while it has other work, too. The list takes some milliseconds."""

LOOK_DEADLINE = 0.1
"""Seconds until a look at one VM is left behind and the next VM has its turn. A look takes some milliseconds."""

ROUND_BUDGET = 0.3
"""Seconds in which one round begins looks. VMs that are left have their turn in the next round, after new VMs. So a new
VM waits less than a second: for the rest of one round, and in the next round for VMs that were started before it."""

SLOW_AFTER = 1.0
"""Seconds until the log reports a look that was left behind: while a VM starts, libvirt answers no client."""

QUICK_LOOK = 0.05
"""Seconds up to which a look is quick: VMs whose last look took longer come after all others."""

RETRY_DELAYS = (1.0, 10.0)
"""Seconds until the next look at a VM that could not be looked at, at first and at most. An event about the VM ends the
wait."""

ENDED_PATIENCE = 5.0
"""Seconds for which libvirt may list a VM whose process has ended: it takes the VM's cgroups down before it says so."""

ERROR_LENGTH = 300
"""Characters of an error's text that a reason repeats, at most: a VM may influence how long the text is."""

STARTING = Reason(Code.OTHER, "libvirt lists it, and its QEMU process is not found yet")
WAITING = "it is about to be looked at"
SLOW = (
    f"looking at it takes longer than {SLOW_AFTER:g} s, so all other VMs go first: either libvirt does not describe "
    "it, or /proc does not tell of its process"
)


@dataclass(frozen=True, slots=True)
class ObservedVm:
    """A VM, and the CPUs that it may run on.

    :ivar vm: the VM.
    :ivar cpus: the CPUs that at least one of its tasks may run on.
    """

    vm: VirtualMachine
    cpus: frozenset[int]


@dataclass(frozen=True, slots=True)
class VmList:
    """The VMs as they were last seen.

    :ivar vms: the VMs by UUID; each look at a VM makes a new object.
    :ivar dying: VMs that libvirt no longer lists and whose process is not gone yet.
    :ivar unseen: UUIDs of VMs that run and could not be looked at yet.
    :ivar answered: whether libvirt has ever said which VMs run: before that, nothing may be taken down.
    :ivar troubles: why VMs that libvirt lists are not known as they are now, by UUID.
    :ivar looked_at: when the last round ended that left no VM to be looked at, by the monotonic clock; ``None`` before
        the first.
    :ivar due: when another round gets further than this one, by the monotonic clock; ``None``: no VM waits for one, or
        libvirt has not listed the VMs yet.
    """

    vms: Mapping[str, ObservedVm] = field(default_factory=dict)
    dying: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    answered: bool = False
    troubles: Mapping[str, str] = field(default_factory=dict)
    looked_at: float | None = None
    due: float | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """What a look at a VM has found.

    :ivar observed: the VM.
    :ivar tasks: the VM's tasks.
    :ivar number: how many looks were ordered before this one began.
    """

    observed: ObservedVm
    tasks: Set[int]
    number: int


class RunningVms:
    """Keeps the observed VMs up to date.

    :meth:`mark` and :meth:`note_end` may be called from any thread, the other methods from one.

    A marked VM stays marked until a look that began after the mark has succeeded. Where a look at a VM fails or hangs,
    the agent goes on with what it knew of the VM, and no other VM is delayed.

    :param connection: the connection to libvirt.
    :param on_late_look: called from a thread once a look has ended, or libvirt's list has come, that no round waits for
        any more.
    :param courtesy: says for how long looks may be put off because VMs end or change.
    """

    def __init__(
        self,
        connection: Connection,
        on_late_look: Callable[[], None] = lambda: None,
        courtesy: Courtesy | None = None,
    ) -> None:
        self._connection = connection
        self._courtesy = courtesy or Courtesy()
        self._lock = threading.Lock()
        self._number = 0
        """How many looks were ordered so far: tells whether an order came before a look began."""
        self._urgent: dict[str, int] = {}
        self._marked_at = -math.inf
        self._in_turn: dict[str, int] = {}
        self._tried: dict[str, int] = {}
        """How many looks were ordered before the last look at a VM began, by UUID."""
        self._everything_since: float | None = None
        """When a look at all VMs was asked for that no list of libvirt has come for; ``None`` where none was."""
        self._lists = Looks(lambda _: connection.list_running(), on_late_look)

        def on_late() -> None:
            self._lists.wake()
            on_late_look()

        self._looks = Looks(self._look_at, on_late)
        self._slow: set[str] = set()
        self._backoff = Backoff(*RETRY_DELAYS)
        self._once = LogOnce(LOG)
        self._vms: dict[str, ObservedVm] = {}
        self._new_threads: dict[str, vm_tasks.NewThreads] = {}
        self._last = VmList()
        self._has_ended = self._has_marked = False
        self._ended_processes = set[Process]()
        self._ended: dict[str, tuple[int, float]] = {}
        """VMs whose processes have ended, by UUID: libvirt's ID of that run, and when it was noticed."""

    @property
    def has_news(self) -> bool:
        """Whether a VM has ended, or was marked, since the last :meth:`look` knew what there is to look at.

        A look that can't reach libvirt knows of nothing.
        """
        return self._has_ended or self._has_marked

    def note_end(self, ended: Set[Process]) -> None:
        """Have the :meth:`look` under way, or else the next one, not wait for libvirt, which may be ending the VM.

        :param ended: the processes that have ended; /proc is asked whether they have.
        """
        with self._lock:
            self._ended_processes |= ended
            self._has_ended = True
        self._lists.wake()
        self._looks.wake()

    def mark(self, uuid: str) -> None:
        """Have the next :meth:`look` look at this VM, before the VMs of a look at everything."""
        with self._lock:
            self._number += 1
            self._urgent[uuid] = self._number
            self._marked_at = time.monotonic()
            self._has_marked = True
        self._lists.wake()
        self._looks.wake()

    def close(self) -> None:
        """End the threads, as soon as libvirt and the kernel let them go."""
        self._looks.close()
        self._lists.close()

    def look(self, everything: bool, patience: float) -> VmList:
        """Ask libvirt which VMs run, look at the new and the marked VMs, or at all VMs, and say how they are.

        A VM stays as long as its process lives, even if libvirt does not answer or does not list it (libvirtd may just
        have been restarted): the promise belongs to the process. Where libvirt answers late, the marked VMs are looked
        at meanwhile, and the others once the answer is there. A late answer is used like a new one: if each late answer
        led to a new question, no answer might ever be in time.

        :param everything: whether to look at all VMs.
        :param patience: seconds to wait for libvirt's list; no later call waits for the same list again.
        :raises Exception: any error in asking libvirt for the list, except that libvirt can't be reached or refuses.
        """
        if everything:
            self._everything_since = time.monotonic()
        if self._has_ended and self._courtesy.gives_way():
            # The ways of what has ended are others' first; the next round asks libvirt.
            return self._without_list(self._take_ended(), due=time.monotonic())
        lists = self._lists.run(
            [] if self._lists.has_results else ["all VMs"],
            # Other work than the list is a marked VM, or the end of a look that was left behind.
            lambda: self._at_most(LIST_PATIENCE if self._looks.has_results or self._has_untried() else patience),
            math.inf,
        )
        if not lists:
            self._look_at_marked()
            # The event of a VM for which this round had no time has woken the loop for it, and will not again.
            return self._without_list(due=time.monotonic() if self._has_untried() else None)
        # There are two where a late one came at the very moment in which this one was asked for.
        listed = lists[-1]
        if listed.value is not None:
            running = self._without_ended(listed.value) if self._ended else listed.value
            self._last = self._look_at_listed(running, listed.began)
            return self._last
        # What is marked stays so, maybe for long, and no pass can do more for it now.
        self._has_marked = False
        if isinstance(listed.error, exceptions.HypervisorError):
            self._without_list()
        elif listed.error is not None:
            raise listed.error
        return self._last

    def _without_list(self, candidates: Iterable[str] | None = None, due: float | None = None) -> VmList:
        """The VMs as they are known, without those whose processes have ended, as /proc shows by itself.

        :param candidates: the VMs whose processes may have ended; ``None``: all.
        """
        if candidates is None:
            # What is told from now on is for the next round; what was told before needs none.
            self._take_ended()
        self._forget_dead(self._vms.keys() if candidates is None else candidates)
        unseen = self._last.unseen - self._vms.keys() - self._ended.keys()
        self._last = replace(self._last, vms=dict(self._vms), unseen=unseen, due=due)
        return self._last

    def _take_ended(self) -> set[str]:
        """The VMs of the processes that have ended since the last call, as the kernel has told."""
        with self._lock:
            ended, self._ended_processes, self._has_ended = self._ended_processes, set(), False
        return {uuid for uuid, observed in self._vms.items() if observed.vm.process in ended} if ended else set()

    def _at_most(self, seconds: float) -> float:
        """How long to wait for libvirt: not at all once a VM's process has ended, for libvirt may be busy with that."""
        if self._has_ended and self._courtesy.gives_way():
            return 0.0
        return min(seconds, LIST_PATIENCE) if self._has_ended else seconds

    def _without_ended(self, listed: Mapping[str, int]) -> dict[str, int]:
        """Libvirt's list without the VMs whose processes have ended; libvirt may list one for a second longer.

        :param listed: libvirt's ID of each VM that it takes to run, by UUID.
        """
        longest = time.monotonic() - ENDED_PATIENCE
        self._ended = {
            uuid: ended for uuid, ended in self._ended.items() if listed.get(uuid) == ended[0] and ended[1] > longest
        }
        return {uuid: number for uuid, number in listed.items() if uuid not in self._ended}

    def _has_untried(self) -> bool:
        """Whether a VM was marked after its last look began, and that look is not under way any more."""
        under_way = self._looks.under_way.keys()
        with self._lock:
            return any(
                number > self._tried.get(uuid, 0) for uuid, number in self._urgent.items() if uuid not in under_way
            )

    def _look_at_marked(self) -> None:
        """Look at the marked VMs, also at those that libvirt has not listed yet."""
        with self._lock:
            urgent, self._has_marked = dict(self._urgent), False
        wanted = [uuid for uuid in sorted(urgent, key=lambda uuid: urgent[uuid]) if uuid not in self._looks.under_way]
        for done in self._looks.run(wanted, lambda: self._at_most(LOOK_DEADLINE), ROUND_BUDGET):
            # A VM that is not found has ended or is only being started: the list will tell.
            if done.error is not None or done.value is not None:
                self._take(done, None)

    def _look_at_listed(self, running: Mapping[str, int], since: float) -> VmList:
        """Look at the VMs that have to be looked at, and forget those that are gone.

        :param running: libvirt's ID of each VM that runs, by UUID.
        :param since: when libvirt was asked for that.
        """
        unlisted = self._vms.keys() - running.keys()
        dying = frozenset(unlisted - self._forget_dead(unlisted))
        self._order_looks(running, since)
        looked_at = self._make_looks(running)
        owed = self._owed(running)
        for uuid in running.keys() & self._vms.keys() - owed - looked_at:
            self._look_for_new_threads(uuid)
        # The end that cut a round short is told by it. If a QEMU died while libvirtd was being restarted, libvirtd may
        # list its VM for a while.
        gone = frozenset(self._forget_dead(self._take_ended() | (owed & self._vms.keys())))
        left = owed - gone
        troubles, due = self._sum_up(left) if left else ({}, None)
        now = time.monotonic()
        with self._lock:
            if self._everything_since is not None or self._urgent.keys() - running.keys() - self._vms.keys():
                # These orders came after libvirt was asked for this list, and the next list may tell more. The event
                # may have woken the loop for this pass, and will not wake it again.
                due = now
        unseen = frozenset(running.keys() - self._vms.keys() - gone)
        all_looked_at = self._last.looked_at if left else now
        return VmList(dict(self._vms), dying, unseen, True, troubles, all_looked_at, due)

    def _make_looks(self, running: Mapping[str, int]) -> set[str]:
        """Look at the VMs that have to be looked at, as far as there is time; return those whose looks have ended."""

        def gives_way() -> bool:
            return self._has_marked and bool(self._in_turn) and self._courtesy.gives_way()

        wanted = self._wanted(running, in_turn=not gives_way())
        ended = self._looks.run(wanted, lambda: self._at_most(LOOK_DEADLINE), ROUND_BUDGET, gives_way)
        if self._has_marked and self._in_turn:
            # What is left of a look at all VMs has its turn in the next round.
            wanted = self._wanted(running, in_turn=False)
            ended += self._looks.run(wanted, lambda: self._at_most(LOOK_DEADLINE), ROUND_BUDGET)
        for done in ended:
            if done.key in running:
                self._take(done, running[done.key])
        return {done.key for done in ended}

    def _order_looks(self, running: Mapping[str, int], since: float) -> None:
        """Order a look at each VM that libvirt's list makes necessary, and forget the orders of VMs that are gone.

        :param since: when libvirt was asked for the list.
        """
        for uuid, libvirt_id in running.items():
            known = self._vms.get(uuid)
            if known is not None and known.vm.libvirt_id != libvirt_id:
                with self._lock:
                    self._number += 1
                    self._urgent[uuid] = self._number
        with self._lock:
            there = running.keys() | self._vms.keys()
            # An event may come before libvirt lists its VM. That VM is new in the next list, and is looked at anyway.
            if self._marked_at <= since:
                self._urgent = {uuid: number for uuid, number in self._urgent.items() if uuid in there}
            everything = self._everything_since is not None and self._everything_since <= since
            if everything:
                self._everything_since = None
                self._number += 1
                self._in_turn = dict.fromkeys(running, self._number)
            else:
                self._in_turn = {uuid: number for uuid, number in self._in_turn.items() if uuid in running}
            self._tried = {uuid: number for uuid, number in self._tried.items() if uuid in running}
        self._slow &= running.keys()
        self._backoff.keep_only(() if everything else running.keys())

    def _owed(self, running: Mapping[str, int]) -> set[str]:
        """The VMs that have to be looked at."""
        with self._lock:
            return {uuid for uuid in running if uuid not in self._vms or uuid in self._urgent or uuid in self._in_turn}

    def _wanted(self, running: Mapping[str, int], *, in_turn: bool = True) -> list[str]:
        """The VMs to look at in this round, in order.

        VMs whose last look took long come last. Within both parts, the new and the marked VMs come before the others,
        in the order in which they were started: where ways are few, the VM that is known first gets them.

        :param in_turn: whether to look at the VMs, too, that are looked at because all are.
        """
        under_way = self._looks.under_way
        with self._lock:
            urgent, tried, self._has_marked = dict(self._urgent), dict(self._tried), False
        others = self._vms.keys() - urgent.keys()
        wanted = [
            uuid
            for uuid in self._owed(running) - under_way.keys() - (set() if in_turn else others)
            if urgent.get(uuid, 0) > tried.get(uuid, 0) or not self._backoff.waits(uuid)
        ]
        return sorted(wanted, key=lambda uuid: (uuid in self._slow, uuid in others, running[uuid]))

    def _look_at(self, uuid: str) -> _Found | None:
        """The VM and its tasks; ``None`` where libvirt or /proc knows no such process (yet)."""
        with self._lock:
            number = self._tried[uuid] = self._number
        vm = self._connection.describe(uuid)
        if vm is None:
            return None
        tasks = vm_tasks.all_tasks(vm)
        return _Found(ObservedVm(vm, processes.cpu_affinity(tasks)), tasks, number)

    def _take(self, done: Done[_Found | None], libvirt_id: int | None) -> None:
        """Take over what a look has found.

        :param libvirt_id: libvirt's ID of the VM in its list of now; ``None`` where libvirt has not answered.
        """
        uuid = done.key
        (self._slow.add if done.seconds > QUICK_LOOK else self._slow.discard)(uuid)
        if done.error is not None:
            self._fail(uuid, done.error)
        elif done.value is None:
            self._backoff.fail(uuid, STARTING)
        elif libvirt_id is None or done.value.observed.vm.libvirt_id == libvirt_id:
            observed, tasks = done.value.observed, done.value.tasks
            self._vms[uuid] = observed
            watched = self._new_threads.get(uuid)
            if watched is None or watched.process != observed.vm.process:
                self._new_threads[uuid] = vm_tasks.NewThreads(observed.vm.process, tasks)
            self._backoff.succeed(uuid)
            self._once.end(("look", uuid))
            with self._lock:
                for orders in (self._urgent, self._in_turn):
                    # This look may have been left behind, and the round that ordered another one had no time for it.
                    if orders.get(uuid, 0) <= done.value.number:
                        orders.pop(uuid, None)

    def _fail(self, uuid: str, error: Exception) -> None:
        if isinstance(error, exceptions.HypervisorError | OSError | NoThreadLeft):
            reason = of_error(error)
            reason = reason.told_as(reason.text[:ERROR_LENGTH])
            self._once.log(logging.INFO, ("look", uuid), "VM %s can't be looked at now: %s", uuid, reason)
            if isinstance(error, NoThreadLeft):
                # Otherwise it would be tried again at once, for as long as no thread is left.
                with self._lock:
                    self._tried[uuid] = self._number
        else:
            reason = unexpected("looking at it", error)
            self._once.log(logging.ERROR, ("look", uuid), "VM %s: %s", uuid, reason, error=error)
        self._backoff.fail(uuid, reason)

    def _look_for_new_threads(self, uuid: str) -> None:
        """Look whether the VM has a new thread that may run on CPUs that no other thread of the VM may run on.

        libvirt sends an event when a vCPU is pinned to other CPUs, but none when a vCPU is plugged in there.
        """
        observed = self._vms[uuid]
        try:
            young = self._new_threads[uuid].look()
            cpus = processes.cpu_affinity(young) if young else frozenset[int]()
        except (exceptions.HypervisorError, OSError):
            return
        except Exception as error:
            reason = unexpected("looking for its new threads", error)
            self._once.log(logging.ERROR, ("threads", uuid), "VM %s: %s", uuid, reason, error=error)
            return
        if not cpus <= observed.cpus:
            self._vms[uuid] = replace(observed, cpus=observed.cpus | cpus)

    def _forget_dead(self, candidates: Iterable[str]) -> set[str]:
        """Forget those of these VMs whose processes have ended; return which these are."""
        dead = {uuid for uuid in candidates if not lives(self._vms[uuid].vm)}
        for uuid in dead:
            # That the VM has ended is told by the pass that finds it so, with the number of the event.
            found = journal.fields(VMQOS_VM=uuid)
            LOG.info("VM %s (%s): its process is gone", uuid, self._vms[uuid].vm.name, extra=found)
            self._ended[uuid] = (self._vms[uuid].vm.libvirt_id, time.monotonic())
            del self._vms[uuid]
            self._new_threads.pop(uuid, None)
        return dead

    def _sum_up(self, owed: Set[str]) -> tuple[dict[str, str], float | None]:
        """Why this round did not look at some VMs, by UUID, and when another round is due.

        :param owed: UUIDs of these VMs.
        """
        now, under_way = time.monotonic(), self._looks.under_way
        troubles, due = dict[str, str](), list[float]()
        with self._lock:
            urgent = set(self._urgent)
            ordered = {uuid for uuid, number in self._urgent.items() if number > self._tried.get(uuid, 0)}
        for uuid in owed:
            failure = self._backoff.get(uuid)
            if uuid in under_way and now >= under_way[uuid] + SLOW_AFTER:
                troubles[uuid] = SLOW
                self._once.log(logging.WARNING, ("look", uuid), "VM %s: %s", uuid, SLOW)
                continue
            if uuid in under_way:
                due.append(under_way[uuid] + SLOW_AFTER)
            else:
                due.append(failure.due if failure is not None and uuid not in ordered else now)
            if failure is not None:
                troubles[uuid] = failure.reason.text
            elif uuid in urgent or uuid not in self._vms:
                troubles[uuid] = WAITING
        return troubles, min(due, default=None)


def unexpected(doing: str, error: Exception) -> Reason:
    """The reason for an exception that no VM should be able to cause.

    :param doing: what was being done, such as ``looking at it``.
    """
    return Reason(Code.AGENT_FAULT, f"{doing} failed unexpectedly: {type(error).__name__}: {error}"[:ERROR_LENGTH])


def lives(vm: VirtualMachine) -> bool:
    """Whether the VM's process has not ended; ``True`` where that is not known."""
    try:
        return processes.still(vm.process)
    except Exception as error:  # a look at the VM meets it again, and reports it
        LOG.debug("whether VM %s lives can't be told: %s", vm.uuid, error)
        return True
