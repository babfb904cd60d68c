# SPDX-License-Identifier: Apache-2.0
"""Maps a region: ``DEVICE SIZE [CPUS]``. Says what came of it, and lets go of it when standard input ends."""

from __future__ import annotations

import mmap
import os
import sys

from vmqos.resctrl.topology import parse_cpu_list


def main(device: str, size: str, cpus: str) -> None:
    """Map it, say what its first bytes are, write to all of it, read it back."""
    if cpus:
        os.sched_setaffinity(0, parse_cpu_list(cpus))
    descriptor = os.open(device, os.O_RDWR)
    try:
        region = mmap.mmap(descriptor, int(size), mmap.MAP_SHARED)
    except OSError as error:
        print(f"refused: {error.strerror}", flush=True)
        return
    empty = not any(region[:])
    region[:] = b"\xa5" * int(size)
    print(f"mapped: {'zeros' if empty else 'data'}, {region[:].count(0xA5)} bytes read back", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
