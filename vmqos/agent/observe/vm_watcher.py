# SPDX-License-Identifier: Apache-2.0
"""A thread that looks at the VMs, so that the loop goes on while libvirt does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

from vmqos.agent.observe.running_vms import ObservedVm, RunningVms, lives


@dataclass(frozen=True, slots=True)
class VmList:
    """The VMs as they were last seen.

    :ivar vms: the VMs by UUID; each look at a VM makes a new object.
    :ivar dying: VMs that libvirt no longer lists and whose process is not gone yet.
    :ivar unseen: UUIDs of VMs that run and could not be looked at yet.
    :ivar answered: whether libvirt has ever said which VMs run: before that, nothing may be taken down.
    :ivar troubles: why VMs that libvirt lists are not known as they are now, by UUID.
    :ivar looked_at: when the last look ended that left no VM to be looked at, by the monotonic clock; ``None`` before
        the first.
    :ivar due: when another look gets further than this one, by the monotonic clock; ``None``: no VM waits for one, or
        libvirt has not answered this one yet.
    """

    vms: Mapping[str, ObservedVm] = field(default_factory=dict)
    dying: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    answered: bool = False
    troubles: Mapping[str, str] = field(default_factory=dict)
    looked_at: float | None = None
    due: float | None = None


class VmWatcher:
    """Has the inventory refreshed by one thread, which lives until :meth:`close`.

    There is one question at a time. While it is not answered, :meth:`look` returns the last answer without the VMs
    whose process has ended since, which /proc shows by itself. The next :meth:`look` returns an answer that came late.
    Events that came after that answer are not part of it; if there were any, another look is due at once.

    :param inventory: what to refresh; from now on, only this object may refresh it.
    :param running: tells the UUIDs of the VMs that libvirt listed last.
    :param on_late_answer: called from the thread once an answer is there that :meth:`look` no longer waited for.
    """

    def __init__(
        self, inventory: RunningVms, running: Callable[[], Set[str]], on_late_answer: Callable[[], None]
    ) -> None:
        self._inventory = inventory
        self._running = running
        self._on_late_answer = on_late_answer
        self._condition = threading.Condition()
        self._everything = False
        self._pending = False
        self._late = False
        self._closed = False
        self._error: Exception | None = None
        self._answer = VmList()
        self._thread: threading.Thread | None = None

    def look(self, everything: bool, patience: float) -> VmList:
        """Have the VMs looked at, and say how they are.

        :param everything: whether to look at all VMs, or only at the new and the marked ones.
        :param patience: seconds to wait for the answer; no later call waits for the same answer again.
        :raises Exception: any error in looking, except that libvirt can't be reached.
        """
        with self._condition:
            self._everything |= everything
            was_late = self._late
            if was_late:
                # An answer that came late is used like a new one. If each late answer led to a new question, no answer
                # might ever be in time.
                self._late = self._pending
            else:
                self._ask()
                self._late = not self._condition.wait_for(lambda: not self._pending, patience)
            answer, error, self._error = self._answer, self._error, None
            is_stale = was_late and not self._late and (self._everything or self._inventory.is_marked)
        if error is not None:
            raise error
        if is_stale:
            # The event that came meanwhile may have woken the loop for this pass, and will not wake it again.
            return replace(answer, due=time.monotonic())
        if self._late:
            return replace(answer, vms={uuid: seen for uuid, seen in answer.vms.items() if lives(seen.vm)}, due=None)
        return answer

    def close(self) -> None:
        """End the thread, as soon as libvirt lets it go."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._inventory.close()

    def _ask(self) -> None:
        self._pending = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
            self._thread.start()
        self._condition.notify_all()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._pending or self._closed)
                if self._closed:
                    return
                everything, self._everything = self._everything, False
            error = self._refresh(everything)
            answer = self._read()
            with self._condition:
                # A look at everything that failed is still to be done.
                self._everything |= everything and error is not None
                self._error, self._answer = error, answer
                self._pending = False
                late = self._late
                self._condition.notify_all()
            if late:
                self._on_late_answer()

    def _read(self) -> VmList:
        vms, inventory = dict(self._inventory.vms), self._inventory
        return VmList(
            vms,
            dying=inventory.dying,
            unseen=frozenset(self._running() - vms.keys() - inventory.gone),
            answered=inventory.answered,
            troubles=inventory.troubles,
            looked_at=inventory.looked_at,
            due=inventory.due,
        )

    def _refresh(self, everything: bool) -> Exception | None:
        try:
            self._inventory.refresh(everything)
        except Exception as error:  # the caller of look gets it
            return error
        return None
