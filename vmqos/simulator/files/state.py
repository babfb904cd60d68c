# SPDX-License-Identifier: Apache-2.0
"""The state of a mounted resctrl: its groups and the classes they hold."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from vmqos.simulator.hardware.kernel_versions import Kernel
from vmqos.simulator.hardware.lasting import Hardware
from vmqos.simulator.hardware.options import MountOptions
from vmqos.simulator.hardware.resources import (
    Domain,
    LockedRegion,
    Resource,
    Schema,
    Use,
    cdp_enabled,
    name_width,
    schemas_of,
)
from vmqos.simulator.kernel.numbers import refusal
from vmqos.simulator.kernel.status import LastCommandStatus
from vmqos.simulator.kernel.tree import Directory


class Mode(Enum):
    """The modes of a control group; the value is the word in the ``mode`` file."""

    SHAREABLE = "shareable"
    EXCLUSIVE = "exclusive"
    LOCK_SETUP = "pseudo-locksetup"
    LOCKED = "pseudo-locked"


@dataclass(slots=True, eq=False)
class Group:
    """A control group, or a monitoring group if it has a parent.

    :ivar closid: the class; a monitoring group's is its parent's.
    :ivar rmid: what its counters are kept under.
    :ivar cpus: the CPUs whose default it is.
    :ivar event: what the bandwidth controller watches.
    """

    directory: Directory
    closid: int = 0
    rmid: int = 0
    parent: Group | None = None
    mode: Mode = Mode.SHAREABLE
    cpus: set[int] = field(default_factory=set)
    children: list[Group] = field(default_factory=list)
    mon_data: Directory | None = None
    region: LockedRegion | None = None
    event: str = ""

    @property
    def is_monitoring(self) -> bool:
        """Whether it only monitors."""
        return self.parent is not None

    def has_task(self, closid: int, rmid: int) -> bool:
        """Whether a task of that class and RMID is in this group."""
        return rmid == self.rmid if self.is_monitoring else closid == self.closid


class Mounted:
    """What exists from mount to umount."""

    def __init__(self, hardware: Hardware, options: MountOptions, root: Directory) -> None:
        self.hardware = hardware
        self.options = options
        self.schemas: list[Schema] = schemas_of(hardware.resources, options)
        self.width = name_width(self.schemas)
        self.status = LastCommandStatus()
        self.root = root
        self.default = Group(root, cpus=set(hardware.online), event=self.default_event)
        root.group = self.default
        self.groups = [self.default]
        """The control groups, the newest first (``rdt_all_groups``)."""
        self.closids = min((schema.num_closids for schema in self.schemas), default=32)
        """How many classes groups can have (``closids_supported``)."""
        self._taken = {0}

    @property
    def default_event(self) -> str:
        """What the bandwidth controller watches unless told otherwise (``mba_mbps_default_event``)."""
        monitoring = self.hardware.profile.monitoring
        local = monitoring is None or "mbm_local_bytes" in monitoring.events
        return "mbm_local_bytes" if local else "mbm_total_bytes"

    @property
    def kernel(self) -> Kernel:
        """The kernel that is simulated."""
        return self.hardware.profile.kernel

    def take_closid(self) -> int:
        """The lowest free class.

        :raises OSError: ``ENOSPC`` if there is none.
        """
        for closid in range(self.closids):
            if closid not in self._taken:
                self._taken.add(closid)
                return closid
        raise refusal(errno.ENOSPC)

    def take_this_closid(self, closid: int) -> Group | None:
        """Take one class; the group that has it, if one does, and then it is not taken (``closid_alloc_fixed``)."""
        owner = next((group for group in self.groups if group.closid == closid), None)
        if owner is None:
            self._taken.add(closid)
        return owner

    def free_closid(self, closid: int) -> None:
        """Give a class back."""
        self._taken.discard(closid)

    def taken_closids(self) -> Iterator[tuple[int, Mode | None]]:
        """The classes in use, each with the mode of its group (``rdtgroup_mode_by_closid``)."""
        for closid in sorted(self._taken):
            yield closid, next((group.mode for group in self.groups if group.closid == closid), None)

    def every_group(self) -> Iterator[Group]:
        """Control groups and the monitoring groups in them."""
        for group in self.groups:
            yield group
            yield from group.children

    def cdp_enabled(self, resource: Resource) -> bool:
        """Whether code and data have masks of their own in this mount."""
        return cdp_enabled(resource, self.options)

    def cdp_resources(self) -> list[Resource]:
        """The resources that have masks for code and for data in this mount."""
        return [resource for resource in self.hardware.resources if self.cdp_enabled(resource)]

    def overlaps(self, schema: Schema, domain: Domain, mask: int, closid: int, *, exclusive_only: bool) -> bool:
        """Whether a mask meets another class's, or the hardware's (``rdtgroup_cbm_overlaps``).

        :param exclusive_only: look at exclusive groups alone.
        """
        uses = (schema.use, schema.use.peer) if self.cdp_enabled(schema.resource) else (schema.use,)
        return any(self._overlaps(schema.resource, use, domain, mask, closid, exclusive_only) for use in uses)

    def _overlaps(
        self, resource: Resource, use: Use, domain: Domain, mask: int, closid: int, exclusive_only: bool
    ) -> bool:
        if resource.cache and not exclusive_only and mask & resource.cache.shareable_bits:
            return True
        for other, mode in self.taken_closids():
            if other == closid or mode is Mode.LOCK_SETUP or not mask & resource.value(domain, other, use):
                continue
            if not exclusive_only or mode is Mode.EXCLUSIVE:
                return True
        return False
