# SPDX-License-Identifier: Apache-2.0
"""One listing of resctrl's groups: where each VM is counted, and what is left of CLOSIDs and RMIDs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vmqos.resctrl import exceptions, groups
from vmqos.resctrl.filesystem import Filesystem, join
from vmqos.telemetry.model import Policy
from vmqos.telemetry.names import is_class, vm_of


@dataclass(frozen=True, slots=True)
class Place:
    """Where a VM is counted.

    :ivar control: its control group's name; empty for the default group.
    :ivar directory: the group that counts it, below the root.
    :ivar policy: what its place says that it was promised.
    """

    control: str
    directory: str
    policy: Policy | None


@dataclass(frozen=True, slots=True)
class Listing:
    """All groups at one moment.

    :ivar controls: the names of the control groups, the default one (``""``) first.
    :ivar monitoring_groups: how many monitoring groups there are in all of them.
    :ivar vms: each VM's place by its UUID.
    """

    controls: tuple[str, ...]
    monitoring_groups: int
    vms: Mapping[str, Place]


def list_groups(fs: Filesystem) -> Listing:
    """List the control groups and all their monitoring groups.

    A control group that bears a VM's name is the VM's, also where a monitoring group of that name is left over.

    :raises vmqos.resctrl.exceptions.Vanished: if resctrl is not mounted (any more).
    :raises vmqos.resctrl.exceptions.Unreadable: if the caller may not look into it.
    """
    controls = ("", *(name for name in fs.directories() if name not in groups.NO_GROUPS))
    own: dict[str, Place] = {}
    monitored: dict[str, Place] = {}
    count = 0
    for control in controls:
        uuid = vm_of(control)
        if uuid is not None:
            own[uuid] = Place(control, control, "exclusive")
        count += _monitoring_groups(fs, control, monitored)
    return Listing(controls, count, {**monitored, **own})


def _monitoring_groups(fs: Filesystem, control: str, found: dict[str, Place]) -> int:
    try:
        names = fs.listdir(control, groups.MON_GROUPS)
    except exceptions.Vanished:
        return 0
    if not control or is_class(control):
        policy: Policy | None = "shared" if control else None
        for name in names:
            uuid = vm_of(name)
            if uuid is not None:
                found[uuid] = Place(control, join(control, groups.MON_GROUPS, name), policy)
    return len(names)
