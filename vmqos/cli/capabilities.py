# SPDX-License-Identifier: Apache-2.0
"""``vmqos capabilities``: what this host's resctrl offers, and what each control group has."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vmqos.cli.common import settings
from vmqos.cli.common.output import Details, is_for_machines
from vmqos.cli.show import group_fields
from vmqos.cli.show.safe_text import distinct_names, neutralise
from vmqos.cli.show.units import masks_by_cache, parse_mask, size
from vmqos.local_api import contract, exceptions

_CDP = {
    "on": "split into code and data (CDP)",
    "off": "can be split into code and data (CDP), which the mount option {option} would do",
    "unsupported": "can't be split into code and data (CDP)",
}


class Capabilities(Details):
    """Show what the hardware and the resctrl mount of this host offer, and which control group has what of it.

    One line for each resource of schemata that can be partitioned, with the ways of its caches or the range of its
    bandwidth, and what can be monitored. 'Control groups' is the number of classes of service (CLOSIDs): the
    smallest of all resources, the default group included. 'Monitoring groups' is the number of RMIDs.

    Then each control group: its VMs, its masks and limits, its mode, how many tasks it has, and the CPUs of its
    cpus_list, whose tasks of the default group are in it. Where resctrl is mounted with the option debug, CLOSIDs and
    RMIDs follow.

    Asks the agent; where it does not run, reads resctrl itself, and shows the beginnings of UUIDs in place of names.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Ask the agent, or else look."""
        options = self.app.options
        agent = settings.agent(options)
        vms: list[contract.Vm] = []
        try:
            found = agent.capabilities()
            # An agent before this question does not understand it.
            with contextlib.suppress(exceptions.AgentRefused):
                found["groups"] = agent.groups()
            if not is_for_machines(parsed_args):
                # Without their names VMs are shown by UUID.
                with contextlib.suppress(exceptions.LocalApiError):
                    vms = agent.vms()
        except exceptions.AgentNotRunning:
            # Imported here: only this command, and only without an agent, reads resctrl in this process.
            from vmqos.host.describe import host

            found = host(settings.readable_configuration(options))
        if is_for_machines(parsed_args):
            return tuple(found), tuple(found.values())
        fields = describe(found) | group_fields.describe(found.get("groups", ()), vms, distinct_names(vms))
        return tuple(fields), tuple(fields.values())


def describe(found: Mapping[str, Any]) -> dict[str, str]:
    """The capabilities as lines: what it is, and what it offers."""
    fields = {"Control groups": f"{found['num_closids']} (CLOSIDs), the default group included"}
    if found.get("mount_options"):
        fields["Mounted with"] = ", ".join(map(neutralise, found["mount_options"]))
    for name, cache in found["caches"].items():
        fields[neutralise(name)] = _cache(name, cache)
    for name, bandwidth in found["bandwidths"].items():
        fields[neutralise(name)] = _bandwidth(bandwidth)
    fields |= _monitoring(found["monitoring"])
    return fields


def _cache(name: str, cache: Mapping[str, Any]) -> str:
    every, shared = parse_mask(cache["cbm_mask"]), parse_mask(cache["shareable_bits"])
    least = cache["min_cbm_bits"]
    lines = [
        f"{every.bit_count()} ways (mask {every:x}) on {_caches(cache['cache_ids'])}, {cache['num_closids']} CLOSIDs",
        f"a mask has {least} way{'' if least == 1 else 's'} or more, "
        + ("gaps allowed" if cache["sparse_masks"] else "without gaps"),
    ]
    if shared:
        lines.append(f"{shared.bit_count()} of them (mask {shared:x}) are filled by I/O devices too")
    # An agent before these fields tells none of them.
    if cache.get("size_bytes"):
        lines.append(_shape(cache))
    if cache.get("cdp") in _CDP:
        lines.append(_CDP[cache["cdp"]].format(option="cdpl2" if name.startswith("L2") else "cdp"))
    confined = cache.get("io_alloc")
    if confined is not None:
        lines.append(f"devices can be confined to some ways (io_alloc): {masks_by_cache(confined) or 'they are not'}")
    return "\n".join(lines)


def _shape(cache: Mapping[str, Any]) -> str:
    text = f"{size(cache['size_bytes'])} each, {size(cache['way_bytes'])} a way"
    if cache.get("sets") and cache.get("line_bytes"):
        text += f", {cache['sets']} sets, lines of {cache['line_bytes']} B"
    return text


def _bandwidth(bandwidth: Mapping[str, Any]) -> str:
    least, step = bandwidth["min_bandwidth"], bandwidth["bandwidth_gran"]
    # An agent before this field told no unit.
    match bandwidth.get("unit"):
        case "percent":
            values = f"memory bandwidth from {least} % in steps of {step} %"
        case "MBps":
            values = f"memory bandwidth in MB/s (mba_MBps), which the kernel keeps by steps of {step} %"
        case "1/8 GB/s":
            values = f"memory bandwidth from {least} in steps of {step}; 1 is 1/8 GB/s"
        case _:
            values = f"memory bandwidth from {least} in steps of {step}"
    text = f"{values}\non {_caches(bandwidth['cache_ids'])}, {bandwidth['num_closids']} CLOSIDs"
    mode = bandwidth.get("thread_throttle_mode")
    if mode:
        text += f"\nof two threads of a core in different groups: {_THROTTLED.get(mode, neutralise(mode))}"
    return text


_THROTTLED = {
    "max": "both are throttled as the one that is throttled more (max)",
    "per-thread": "each is throttled for itself (per-thread)",
}


def _monitoring(monitoring: Mapping[str, Any] | None) -> dict[str, str]:
    if monitoring is None:
        return {"Monitoring": "none: this host has no cache or bandwidth counters, or the kernel hides them"}
    configurable = monitoring.get("configurable", ())
    events = [f"{event}, configurable" if event in configurable else event for event in monitoring["events"]]
    events += [f"{event}, of the package" for event in monitoring.get("package_events", ())]
    fields = {
        "Monitoring groups": f"{monitoring['num_rmids']} (RMIDs), one for each group",
        "Counters": "\n".join(map(neutralise, events)) or "none",
        "RMID reuse": f"once less than {size(monitoring['max_threshold_occupancy'])} of the old group's data is cached",
    }
    if monitoring.get("assign_mode"):
        count = monitoring.get("assignable_counters")
        fields["Counter assignment"] = neutralise(monitoring["assign_mode"]) + (f", {count} counters" if count else "")
    if monitoring.get("sub_numa_nodes"):
        fields["Sub-NUMA clusters"] = (
            f"{monitoring['sub_numa_nodes']} nodes, counted one by one and summed for each cache"
        )
    return fields


def _caches(ids: Sequence[int]) -> str:
    return f"cache{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids)) or 'none'}"
