# SPDX-License-Identifier: Apache-2.0
"""The machine that a recording was made on, derived from what it says of itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.functional.replay.recording import Record, contents, refused
from vmqos.simulator.hardware.kernel_versions import of_release
from vmqos.simulator.hardware.profiles import BandwidthAllocation, CacheAllocation, Monitoring, Profile
from vmqos.simulator.hardware.topology import Cache, Topology
from vmqos.simulator.kernel.cpus import parse_list

_PSEUDO_LOCK_MODELS = {79, 92, 122}
"""Intel models whose prefetchers the kernel knows to switch off (``get_prefetch_disable_bits``)."""
_MANY_CPUS = 1 << 16


def profile_of(records: Sequence[Record], name: str) -> Profile:
    """The profile of the machine that made a recording.

    Only its environment, its caches, the first tree of ``info`` and which mounts it took are looked at, and,
    for the unit in which the hardware counts, the counters' values.

    :raises ValueError: if the recording lacks what is needed.
    """
    environment = next((record for record in records if record["op"] == "env"), None)
    if environment is None:
        raise ValueError("the recording has no record of its environment")
    processor = _processor(environment)
    files = contents(records)
    accepted = {str(record["data"]) for record in records if record["op"] == "mount" and refused(record) is None}
    return Profile(
        name,
        f"as recorded in {name}",
        of_release(environment["uname"][2]),
        _topology(records),
        l3=_cache(files, 3, "cdp" in accepted),
        l2=_cache(files, 2, "cdpl2" in accepted),
        bandwidth=_bandwidth(files, processor),
        monitoring=_monitoring(records, files, processor),
        pseudo_lock=processor.get("vendor_id") == "GenuineIntel"
        and int(processor.get("model", 0)) in _PSEUDO_LOCK_MODELS,
    )


def _processor(environment: Record) -> dict[str, str]:
    """The first lines of ``/proc/cpuinfo`` as a mapping."""
    pairs = (line.partition(":") for line in environment.get("model", []))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _topology(records: Sequence[Record]) -> Topology:
    caches: dict[int, dict[int, Cache]] = {2: {}, 3: {}}
    ways = {2: 0, 3: 0}
    for record in records:
        level = int(record["level"]) if record["op"] == "cache" else 0
        if level not in caches or record["id"] is None:
            continue
        number = int(record["id"])
        size = int(record["size"].strip().removesuffix("K")) * 1024
        caches[level][number] = Cache(number, size, parse_list(record["shared_cpu_list"], _MANY_CPUS))
        ways[level] = int(record["ways_of_associativity"])
    if not caches[2] and not caches[3]:
        raise ValueError("the recording has no record of the machine's caches")
    in_order = {level: tuple(found[number] for number in sorted(found)) for level, found in caches.items()}
    return Topology(in_order[3], in_order[2], ways[3], ways[2])


def _cache(files: dict[str, str], level: int, cdp: bool) -> CacheAllocation | None:
    folder = f"info/L{level}"
    if f"{folder}/cbm_mask" not in files:
        return None
    return CacheAllocation(
        level,
        int(files[f"{folder}/cbm_mask"], 16).bit_length(),
        int(files[f"{folder}/num_closids"]),
        int(files[f"{folder}/min_cbm_bits"]),
        int(files.get(f"{folder}/shareable_bits", "0"), 16),
        files.get(f"{folder}/sparse_masks", "0\n") == "1\n",
        cdp,
    )


def _bandwidth(files: dict[str, str], processor: dict[str, str]) -> BandwidthAllocation | None:
    if "info/MB/num_closids" not in files:
        return None
    line = next(line for line in files["schemata"].splitlines() if line.strip().startswith("MB:"))
    mode = files.get("info/MB/thread_throttle_mode")
    return BandwidthAllocation(
        int(files["info/MB/num_closids"]),
        int(files["info/MB/min_bandwidth"]),
        int(line.partition("=")[2].split(";")[0]),
        int(files["info/MB/bandwidth_gran"]),
        files["info/MB/delay_linear"] == "1\n",
        mode.strip() if mode is not None else None,
        3 if processor.get("vendor_id") == "GenuineIntel" else 4,
    )


def _monitoring(records: Sequence[Record], files: dict[str, str], processor: dict[str, str]) -> Monitoring | None:
    folder = "info/L3_MON"
    if f"{folder}/num_rmids" not in files:
        return None
    features = files[f"{folder}/mon_features"].split()
    events = tuple(feature for feature in features if not feature.endswith("_config"))
    size = processor.get("cache size", "")
    return Monitoring(
        int(files[f"{folder}/num_rmids"]),
        events,
        _unit(records),
        int(files.get(f"{folder}/max_threshold_occupancy", "0")),
        int(size.split()[0]) * 1024 if size else None,
        tuple(
            (event, int(files[f"{folder}/{event}_config"].partition("=")[2].split(";")[0], 16))
            for event in events
            if f"{event}_config" in features
        ),
    )


def _unit(records: Sequence[Record]) -> int:
    """The bytes that the hardware counts as one: what divides every counter that was recorded."""
    found: set[int] = set()
    for record in records:
        if record["op"] == "mon":
            for files in record["values"].values():
                found.update(_numbers(list(files.values())))
        elif record["op"] in ("tree", "read") and record["path"].rpartition("/")[2] in _COUNTERS:
            found.update(_numbers([record.get("content"), record.get("ret")]))
    return math.gcd(*found) or 1


_COUNTERS = {"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"}


def _numbers(values: Sequence[Any]) -> list[int]:
    return [int(value) for value in values if isinstance(value, str) and value.strip().isdigit()]
