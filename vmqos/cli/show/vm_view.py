# SPDX-License-Identifier: Apache-2.0
"""A VM as the commands show it: pure, from the API's values to cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vmqos.cli import exceptions
from vmqos.cli.show import fullness, no_number, units, utc
from vmqos.cli.show.fullness import Fill
from vmqos.cli.show.safe_text import display_name, neutralise
from vmqos.cli.show.tables import Cell
from vmqos.cli.show.terminal import Terminal
from vmqos.local_api import contract

MORE_TITLES = ("L2 ways", "Bandwidth", "vCPUs")
"""What a list has beside :data:`LIST_TITLES`: a table only where a VM has or asks for such."""
NAME_TITLES = ("Instance name", "libvirt name")
"""The fields ``instance_name`` and ``name`` of the API."""
LONG_TITLES = ("Masks", "Monitoring group", "Project", "Since", *NAME_TITLES)
"""What ``vm list --long`` has in a table beside :data:`LIST_TITLES` and :data:`MORE_TITLES`."""
LIST_TITLES = ("UUID", "VM", "Flavor", "State", "Policy", "Ways", "Group", "Tasks", "Reason")
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


def list_row(vm: contract.Vm, names: Mapping[str, str]) -> tuple[Any, ...]:
    """The cells of ``vm list``, one for each of :data:`LIST_TITLES`.

    :param names: what to call each VM, by UUID.
    """
    return (
        Cell(neutralise(vm["uuid"]), short=_short(vm["uuid"])),
        names[vm["uuid"]],
        neutralise(vm["flavor"]),
        _state(vm),
        vm["policy"] or "-",
        _ways(vm),
        Cell(_group(vm["group"]), short=_short(vm["group"])),
        _tasks(vm),
        neutralise(vm["reason"]),
    )


def more(vm: contract.Vm) -> tuple[str, ...]:
    """The cells of ``vm list`` for :data:`MORE_TITLES`."""
    limit = _limit(vm)
    wanted = "none" if limit == "-" and vm.get("bandwidth_requested") is not None else limit
    return _of(vm.get("l2_masks", {}), vm.get("l2_ways_requested")), wanted, vm.get("vcpus_requested") or "-"


def both_names(vm: contract.Vm) -> tuple[str, str]:
    """The cells of ``vm list`` for :data:`NAME_TITLES`."""
    return neutralise(vm["instance_name"]), neutralise(vm["name"])


def long(vm: contract.Vm) -> tuple[Any, ...]:
    """The cells of ``vm list --long`` for :data:`LONG_TITLES`."""
    return (
        units.masks_by_cache(vm["masks"]) or "-",
        Cell(_monitoring(vm), short=_UUID.sub(r"\1", _monitoring(vm))),
        neutralise(vm["project"]) or "-",
        utc.clock(vm["since"]),
        *both_names(vm),
    )


def table(
    vms: Sequence[contract.Vm], names: Mapping[str, str], is_long: bool = False
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Titles and rows of ``vm list`` for people: of what not every host has, only what some VM has or asks for.

    :param names: what to call each VM, by UUID.
    :param is_long: whether to show :data:`LONG_TITLES` too, before the reason, which is last.
    """
    further = [more(vm) for vm in vms]
    shown = [index for index in range(len(MORE_TITLES)) if any(cells[index] != "-" for cells in further)]
    place, last = LIST_TITLES.index("Ways") + 1, LIST_TITLES.index("Reason")
    titles = (
        *LIST_TITLES[:place],
        *(MORE_TITLES[index] for index in shown),
        *LIST_TITLES[place:last],
        *(LONG_TITLES if is_long else ()),
        *LIST_TITLES[last:],
    )
    rows = []
    for vm, cells in zip(vms, further, strict=True):
        row = list_row(vm, names)
        between = (*row[place:last], *(long(vm) if is_long else ()))
        rows.append((*row[:place], *(cells[index] for index in shown), *between, *row[last:]))
    return titles, rows


def fields(vm: contract.DetailedVm) -> dict[str, Any]:
    """The rows of ``vm show``: every field but the threads."""
    return {
        "UUID": neutralise(vm["uuid"]),
        "Instance name": neutralise(vm["instance_name"]) or "-",
        "libvirt name": neutralise(vm["name"]),
        "Flavor": neutralise(vm["flavor"]) or "-",
        "Project": neutralise(vm["project"]) or "-",
        "State": _state(vm),
        "Reason": neutralise(vm["reason"]) or "-",
        "Since": utc.clock(vm["since"]),
        "Policy": vm["policy"] or "-",
        "Ways requested": _ways_requested(vm),
        "vCPUs with the ways": _vcpus(vm),
        "Ways granted": _ways_granted(vm),
        "Masks": units.masks_by_cache(vm["masks"]) or "-",
        **_parts(vm),
        "Memory bandwidth": _bandwidth(vm),
        "Caches it can run on": " ".join(map(str, vm["caches"])),
        "Control group": _group(vm["group"]),
        "Monitoring group": _monitoring(vm),
        "Main process": vm["pid"],
        "Tasks in place": _tasks(vm),
        "CPU outside of group": _outside(vm),
        "Last error": Cell(neutralise(vm["last_error"]), style="red") if vm["last_error"] else "-",
        "Next retry": "-" if vm["retry_in"] is None else f"in {units.duration(vm['retry_in'])}",
    }


def fills(counters: contract.VmTelemetry, host: contract.HostTelemetry) -> tuple[Fill, ...]:
    """What a VM holds of each cache where it was promised ways; empty where it was not, or an older agent is asked."""
    if counters["policy"] is None:
        return ()
    return fullness.fills(
        {int(cache): events.get("llc_occupancy") for cache, events in counters.get("caches", {}).items()},
        {int(cache): ways for cache, ways in counters["ways"].items()},
        {int(cache): ways for cache, ways in host["ways"].items()},
        {int(cache): size for cache, size in host["cache_bytes"].items()},
    )


def occupancy(telemetry: contract.Telemetry, vm: contract.Vm, terminal: Terminal) -> Cell:
    """What a VM holds of the L3 caches: cache by cache where it was promised ways, else together."""
    counters = telemetry["vms"].get(vm["uuid"])
    if counters is None:
        why = neutralise(vm["unmonitored_reason"]) or no_number.sentence("not-monitored")
        return Cell("-", f"unknown: {why}")
    found = fills(counters, telemetry["host"])
    if found:
        return Cell(fullness.plain(found), fullness.lines(found, terminal))
    held = counters["totals"].get("llc_occupancy")
    if held is None:
        reason = counters["missing"].get("llc_occupancy", "no-counter")
        return Cell("-", f"unknown: {no_number.sentence(reason)}")
    return Cell(f"{held:.0f}", f"{units.size(held)} of all caches together")


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
    code, data = vm.get("code_masks"), vm.get("data_masks")
    if code and data:
        has, total = units.parts_by_cache(code, data), units.ways_by_cache(vm["masks"])
        return has if total == str(vm["ways_requested"]) else f"{has} of {_asked_apart(vm) or vm['ways_requested']}"
    return _of(vm["masks"], vm["ways_requested"], _asked_apart(vm))


def _of(masks: Mapping[str, str], wanted: int | None, as_text: str = "") -> str:
    """How many ways there are, and how many are asked for where these are others."""
    granted = units.ways_by_cache(masks)
    if wanted is None or granted == str(wanted):
        return granted
    return f"{granted if masks else 0} of {as_text or wanted}"


def _asked_apart(vm: contract.Vm) -> str:
    code, data = vm.get("code_ways_requested"), vm.get("data_ways_requested")
    return "" if code is None or data is None else f"{code}c+{data}d"


def _ways_requested(vm: contract.Vm) -> str | int:
    if vm["ways_requested"] is None:
        return "-"
    code, data = vm.get("code_ways_requested"), vm.get("data_ways_requested")
    return f"{code} for code, {data} for data" if _asked_apart(vm) else vm["ways_requested"]


def _ways_granted(vm: contract.Vm) -> str:
    code, data = vm.get("code_masks"), vm.get("data_masks")
    if not code or not data:
        return units.ways_by_cache(vm["masks"])
    return f"{units.ways_by_cache(code)} for code, {units.ways_by_cache(data)} for data"


def _limit(vm: contract.Vm) -> str:
    return units.bandwidth_by_cache(vm.get("bandwidth", {}), vm.get("bandwidth_unit"))


def _bandwidth(vm: contract.Vm) -> str:
    granted, wanted = _limit(vm), vm.get("bandwidth_requested")
    if wanted is None:
        return granted
    asked = f"{wanted} {vm.get('bandwidth_requested_unit') or ''}".rstrip()
    return granted if granted == asked else f"{'no limit' if granted == '-' else granted}, {asked} asked for"


def _parts(vm: contract.Vm) -> dict[str, Any]:
    """The masks for code and for data, and what there is of L2, where the VM has or asks for such."""
    parts = {
        "Masks for code": vm.get("code_masks"),
        "Masks for data": vm.get("data_masks"),
        "L2 masks": vm.get("l2_masks"),
    }
    found: dict[str, Any] = {title: units.masks_by_cache(masks) for title, masks in parts.items() if masks}
    if vm.get("l2_ways_requested") is not None:
        found["L2 ways requested"] = vm["l2_ways_requested"]
        found["L2 ways granted"] = units.ways_by_cache(vm.get("l2_masks", {}))
    return found


def _vcpus(vm: contract.Vm) -> str:
    """The vCPUs that the flavor names, as far as the VM has them."""
    wanted, present = vm.get("vcpus_requested"), vm.get("vcpus")
    if wanted is None:
        return "all, and all other tasks" if vm["policy"] is not None else "-"
    if present is None:
        return f"{wanted}; which of them it has is not known"
    return wanted if present == wanted else f"{present or 'none'} of {wanted}"


def _tasks(vm: contract.Vm) -> Cell:
    return Cell(f"{vm['tasks_in_place']}/{vm['tasks']}", style="bold red" if _misplaced(vm) else "")


def _misplaced(vm: contract.Vm) -> bool:
    return vm["tasks_in_place"] < vm["tasks"]


def _outside(vm: contract.Vm) -> str:
    """How much CPU time its tasks used before they were moved to the group with its ways."""
    at_start, later = vm.get("outside_at_start"), vm.get("outside_later")
    if later is None:
        return "-"
    if at_start is None:
        return f"not known of its start, {later * 1e3:.1f} ms since the agent found it"
    return f"{at_start * 1e3:.1f} ms at its start, {later * 1e3:.1f} ms since"


def _group(name: str | None) -> str:
    return "(none)" if name is None else neutralise(name) or "(default)"


def _short(name: str | None) -> str:
    """A group's name or a UUID with no more of the UUID than people compare, which ``vm show`` takes too."""
    return _UUID.sub(r"\1", _group(name))


def _monitoring(vm: contract.Vm) -> str:
    """What counts the VM; where some of its vCPUs alone have the ways, what counts its other tasks too."""
    if vm.get("vcpus") and vm["group"]:
        rest = vm.get("rest_monitoring_group") or f"none ({neutralise(vm['unmonitored_reason'])})"
        return f"{neutralise(vm['monitoring_group'] or 'its control group')}; of its other tasks: {neutralise(rest)}"
    if vm["monitoring_group"] is not None:
        return neutralise(vm["monitoring_group"])
    if vm["unmonitored_reason"]:
        return f"none: {neutralise(vm['unmonitored_reason'])}"
    return "its control group" if vm["group"] else "none"
