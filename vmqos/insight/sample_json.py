# SPDX-License-Identifier: Apache-2.0
"""What is judged by, as values that JSON has: for the agent's API and for recordings."""

from __future__ import annotations

from typing import Any

from vmqos.insight.model import Host, Sample


def plain_host(host: Host) -> dict[str, Any]:
    """What is known of the host; masks are hexadecimal."""
    return {
        "caches": {
            str(number): {"size": cache.size, "ways": cache.ways, "bandwidth": cache.bandwidth}
            for number, cache in host.caches.items()
        },
        "vms": {
            key: {"flavor": vm.flavor, "masks": {str(cache): f"{mask:x}" for cache, mask in vm.masks.items()}}
            for key, vm in host.vms.items()
        },
        "memory_seconds": host.memory_seconds,
        "memory_cycles": host.memory_cycles,
    }


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
    }
