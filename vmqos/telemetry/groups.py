# SPDX-License-Identifier: Apache-2.0
"""One listing of resctrl's groups: where each VM is counted, and what is left of CLOSIDs and RMIDs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vmqos.resctrl import exceptions, groups
from vmqos.resctrl.filesystem import Filesystem, join
from vmqos.telemetry.model import PolicyName
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
    policy: PolicyName | None


@dataclass(frozen=True, slots=True)
class Listing:
    """All groups at one moment.

    :ivar names: the monitoring groups of each control group, by its name; the default one (``""``) comes first.
    :ivar vms: each VM's place by its UUID.
    """

    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    vms: Mapping[str, Place] = field(default_factory=dict)


def list_groups(fs: Filesystem, before: Listing) -> Listing:
    """List the control groups and all their monitoring groups.

    :param before: the last listing; the very same value is returned where nothing has changed since.
    :raises vmqos.resctrl.exceptions.Vanished: if resctrl is not mounted (any more).
    :raises vmqos.resctrl.exceptions.Unreadable: if the caller may not look into it.
    """
    names = {"": _monitoring_groups(fs, "")}
    for control in fs.directories():
        if control not in groups.NO_GROUPS:
            names[control] = _monitoring_groups(fs, control)
    return before if names == before.names else Listing(names, _vms(names))


def _vms(names: Mapping[str, Sequence[str]]) -> dict[str, Place]:
    """A control group that bears a VM's name is the VM's, also where a monitoring group of that name is left over."""
    own: dict[str, Place] = {}
    monitored: dict[str, Place] = {}
    for control, inside in names.items():
        uuid = vm_of(control)
        if uuid is not None:
            own[uuid] = Place(control, control, "exclusive")
        elif not control or is_class(control):
            policy: PolicyName | None = "shared" if control else None
            for name in inside:
                uuid = vm_of(name)
                if uuid is not None:
                    monitored[uuid] = Place(control, join(control, groups.MON_GROUPS, name), policy)
    return {**monitored, **own}


def _monitoring_groups(fs: Filesystem, control: str) -> list[str]:
    """In the kernel's order, which is the same as long as the groups are. A group may be removed at any moment."""
    try:
        return fs.listdir(control, groups.MON_GROUPS)
    except exceptions.Vanished:
        return []
