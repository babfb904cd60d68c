# SPDX-License-Identifier: Apache-2.0
"""A VM's promise, checked by the kernel's word alone: which group each task is in, what the registers hold.

What was promised is read from libvirt. Nothing here asks the agent, or uses its code.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.agent import groups
from tests.kernel.agent.registers import L3Registers
from tools.lab.vms import NOVA_NAMESPACE, RunningVm

EXTRA_SPECS = "metadata/nova:instance/nova:flavor/nova:extraSpecs/nova:extraSpec"


@dataclass(frozen=True, slots=True)
class Promise:
    """What the running VM was promised.

    :ivar ways: 0 where nothing was.
    """

    uuid: str
    ways: int
    shared: bool

    @property
    def control_group(self) -> str:
        """The control group that its tasks belong in."""
        if not self.ways:
            return ""
        return f"{groups.CLASS}ways{self.ways}" if self.shared else f"{groups.OURS}{self.uuid}"

    @property
    def monitoring_group(self) -> str:
        """The monitoring group that its tasks belong in: none where the control group is the VM's own."""
        return f"{groups.OURS}{self.uuid}" if self.shared or not self.ways else ""


def promise_to(vm: RunningVm) -> Promise:
    """Read the promise from the metadata of the running VM, as Nova left it there."""
    found = ET.fromstring(vm.domain.XMLDesc()).iterfind(EXTRA_SPECS, {"nova": NOVA_NAMESPACE})
    specs = {spec.get("name"): (spec.text or "").strip() for spec in found}
    return Promise(vm.uuid, int(specs.get("hw:cache_ways", "0")), specs.get("hw:cache_policy") == "shared")


def group_of(tid: int) -> tuple[str, str]:
    """The control group and the monitoring group in it that a task is in; each empty for the default one.

    :raises ProcessLookupError, FileNotFoundError: if the task has ended.
    """
    lines = Path(f"/proc/{tid}/cpu_resctrl_groups").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return found["res"].strip("/"), found["mon"].strip("/")


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
        yield from groups.broken_promises(everybody, lambda group: group is own)


def _faults_of_tasks(promise: Promise, vm: RunningVm) -> Iterator[str]:
    expected = promise.control_group, promise.monitoring_group
    tasks = {**vm.tasks(), **vm.kernel_threads()}
    if not tasks:
        yield f"{vm.name} has no tasks"
    for tid, name in tasks.items():
        try:
            found = group_of(tid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if found != expected:
            yield f"{name} ({tid}) of {vm.name} is in {found}, promised is {expected}"
