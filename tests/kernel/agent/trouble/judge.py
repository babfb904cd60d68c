# SPDX-License-Identifier: Apache-2.0
"""The judge of trouble in a guest: looks before and after each write to resctrl, and once all is quiet."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.campaign.trouble.seen import Seen
from tests.campaign.trouble.settled import unsettled
from tests.campaign.trouble.verdicts import Kind, Violation
from tests.campaign.trouble.vm import Vm
from tests.campaign.trouble.writes import CLASS_PREFIX, PREFIX, Writes
from tests.kernel.agent.trouble.hardware import KernelHardware
from tests.kernel.agent.witness import Step


class Judge:
    """Looks while the witness has a writer wait, and so sees every state between two writes.

    The story tells it what happens, and takes :attr:`lock` for that: no look is under way meanwhile.

    :ivar vms: the VMs as they are.
    :ivar violations: what was wrong so far.
    :ivar looks: how often it looked.
    :ivar promises: how many promises were in force at each look, in all.
    :ivar signalled: the writes before which a process got the signal that it was to get.
    """

    def __init__(self, hardware: KernelHardware) -> None:
        self.hardware = hardware
        self.lock = threading.RLock()
        self.vms: list[Vm] = []
        self.violations: list[Violation] = []
        self.looks = self.promises = 0
        self.signalled: list[Step] = []
        self._writes = Writes(hardware, lambda: self.vms, lambda: self._is_meddled)
        self._is_meddled = False
        self._repinned: set[str] = set()
        self._seen: dict[str, Seen] = {}
        self._signal = signal.SIGKILL
        self._pid = self._left = 0

    # What happens.

    def add(self, vm: Vm) -> None:
        """There is another VM."""
        with self.lock:
            self.vms.append(vm)

    def remove(self, vm: Vm) -> None:
        """A VM is about to end."""
        with self.lock:
            self.vms.remove(vm)

    def touch(self, vm: Vm, specs: Mapping[str, str] | None = None, cpus: frozenset[int] | None = None) -> None:
        """Something is about to happen to a VM: its promise is not known to be in force any more.

        :param specs: what its flavor asks for from now on.
        :param cpus: where it can run from now on. It has no ways of its own there until the agent gives it some.
        """
        with self.lock:
            vm.in_force = False
            vm.specs = vm.specs if specs is None else specs
            if cpus is not None:
                vm.cpus = cpus
                self._repinned.add(vm.group)

    @contextlib.contextmanager
    def meddling(self, *, politely: bool) -> Iterator[None]:
        """Another program changes resctrl in this block.

        :param politely: whether it holds the lock on resctrl. Then only the promises that it breaks itself are in force
            no more; otherwise the agent may be in the middle of a plan that does not know of the change.
        """
        with self.lock:
            self._is_meddled = True
            yield
            groups = self.hardware.groups()
            for vm in self.vms:
                vm.in_force = vm.in_force and politely and not self._writes.broken(vm, groups)

    def arm(self, pid: int, writes: int, number: signal.Signals) -> None:
        """Send a process a signal before its write of that number from now, 1 or more; 0 for never."""
        with self.lock:
            self._pid, self._left, self._signal = pid, writes, number

    # Before and after each write.

    def before(self, step: Step) -> None:
        """Look at what all earlier writes made; then the writer may be sent a signal."""
        with self.lock:
            self._look("before the write to", step.path)
            if self._left and step.pid == self._pid:
                self._left -= 1
                if not self._left:
                    os.kill(step.pid, self._signal)
                    self.signalled.append(step)

    def after(self, step: Step) -> None:
        """Look at what this write made, while the writer goes on to its next one at most."""
        with self.lock:
            self._look("write", step.path)

    def _look(self, operation: str, path: str) -> None:
        self.looks += 1
        self.promises += sum(vm.in_force for vm in self.vms)
        groups = self.hardware.groups()
        found = list(self._writes.after(operation, path, self._moved(path, groups), groups))
        found += [f"{text} ({operation} {path})" for text in self._overlapping_vms(groups)]
        self.violations += [Violation(Kind.OVERLAP, text) for text in found]
        self._seen = groups

    def _moved(self, path: str, groups: Mapping[str, Seen]) -> str:
        """The tasks that are in a group since the judge last looked, as they are written to resctrl.

        A thread that is born in its VM's group was not moved there.
        """
        name = path.partition("/")[0]
        if name not in groups:
            return ""
        before = self._seen[name].tasks if name in self._seen else frozenset[int]()
        fresh = set(groups[name].tasks - before)
        if before:
            fresh.difference_update(*(vm.tasks() for vm in self.vms if vm.group == name))
        return ",".join(map(str, sorted(fresh)))

    def _overlapping_vms(self, groups: Mapping[str, Seen]) -> Iterator[str]:
        """Where two VMs run on the same ways, each of which has a group of its own.

        That is wrong whatever other programs did and whichever process died. A VM that was pinned to other CPUs is left
        out: there it runs on ways that are not its own until the agent knows.
        """
        known = {vm.group: vm for vm in self.vms}
        own = {
            name: group
            for name, group in groups.items()
            if name.startswith(PREFIX) and not name.startswith(CLASS_PREFIX) and name not in self._repinned
        }
        for (name, group), (other, theirs) in itertools.combinations(own.items(), 2):
            for cache in self._caches(known.get(name), group) & self._caches(known.get(other), theirs):
                common = group.masks[cache] & theirs.masks[cache]
                if common and self._writes.is_used(name, group) and self._writes.is_used(other, theirs):
                    yield f"{name} and {other} both have {common:x} on {cache}"

    def _caches(self, vm: Vm | None, group: Seen) -> set[tuple[int, int]]:
        """The caches on which a VM runs; all of them while it is starting."""
        return set(group.masks) if vm is None else self.hardware.reach(vm.cpus)

    # Once all is quiet.

    def unsettled(self, rows: Sequence[Any], ways: int, pool: int) -> list[Violation]:
        """What is not as it should be on a quiet host.

        :param rows: what the API tells of the VMs.
        :param ways: how many ways of each cache VMs may have.
        :param pool: how many of these the default group and the shared classes take.
        """
        groups = self.hardware.groups()
        found = list(unsettled(rows, self.vms, groups))
        told = {row["uuid"]: row for row in rows}
        for vm in self.vms:
            row = told.get(vm.uuid)
            if row is None:
                continue
            if row["state"] == "kept" and vm.is_exclusive and (text := self._writes.broken(vm, groups)):
                found.append(Violation(Kind.WORD, f"{text}, and is told to be kept"))
            if row["reason_code"] == "no-ways" and self._fits(vm, rows, groups, ways - pool):
                text = f"{vm.group} is told {row['reason']}; but there is room: {groups}"
                found.append(Violation(Kind.UNSERVED, text))
        return found

    def _fits(self, vm: Vm, rows: Iterable[Any], groups: Mapping[str, Seen], ways: int) -> bool:
        """Whether an exclusive VM surely fits: the free ways suffice in number wherever it can run (rule 5).

        Where other VMs wait too, or other programs have ways that cut the rest into pieces, this is not sure.
        """
        others = [row for row in rows if row["uuid"] != vm.uuid]
        foreign = [name for name in groups if name and not name.startswith(PREFIX)]
        if not vm.is_exclusive or foreign or any(row["state"] not in ("kept", "none") for row in others):
            return False
        by_uuid = {other.uuid: other for other in self.vms}
        for _, cache in self.hardware.reach(vm.cpus):
            owners = [by_uuid[row["uuid"]] for row in others if str(cache) in row["masks"] and row["uuid"] in by_uuid]
            taken = sum(self._writes.asked(owner) for owner in owners if owner.is_exclusive)
            if ways - taken < self._writes.asked(vm):
                return False
        return True

    def settle(self, rows: Sequence[Any]) -> None:
        """All is settled: the promises that are told to be kept are in force from now on."""
        kept = {row["uuid"] for row in rows if row["state"] == "kept"}
        with self.lock:
            groups = self.hardware.groups()
            for vm in self.vms:
                vm.in_force = vm.uuid in kept and vm.is_exclusive and not self._writes.broken(vm, groups)
            self._is_meddled = False
            self._repinned.clear()
