# SPDX-License-Identifier: Apache-2.0
"""What is judged by, as values that JSON has: for the agent's API and for recordings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vmqos.insight.model import Host, LimitedIn, Promise, Sample, Vm


def plain_host(host: Host) -> dict[str, Any]:
    """What is known of the host; masks are hexadecimal.

    What it limits bandwidth in and in which steps, and how many vCPUs a VM has, is left out if it is not known.
    """
    steps = host.percent_steps
    is_known = host.limited_in is not LimitedIn.UNKNOWN
    return {
        "caches": {
            str(number): {"size": cache.size, "ways": cache.ways, "bandwidth": cache.bandwidth}
            for number, cache in host.caches.items()
        },
        "vms": {key: _plain_vm(vm) for key, vm in host.vms.items()},
        "memory_seconds": host.memory_seconds,
        "memory_cycles": host.memory_cycles,
        **({"bandwidth_unit": host.limited_in.value} if is_known else {}),
        **({"bandwidth_gran": steps.gran, "min_bandwidth": steps.least} if steps is not None else {}),
    }


def _plain_vm(vm: Vm) -> dict[str, Any]:
    return {
        "flavor": vm.flavor,
        "masks": {str(cache): f"{mask:x}" for cache, mask in vm.masks.items()},
        "promise": plain_promise(vm.promise),
        **({"vcpus": vm.vcpus} if vm.vcpus else {}),
    }


def plain_promise(promise: Promise) -> dict[str, Any]:
    """What a flavor asks for, and nothing of the rest."""
    return {name: value for name, value in asdict(promise).items() if value}


def plain_sample(sample: Sample) -> dict[str, Any]:
    """What was measured, without its time, which all VMs' samples share."""
    counts = sample.counts
    return {
        "occupancy": {str(cache): held for cache, held in sample.occupancy.items()},
        "bandwidth": sample.bandwidth,
        "counts": None
        if counts is None
        else {
            "cycles": counts.cycles,
            "instructions": counts.instructions,
            "references": counts.references,
            "misses": counts.misses,
        },
        **({} if sample.cpu_time is None else {"cpu_time": sample.cpu_time}),
    }
