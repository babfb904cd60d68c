# SPDX-License-Identifier: Apache-2.0
"""What the hardware was told: the registers of the L3 masks, as each cache has them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

L3_MASK_0 = 0xC90
"""IA32_L3_MASK_0 of Intel and L3_MASK_0 of AMD; that of CLOSID n is n further on.

With CDP that of its data is 2n further on, and that of its code follows (Intel SDM volume 3, 18.19.4.3).
"""

SPLIT = Path("/sys/fs/resctrl/info/L3CODE")
"""There only with CDP."""

CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class L3Registers:
    """The mask registers of every L3 cache.

    :ivar devices: an open ``/dev/cpu/N/msr`` by cache id, of one CPU of that cache.
    :ivar caches: the cache id of each CPU.
    """

    devices: dict[int, int]
    caches: dict[int, int]

    @classmethod
    def open(cls) -> L3Registers:
        """Open them for as long as the process lives.

        :raises FileNotFoundError: if the module ``msr`` is not loaded.
        """
        devices: dict[int, int] = {}
        caches: dict[int, int] = {}
        for index in sorted(CPUS.glob("cpu[0-9]*/cache/index3")):
            cpu = int(index.parts[-3].removeprefix("cpu"))
            cache = caches[cpu] = int((index / "id").read_text())
            if cache not in devices:
                devices[cache] = os.open(f"/dev/cpu/{cpu}/msr", os.O_RDONLY | os.O_CLOEXEC)
        return cls(devices, caches)

    def caches_of(self, cpus: Iterable[int]) -> frozenset[int]:
        """The ids of the caches of these CPUs."""
        return frozenset(self.caches[cpu] for cpu in set(cpus))

    def masks(self, closid: int) -> dict[int, int]:
        """The masks of a CLOSID by cache id; with CDP the ways that code or data fill."""
        numbers = (2 * closid, 2 * closid + 1) if SPLIT.exists() else (closid, closid)
        return {
            cache: self._read(device, numbers[0]) | self._read(device, numbers[1])
            for cache, device in self.devices.items()
        }

    @staticmethod
    def _read(device: int, number: int) -> int:
        return int.from_bytes(os.pread(device, 8, L3_MASK_0 + number), "little")
