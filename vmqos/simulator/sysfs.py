# SPDX-License-Identifier: Apache-2.0
"""A copy of sysfs's cache directories for the simulated caches."""

from __future__ import annotations

from pathlib import Path

from vmqos.simulator.hardware.topology import Cache, Topology
from vmqos.simulator.kernel.cpus import format_list


def write(directory: str, topology: Topology) -> None:
    """Write ``cpuN/cache/indexM/{id,level,type,size,shared_cpu_list,ways_of_associativity}``.

    Index 2 is the L2 and index 3 the L3, as on x86.

    :param directory: made if it does not exist.
    :raises OSError: if it cannot be written.
    """
    for level, ways in ((2, topology.l2_ways), (3, topology.l3_ways)):
        for cache in topology.caches(level):
            for cpu in cache.cpus:
                _write_index(Path(directory) / f"cpu{cpu}" / "cache" / f"index{level}", level, ways, cache)


def _write_index(path: Path, level: int, ways: int, cache: Cache) -> None:
    path.mkdir(parents=True, exist_ok=True)
    values = {
        "id": str(cache.id),
        "level": str(level),
        "type": "Unified",
        "size": f"{cache.size // 1024}K",
        "shared_cpu_list": format_list(cache.cpus),
        "ways_of_associativity": str(ways),
    }
    for name, value in values.items():
        (path / name).write_text(value + "\n", encoding="ascii")
