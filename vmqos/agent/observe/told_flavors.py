# SPDX-License-Identifier: Apache-2.0
"""What the gateway told of flavors whose extra specs a VM's description does not have.

Nova writes them into the description since 2025.2. A VM that was started before, or came by live migration from a host
with an older Nova, has none until its next hard reboot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.local_api import contract


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a VM's flavor.

    :ivar extra_specs: its extra specs; ``None`` until the gateway has told them.
    :ivar error: why the gateway can't tell them; empty before it has said so.
    """

    extra_specs: Mapping[str, str] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    process: Process
    """The VM's process. The flavor changes only with it: a resize starts a new process."""
    found: Found = Found()


class ToldFlavors:
    """Keeps what the gateway told of a VM's flavor for as long as the VM's process lives.

    :param is_on: whether the gateway is to ask Nova at all; also told as ``is_on``. If not, no pass looks flavors up.
    :param on_answer: called with the UUID of a VM of which something new was told, by the thread that told it.
    """

    def __init__(self, is_on: bool, on_answer: Callable[[str], None]) -> None:
        self.is_on = is_on
        self._on_answer = on_answer
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def look_up(self, vms: Iterable[VirtualMachine]) -> dict[str, Found]:
        """What is known of these VMs' flavors, by UUID; the gateway is asked for the others from now on.

        :param vms: all VMs that run and whose descriptions have no extra specs; the others are forgotten.
        """
        with self._lock:
            before, self._entries = self._entries, {}
            for vm in vms:
                entry = before.get(vm.uuid)
                self._entries[vm.uuid] = entry if entry and entry.process == vm.process else _Entry(vm.process)
            return {uuid: entry.found for uuid, entry in self._entries.items()}

    def wanted(self) -> list[contract.WantedFlavor]:
        """The VMs whose flavors the gateway is to tell."""
        with self._lock:
            return [
                {"uuid": uuid, "process": _key(entry.process)}
                for uuid, entry in self._entries.items()
                if entry.found.extra_specs is None
            ]

    def tell(self, uuid: str, process: str, found: Found) -> None:
        """Take over what the gateway says.

        :param process: what :meth:`wanted` said of the VM.
        :raises LookupError: if this VM's flavor is not wanted, or that of another process is.
        """
        with self._lock:
            entry = self._entries.get(uuid)
            if entry is None or entry.found.extra_specs is not None or _key(entry.process) != process:
                raise LookupError(f"the flavor of VM {uuid} in process {process} is not asked for")
            is_new = entry.found != found
            self._entries[uuid] = replace(entry, found=found)
        if is_new:
            self._on_answer(uuid)


def _key(process: Process) -> str:
    return f"{process.pid}-{process.start_time}"
