# SPDX-License-Identifier: Apache-2.0
"""One listing of resctrl's groups: where each VM is counted, and what is left of CLOSIDs and RMIDs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vmqos.group_names import class_request, is_class, vm_of
from vmqos.resctrl import exceptions, groups, pseudo_lock
from vmqos.resctrl.filesystem import Filesystem, join
from vmqos.telemetry.model import PolicyName


@dataclass(frozen=True, slots=True)
class Place:
    """Where a VM is counted.

    :ivar control: its control group's name; empty for the default group.
    :ivar directory: the group that counts it, below the root.
    :ivar policy: what its place says that it was promised.
    :ivar rest: the group that counts those of its tasks that do without the promise, or what it left where it was
        before it had a control group for a while; ``None`` where there is none.
    """

    control: str
    directory: str
    policy: PolicyName | None
    rest: str | None = None


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
    names = {control: _monitoring_groups(fs, control) for control in groups.list_names(fs)}
    return before if names == before.names else Listing(names, _vms(names))


def _vms(names: Mapping[str, Sequence[str]]) -> dict[str, Place]:
    """A control group that bears a VM's name is the VM's, and so is each monitoring group of that name.

    A VM may be in two control groups: some of its vCPUs where they have ways, its other tasks in the default group.
    While ways of its own are tried on a VM, what it brought in before is counted where it was: in the default group, or
    in a class.
    """
    own: dict[str, Place] = {}
    shared: dict[str, Place] = {}
    rest: dict[str, str] = {}
    for control, inside in names.items():
        uuid = vm_of(control)
        if uuid is not None:
            own[uuid] = Place(control, control, "exclusive")
        elif not control or is_class(control):
            policy: PolicyName | None = "shared" if _has_cap(control) else None
            for name in inside:
                uuid = vm_of(name)
                if uuid is None:
                    continue
                directory = join(control, groups.MON_GROUPS, name)
                if control:
                    shared[uuid] = Place(control, directory, policy)
                else:
                    rest[uuid] = directory
    rest |= {uuid: shared[uuid].directory for uuid in own.keys() & shared.keys()}
    promised = {uuid: replace(place, rest=rest.pop(uuid, None)) for uuid, place in {**shared, **own}.items()}
    return {**{uuid: Place("", directory, None) for uuid, directory in rest.items()}, **promised}


def _monitoring_groups(fs: Filesystem, control: str) -> list[str]:
    """In the kernel's order, which is the same as long as the groups are. A group may be removed at any moment."""
    try:
        return fs.listdir(control, groups.MON_GROUPS)
    except exceptions.Vanished:
        return []
    except exceptions.Unreadable:
        # A group that is pseudo-locked, or about to be, monitors nothing, and hides it from all but root.
        if fs.read(control, "mode").strip() in pseudo_lock.MODES:
            return []
        raise


def _has_cap(control: str) -> bool:
    """Whether the class of that name grants L3 ways, and not memory bandwidth alone."""
    grants = class_request(control)
    return grants is not None and bool(grants.l3_ways)
