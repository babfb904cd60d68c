# SPDX-License-Identifier: Apache-2.0
"""``vmqos capabilities``: what this host's resctrl offers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vmqos.cli import exceptions, settings
from vmqos.cli.output import Details, is_for_machines
from vmqos.cli.safe_text import neutralise
from vmqos.cli.units import parse_mask, size


class Capabilities(Details):
    """Show what the hardware and the resctrl mount of this host offer, as resctrl's info/ says.

    One line for each resource of schemata that can be partitioned, with the ways of its caches or the range of its
    bandwidth, and what can be monitored. 'Control groups' is the number of classes of service (CLOSIDs): the
    smallest of all resources, the default group included. 'Monitoring groups' is the number of RMIDs.

    Asks the agent; where it does not run, reads resctrl itself.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Ask the agent, or else look."""
        options = self.app.options
        try:
            found = settings.agent(options).capabilities()
        except exceptions.AgentNotRunning:
            # Imported here: only this command, and only without an agent, reads resctrl in this process.
            from vmqos.agent import host, report

            found = report.capabilities(host.read_capabilities(settings.configuration(options)))
        if is_for_machines(parsed_args):
            return tuple(found), tuple(found.values())
        fields = describe(found)
        return tuple(fields), tuple(fields.values())


def describe(found: Mapping[str, Any]) -> dict[str, str]:
    """The capabilities as lines: what it is, and what it offers."""
    fields = {"Control groups": f"{found['num_closids']} (CLOSIDs), the default group included"}
    for name, cache in found["caches"].items():
        fields[neutralise(name)] = _cache(cache)
    for name, bandwidth in found["bandwidths"].items():
        fields[neutralise(name)] = _bandwidth(bandwidth)
    fields |= _monitoring(found["monitoring"])
    return fields


def _cache(cache: Mapping[str, Any]) -> str:
    every, shared = parse_mask(cache["cbm_mask"]), parse_mask(cache["shareable_bits"])
    least = cache["min_cbm_bits"]
    lines = [
        f"{every.bit_count()} ways (mask {every:x}) on {_caches(cache['cache_ids'])}, {cache['num_closids']} CLOSIDs",
        f"a mask has {least} way{'' if least == 1 else 's'} or more, "
        + ("gaps allowed" if cache["sparse_masks"] else "without gaps"),
    ]
    if shared:
        lines.append(f"{shared.bit_count()} of them (mask {shared:x}) are filled by I/O devices too")
    return "\n".join(lines)


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
    return f"{values}\non {_caches(bandwidth['cache_ids'])}, {bandwidth['num_closids']} CLOSIDs"


def _monitoring(monitoring: Mapping[str, Any] | None) -> dict[str, str]:
    if monitoring is None:
        return {"Monitoring": "none: this host has no cache or bandwidth counters, or the kernel hides them"}
    return {
        "Monitoring groups": f"{monitoring['num_rmids']} (RMIDs), one for each group",
        "Counters": "\n".join(neutralise(event) for event in monitoring["events"]) or "none",
        "RMID reuse": f"once less than {size(monitoring['max_threshold_occupancy'])} of the old group's data is cached",
    }


def _caches(ids: Sequence[int]) -> str:
    return f"cache{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids)) or 'none'}"
