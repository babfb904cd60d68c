# SPDX-License-Identifier: Apache-2.0
"""Control groups as people read them: whose they are, what they have, and who is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vmqos.cli.show.safe_text import neutralise
from vmqos.group_names import CLASS_PREFIX
from vmqos.local_api import contract

_UNLIMITED_MBPS = "4294967295"
"""What schemata says of a group without a limit where resctrl is mounted with ``mba_MBps``."""
_MANY = 12
"""VMs of a group that are named."""
_SHORT = 8
"""Characters of a UUID that stand for a VM whose name is not known."""


def describe(
    groups: Iterable[contract.ControlGroup], vms: Iterable[contract.Vm], names: Mapping[str, str]
) -> dict[str, str]:
    """A field for each control group.

    :param groups: as the agent tells them.
    :param vms: the VMs that the agent knows; the group's name tells of a VM that it does not.
    :param names: what to call a VM, by UUID.
    """
    # A VM for which no RMID was left is in a group that does not show it.
    placed = {vm["uuid"]: vm["group"] for vm in vms}
    fields = {}
    for group in groups:
        inside = {*group["vms"], *(uuid for uuid, name in placed.items() if name == group["name"])}
        called = [names.get(uuid, uuid[:_SHORT]) for uuid in sorted(inside)]
        fields[_title(group, called)] = _text(group, called)
    return fields


def _title(group: contract.ControlGroup, vms: Sequence[str]) -> str:
    match group["owner"]:
        case "default":
            return "Default group"
        case "vm":
            return f"VM {neutralise(', '.join(vms))}"
        case "class":
            return f"Class {neutralise(group['name'].removeprefix(CLASS_PREFIX))}"
        case _:
            return f"Group {neutralise(group['name'])}"


def _text(group: contract.ControlGroup, vms: Sequence[str]) -> str:
    lines = _who(group, vms)
    lines += [f"{neutralise(resource)}: {_values(values)}" for resource, values in group["schemata"].items()]
    members = [f"mode {neutralise(group['mode'])}"]
    members.append("no tasks" if not group["tasks"] else f"{group['tasks']} task{'' if group['tasks'] == 1 else 's'}")
    if group["name"]:
        members.append(f"CPUs {neutralise(group['cpus'])}" if group["cpus"] else "no CPUs")
    lines.append(", ".join(members))
    inside = group["monitoring_groups"]
    if inside:
        lines.append(f"{len(inside)} monitoring group{'' if len(inside) == 1 else 's'}")
    if group["closid"] is not None:
        rmids = [str(one["rmid"]) for one in (group, *inside) if one["rmid"] is not None]
        lines.append(f"CLOSID {group['closid']}" + (f", RMID {', '.join(rmids)}" if rmids else ""))
    return "\n".join(lines)


def _who(group: contract.ControlGroup, vms: Sequence[str]) -> list[str]:
    shown = ", ".join(map(neutralise, vms[:_MANY])) + (f" and {len(vms) - _MANY} more" if len(vms) > _MANY else "")
    match group["owner"]:
        case "default":
            return [f"everything else; VMs: {shown}" if vms else "everything else"]
        case "vm":
            return [f"group {neutralise(group['name'])}"]
        case "class":
            return [f"group {neutralise(group['name'])}", f"VMs that share it: {shown or 'none'}"]
        case _:
            return ["not of a VM or class of vmqos: left alone"]


def _values(values: Mapping[str, str]) -> str:
    return "  ".join(
        f"{cache}={'unlimited' if value == _UNLIMITED_MBPS else neutralise(value)}" for cache, value in values.items()
    )
