# SPDX-License-Identifier: Apache-2.0
"""A VM as it really is, whatever the agent knows of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.lab import processes
from vmqos import extra_specs
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.group_names import vm_group


@dataclass(eq=False, kw_only=True)
class Vm:
    """A VM.

    :ivar specs: the extra specs of its flavor.
    :ivar pid: of its process.
    :ivar cpus: the CPUs that its threads may run on.
    :ivar has_cachetune: whether libvirt placed its tasks itself.
    :ivar is_elsewhere: whether it runs on another host: its tasks are none of the agent's.
    :ivar in_force: whether its promise was whole when the judge last saw it, and nothing that concerns it has happened
        since: from then on no write of the agent's may break it.
    """

    uuid: str
    specs: Mapping[str, str]
    pid: int
    cpus: frozenset[int]
    has_cachetune: bool = False
    is_elsewhere: bool = False
    in_force: bool = False

    @property
    def group(self) -> str:
        """The control group that it has if its ways are its own."""
        return vm_group(self.uuid)

    @property
    def is_alive(self) -> bool:
        """Whether its process has not ended. A zombie has: it waits only for its parent, maybe for ever."""
        return processes.start_time(self.pid) is not None

    @property
    def wants(self) -> CacheRequest | None:
        """What its flavor asks for; ``None`` where that is nothing, or wrong."""
        parsed = extra_specs.parse(dict(self.specs))
        return None if parsed.errors or self.has_cachetune else parsed.request

    @property
    def is_exclusive(self) -> bool:
        """Whether it was promised L3 ways of its own."""
        wants = self.wants
        return wants is not None and wants.policy is CachePolicy.EXCLUSIVE and bool(wants.l3_ways)

    def tasks(self) -> set[int]:
        """Its threads; none once it has ended."""
        try:
            return set(map(int, os.listdir(f"/proc/{self.pid}/task")))
        except (FileNotFoundError, ProcessLookupError):
            return set()

    def promised_cpus(self) -> frozenset[int]:
        """The CPUs that the threads that are to have what the flavor asks for may run on."""
        return self.cpus

    def promised_tasks(self) -> set[int]:
        """The threads that are to have what the flavor asks for."""
        wants, tasks = self.wants, self.tasks()
        if wants is None or wants.vcpus is None:
            return tasks
        names = {f"CPU {number}/KVM" for number in wants.vcpus}
        return {tid for tid in tasks if name_of(tid) in names}


def name_of(tid: int) -> str:
    """The name of a thread; empty once it has ended."""
    try:
        return os.fsdecode(Path(f"/proc/{tid}/comm").read_bytes()).rstrip("\n")
    except OSError:
        return ""
