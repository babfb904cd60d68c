# SPDX-License-Identifier: Apache-2.0
"""A VM's promise, checked by the kernel's word alone: which group each task is in, what the registers hold.

What was promised is read from libvirt. Nothing here asks the agent, or uses its code.
"""

from __future__ import annotations

import contextlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.agent import groups
from tests.kernel.agent.registers import L3Registers
from tools.lab.vms import NOVA_NAMESPACE, RunningVm

EXTRA_SPECS = "metadata/nova:instance/nova:flavor/nova:extraSpecs/nova:extraSpec"


@dataclass(frozen=True, slots=True)
class Promise:
    """What the running VM was promised.

    :ivar ways: of L3, for code and data together; 0 where none were.
    :ivar percent: of the memory bandwidth, one of the hardware's steps; 0 where none was.
    :ivar mbps: bandwidth in MB/s, one of the hardware's steps; 0 where none was.
    :ivar vcpus: the vCPUs whose threads alone get that; ``None``: all tasks do.
    """

    uuid: str
    ways: int
    shared: bool
    percent: int = 0
    mbps: int = 0
    code: int = 0
    l2: int = 0
    vcpus: frozenset[int] | None = None

    @property
    def control_group(self) -> str:
        """The control group that its tasks belong in."""
        if self.shared or (self.percent and not self.ways):
            apart = (("code", self.code), ("data", self.ways - self.code))
            ways = apart if self.code else (("ways", self.ways),)
            granted = (*ways, ("l2ways", self.l2), ("mb", self.percent), ("mbps", self.mbps))
            return groups.CLASS + "-".join(f"{word}{number}" for word, number in granted if number)
        return f"{groups.OURS}{self.uuid}" if self.ways or self.l2 or self.mbps else ""

    @property
    def monitoring_group(self) -> str:
        """The monitoring group that its tasks belong in: none where the control group is the VM's own."""
        own = f"{groups.OURS}{self.uuid}"
        return "" if self.control_group == own else own

    def groups_of(self, thread: str) -> tuple[str, str]:
        """The control group and the monitoring group in it that a thread of this name belongs in."""
        vcpu = re.match(r"CPU (\d+)/", thread)
        if self.vcpus is None or (vcpu and int(vcpu[1]) in self.vcpus):
            return self.control_group, self.monitoring_group
        return "", f"{groups.OURS}{self.uuid}"


def promise_to(vm: RunningVm) -> Promise:
    """Read the promise from the metadata of the running VM, as Nova left it there."""
    found = ET.fromstring(vm.domain.XMLDesc()).iterfind(EXTRA_SPECS, {"nova": NOVA_NAMESPACE})
    specs = {spec.get("name"): (spec.text or "").strip() for spec in found}
    ways, percent, mbps, code, data, l2 = (
        int(specs.get(f"hw:{key}", "0"))
        for key in (
            *("cache_ways", "mem_bandwidth_percent", "mem_bandwidth_mbps"),
            *("cache_code_ways", "cache_data_ways", "l2_cache_ways"),
        )
    )
    shared, named = specs.get("hw:cache_policy") == "shared", specs.get("hw:cache_vcpus")
    vcpus = None if named is None else frozenset(_numbers(named))
    return Promise(vm.uuid, ways + code + data, shared, percent, mbps, code, l2, vcpus)


def _numbers(text: str) -> Iterator[int]:
    """The numbers of a list such as ``0-2,5``."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def group_of(tid: int) -> tuple[str, str]:
    """The control group and the monitoring group in it that a task is in; each empty for the default one.

    :raises ProcessLookupError, FileNotFoundError: if the task has ended.
    """
    lines = Path(f"/proc/{tid}/cpu_resctrl_groups").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return found["res"].strip("/"), found["mon"].strip("/")


def groups_of(tids: Iterable[int]) -> set[tuple[str, str]]:
    """Where tasks are (:func:`group_of`), but for those that have ended: QEMU's workers come and go."""
    found = set()
    for tid in tids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.add(group_of(tid))
    return found


def faults(root: Path, registers: L3Registers, vm: RunningVm) -> Iterator[str]:
    """Everything about the VM that is not as it was promised."""
    promise = promise_to(vm)
    yield from _faults_of_tasks(promise, vm)
    if not promise.ways:
        return
    everybody = groups.read(root, registers)
    own = next((group for group in everybody if group.name == promise.control_group), None)
    if own is None:
        yield f"there is no group {promise.control_group}"
        return
    for cache, mask in own.masks.items():
        if cache in own.caches and mask.bit_count() != promise.ways:
            yield f"{own.name} has ways {mask:x} of cache {cache} in the registers, promised are {promise.ways}"
    if not promise.shared:
        broken = groups.broken_now(root, registers, lambda group: group.name == own.name, everybody)
        yield from map(str, broken)


def faults_of_kernel_threads(vm: RunningVm) -> list[str]:
    """The kernel's threads that work for the VM and are not where it was promised."""
    return list(_misplaced(promise_to(vm), vm, vm.kernel_threads()))


def _faults_of_tasks(promise: Promise, vm: RunningVm) -> Iterator[str]:
    tasks = {**vm.tasks(), **vm.kernel_threads()}
    if not tasks:
        yield f"{vm.name} has no tasks"
    yield from _misplaced(promise, vm, tasks)


def _misplaced(promise: Promise, vm: RunningVm, tasks: Mapping[int, str]) -> Iterator[str]:
    for tid, name in tasks.items():
        expected = promise.groups_of(name)
        try:
            found = group_of(tid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if found != expected:
            yield f"{name} ({tid}) of {vm.name} is in {found}, promised is {expected}"
