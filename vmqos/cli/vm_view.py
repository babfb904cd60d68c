# SPDX-License-Identifier: Apache-2.0
"""A VM as the commands show it: pure, from the API's values to cells."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

from vmqos.cli import contract, exceptions, units
from vmqos.cli.safe_text import display_name, neutralise
from vmqos.cli.tables import Cell

LIST_TITLES = ("UUID", "Name", "Flavor", "State", "Policy", "Ways", "Group", "Tasks", "Reason")
TASK_TITLES = ("TID", "PID", "Thread", "Group", "In place")

_STYLES = {"degraded": "bold red", "pending": "bold yellow", "kept": "green", "none": "dim"}
_URGENCY = {state: rank for rank, state in enumerate(_STYLES)}
_MOST_MATCHES = 5
_UUID = re.compile(r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def by_urgency(vms: Sequence[contract.Vm]) -> list[contract.Vm]:
    """The VMs with those in trouble first: degraded, pending, kept but for some threads, kept, none; then by name."""
    return sorted(
        vms,
        key=lambda vm: (_URGENCY.get(vm["state"], -1), not _misplaced(vm), display_name(vm).casefold(), vm["uuid"]),
    )


def list_row(vm: contract.Vm) -> tuple[Any, ...]:
    """The cells of ``vm list``, one for each of :data:`LIST_TITLES`."""
    return (
        Cell(neutralise(vm["uuid"]), short=_short(vm["uuid"])),
        display_name(vm),
        neutralise(vm["flavor"]),
        _state(vm),
        vm["policy"] or "-",
        _ways(vm),
        Cell(_group(vm["group"]), short=_short(vm["group"])),
        _tasks(vm),
        neutralise(vm["reason"]),
    )


def fields(vm: contract.DetailedVm) -> dict[str, Any]:
    """The rows of ``vm show``: every field but the threads."""
    since = datetime.datetime.fromtimestamp(vm["since"]).astimezone()
    return {
        "UUID": neutralise(vm["uuid"]),
        "Name": neutralise(vm["instance_name"]) or "-",
        "libvirt name": neutralise(vm["name"]),
        "Flavor": neutralise(vm["flavor"]) or "-",
        "Project": neutralise(vm["project"]) or "-",
        "State": _state(vm),
        "Reason": neutralise(vm["reason"]) or "-",
        "Since": since.isoformat(" ", "seconds"),
        "Policy": vm["policy"] or "-",
        "Ways requested": "-" if vm["ways_requested"] is None else vm["ways_requested"],
        "Ways granted": units.ways_by_cache(vm["masks"]),
        "Masks": units.masks_by_cache(vm["masks"]) or "-",
        "Caches it can run on": " ".join(map(str, vm["caches"])),
        "Control group": _group(vm["group"]),
        "Monitoring group": _monitoring(vm),
        "Main process": vm["pid"],
        "Tasks in place": _tasks(vm),
        "Last error": Cell(neutralise(vm["last_error"]), style="red") if vm["last_error"] else "-",
        "Next retry": "-" if vm["retry_in"] is None else f"in {units.duration(vm['retry_in'])}",
    }


def task_row(task: contract.Task) -> tuple[Any, ...]:
    """The cells of a thread, one for each of :data:`TASK_TITLES`."""
    in_place = Cell("yes", style="green") if task["in_place"] else Cell("no", style="bold red")
    group = Cell(_group(task["group"]), short=_short(task["group"]))
    return task["tid"], task["pid"], neutralise(task["comm"]), group, in_place


def find(vms: Sequence[contract.Vm], wanted: str) -> contract.Vm:
    """The VM that a user means: by whole UUID, else by name, else by the beginning of its UUID.

    :raises vmqos.cli.exceptions.NoSuchVm: if none fits.
    :raises vmqos.cli.exceptions.AmbiguousVm: if several fit; it names them.
    """
    key = wanted.lower()
    whole = [vm for vm in vms if vm["uuid"].lower() == key]
    named = [vm for vm in vms if wanted in (vm["instance_name"], vm["name"])]
    begins = [vm for vm in vms if key and vm["uuid"].lower().startswith(key)]
    found = whole or named or begins
    if not found:
        raise exceptions.NoSuchVm(wanted=neutralise(wanted))
    if len(found) > 1:
        matches = ", ".join(f"{neutralise(vm['uuid'])} ({display_name(vm)})" for vm in found[:_MOST_MATCHES])
        more = f" and {len(found) - _MOST_MATCHES} more" if len(found) > _MOST_MATCHES else ""
        raise exceptions.AmbiguousVm(wanted=neutralise(wanted), count=len(found), matches=matches + more)
    return found[0]


def _state(vm: contract.Vm) -> Cell:
    return Cell(vm["state"], style=_STYLES.get(vm["state"], ""))


def _ways(vm: contract.Vm) -> str:
    granted, wanted = units.ways_by_cache(vm["masks"]), vm["ways_requested"]
    if wanted is None or granted == str(wanted):
        return granted
    return f"{granted if vm['masks'] else 0} of {wanted}"


def _tasks(vm: contract.Vm) -> Cell:
    return Cell(f"{vm['tasks_in_place']}/{vm['tasks']}", style="bold red" if _misplaced(vm) else "")


def _misplaced(vm: contract.Vm) -> bool:
    return vm["tasks_in_place"] < vm["tasks"]


def _group(name: str | None) -> str:
    return "(none)" if name is None else neutralise(name) or "(default)"


def _short(name: str | None) -> str:
    """A group's name or a UUID with no more of the UUID than people compare, which ``vm show`` takes too."""
    return _UUID.sub(r"\1", _group(name))


def _monitoring(vm: contract.Vm) -> str:
    if vm["monitoring_group"] is not None:
        return neutralise(vm["monitoring_group"])
    if vm["unmonitored_reason"]:
        return f"none: {neutralise(vm['unmonitored_reason'])}"
    return "its control group" if vm["group"] else "none"
