# SPDX-License-Identifier: Apache-2.0
"""Control groups and monitoring groups: what there is, making, changing, removing.

The name of a control group is the name of its directory below the root; ``""`` is the default group. A caller that
reads and then writes holds :meth:`vmqos.resctrl.filesystem.Filesystem.lock`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vmqos.resctrl import exceptions, schemata
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem, join

MON_GROUPS = "mon_groups"
NO_GROUPS = frozenset({"info", "mon_data", MON_GROUPS})
"""The directories beside the control groups that the kernel itself makes."""

_IMPOSSIBLE = frozenset({"", ".", ".."}) | NO_GROUPS
_LOCKED = b"pseudo-locked\n"


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A control group as it was read.

    :ivar name: its name; empty for the default group.
    :ivar mode: ``shareable``, ``exclusive``, ``pseudo-locksetup`` or ``pseudo-locked``.
    :ivar schemata: each resource's values by cache id (:func:`vmqos.resctrl.schemata.parse`).
    """

    name: str
    mode: str
    schemata: Mapping[str, Mapping[int, str]] = field(hash=False)

    def masks(self, resource: str) -> dict[int, CapacityBitmask]:
        """The capacity bitmasks of one resource by cache id; none where the group has none (yet).

        :raises vmqos.resctrl.exceptions.InvalidBitmask: if its values are no masks.
        """
        return schemata.masks_of(self.schemata, resource)


def list_control_groups(fs: Filesystem) -> list[ControlGroup]:
    """Every control group, the default one first, the others by name; one that is removed meanwhile is left out.

    :raises vmqos.resctrl.exceptions.Vanished: if resctrl is not mounted (any more).
    """
    return [
        ControlGroup(name, mode.decode(errors="replace").strip(), schemata.parse(text.decode(errors="replace")))
        for name, (mode, text) in read_raw(fs).items()
    ]


def read_raw(fs: Filesystem) -> dict[str, tuple[bytes, bytes]]:
    """Each control group's ``mode`` and ``schemata``, unparsed, by its name.

    A caller that looks often sees so, at little cost, that nothing has changed.

    :raises vmqos.resctrl.exceptions.Vanished: if resctrl is not mounted (any more).
    """
    found = {}
    for name in list_names(fs):
        try:
            found[name] = read_raw_of(fs, name)
        except exceptions.Vanished:
            if not name:
                raise
    return found


def read_raw_of(fs: Filesystem, name: str) -> tuple[bytes, bytes]:
    """A control group's ``mode`` and ``schemata``, unparsed.

    Once the cache of a pseudo-locked region went offline, the kernel answers each read of the group's ``schemata`` with
    ENODEV, for ever (``rdtgroup_schemata_show``). The group is still there: it is told to have no masks.

    :raises vmqos.resctrl.exceptions.Vanished: if there is no such group.
    """
    mode = fs.read_bytes(name, "mode")
    try:
        return mode, fs.read_bytes(name, "schemata")
    except exceptions.Vanished:
        if mode != _LOCKED or fs.read_bytes(name, "mode") != mode:
            raise
        return mode, b""


def list_names(fs: Filesystem) -> list[str]:
    """The names of the control groups, the default one's first, the others' in ascending order.

    :raises vmqos.resctrl.exceptions.Vanished: if resctrl is not mounted (any more).
    """
    return ["", *(name for name in fs.directories() if name not in NO_GROUPS)]


def create(fs: Filesystem, name: str) -> None:
    """Make a control group. It starts with every way that no exclusive group holds, and with no task.

    :raises vmqos.resctrl.exceptions.InvalidGroupName: if no group can have that name.
    :raises vmqos.resctrl.exceptions.GroupExists: if the name is taken.
    :raises vmqos.resctrl.exceptions.NoClosidLeft: if every CLOSID is taken.
    :raises vmqos.resctrl.exceptions.NoRmidLeft: if every RMID is taken: a control group needs one, too.
    :raises vmqos.resctrl.exceptions.RmidsInLimbo: if no RMID is free yet.
    :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses for any other reason.
    """
    _check(name)
    fs.mkdir(name)


def remove(fs: Filesystem, name: str) -> None:
    """Remove a control group with its monitoring groups; its tasks go to the default group.

    :raises vmqos.resctrl.exceptions.InvalidGroupName: if no group can have that name.
    :raises vmqos.resctrl.exceptions.Vanished: if there is none.
    :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses.
    """
    _check(name)
    fs.rmdir(name)


def write_values(
    fs: Filesystem, name: str, resource: str, values: Mapping[int, CapacityBitmask] | Mapping[int, int]
) -> None:
    """Set the masks or limits of some caches, all or none of them; the other caches keep theirs.

    :param values: at least one value by cache id.
    :raises vmqos.resctrl.exceptions.ResctrlError: as :func:`write_lines`.
    """
    write_lines(fs, name, schemata.format_values(resource, values))


def write_lines(fs: Filesystem, name: str, *lines: str) -> None:
    """Write lines of schemata at once, all or none of them (``rdtgroup_schemata_write`` in the kernel's resctrl).

    :raises vmqos.resctrl.exceptions.MasksOverlap: if an exclusive group would lose ways by it.
    :raises vmqos.resctrl.exceptions.CacheOffline: if one of the caches is not there, or has no CPU online.
    :raises vmqos.resctrl.exceptions.Vanished: if there is no such group.
    :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses for any other reason.
    """
    try:
        fs.write(join(name, "schemata"), "\n".join(lines))
    except exceptions.CommandFailed as failure:
        # Of all that parse_line() in the kernel refuses, it is silent about an unknown cache alone.
        if failure.errno_name == "EINVAL" and not failure.last_cmd_status:
            raise exceptions.CacheOffline.of(failure) from failure
        raise


def set_mode(fs: Filesystem, name: str, mode: str) -> None:
    """Set the mode: ``shareable``, or ``exclusive`` so that the kernel itself keeps others out of the group's ways.

    :raises vmqos.resctrl.exceptions.MasksOverlap: if another group, the default one included, has one of the ways.
    :raises vmqos.resctrl.exceptions.Vanished: if there is no such group.
    :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses for any other reason.
    """
    fs.write(join(name, "mode"), mode)


def monitoring_directory(control: str, name: str) -> str:
    """The directory of a monitoring group below the root."""
    return join(control, MON_GROUPS, name)


def list_monitoring_groups(fs: Filesystem, control: str) -> list[str]:
    """The names of a control group's monitoring groups, in ascending order; none where nothing can be monitored.

    :raises vmqos.resctrl.exceptions.Vanished: if there is no such control group.
    """
    try:
        return fs.directories(control, MON_GROUPS)
    except exceptions.Vanished:
        fs.listdir(control)
        return []


def create_monitoring_group(fs: Filesystem, control: str, name: str) -> None:
    """Make a monitoring group. It starts with no task and takes those of its control group only.

    :raises vmqos.resctrl.exceptions.InvalidGroupName: if no group can have that name.
    :raises vmqos.resctrl.exceptions.GroupExists: if the name is taken.
    :raises vmqos.resctrl.exceptions.NoRmidLeft: if every RMID is taken.
    :raises vmqos.resctrl.exceptions.RmidsInLimbo: if no RMID is free yet.
    :raises vmqos.resctrl.exceptions.Vanished: if there is no such control group.
    :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses for any other reason.
    """
    _check(name)
    fs.mkdir(monitoring_directory(control, name))


def remove_monitoring_group(fs: Filesystem, control: str, name: str) -> None:
    """Remove a monitoring group; its tasks are counted by the control group from then on.

    :raises vmqos.resctrl.exceptions.InvalidGroupName: if no group can have that name.
    :raises vmqos.resctrl.exceptions.Vanished: if there is none.
    :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses.
    """
    _check(name)
    fs.rmdir(monitoring_directory(control, name))


def move_monitoring_group(fs: Filesystem, name: str, from_control: str, to_control: str) -> None:
    """Move a monitoring group with its tasks into another control group; it keeps its RMID and its counters.

    Linux 6.5 and later; before, and for groups that monitor CPUs, the kernel refuses with EPERM.

    :raises vmqos.resctrl.exceptions.InvalidGroupName: if no group can have that name.
    :raises vmqos.resctrl.exceptions.GroupExists: if the name is taken there.
    :raises vmqos.resctrl.exceptions.Vanished: if there is no such monitoring or control group.
    :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses for any other reason.
    """
    _check(name)
    source, target = monitoring_directory(from_control, name), monitoring_directory(to_control, name)
    fs.rename(source, target)


def _check(name: str) -> None:
    if name in _IMPOSSIBLE or "/" in name or "\n" in name or "\0" in name:
        raise exceptions.InvalidGroupName(name=name)
