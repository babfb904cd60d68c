# SPDX-License-Identifier: Apache-2.0
"""A resctrl of plain files, with the texts of real kernels."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

EVENTS = ("llc_occupancy", "mbm_local_bytes", "mbm_total_bytes")
PACKAGE_EVENTS = ("core_energy", "unhalted_core_cycles")
VM = "00000000-0000-4000-8000-00000000000{}"
ONE, TWO, THREE = (VM.format(number) for number in (1, 2, 3))


class Tree:
    """Makes and changes groups.

    :param root: an empty directory.
    :param caches: cache ids.
    :param events: what each cache counts.
    :param packages: ids of packages that count energy and cycles.
    :param nodes: how many sub-NUMA nodes each cache has; 0: it is not divided.
    """

    def __init__(self, root: Path, caches=(0, 1), events=EVENTS, packages=(), nodes=0) -> None:
        self.root = root
        self.caches = caches
        self.events = events
        self.packages = packages
        self.nodes = nodes
        (root / "info" / "L3").mkdir(parents=True)
        (root / "info" / "L3_MON").mkdir()
        for name, text in {
            "last_cmd_status": "ok",
            "L3/cbm_mask": "7ff",
            "L3/min_cbm_bits": "1",
            "L3/num_closids": "16",
            "L3/shareable_bits": "600",
            "L3_MON/num_rmids": "192",
            "L3_MON/mon_features": "\n".join(events),
        }.items():
            (root / "info" / name).write_text(f"{text}\n")
        self.control("", "7ff")

    def control(self, name: str, mask: str) -> Path:
        """Make a control group with that mask on all caches, or change the mask."""
        group = self.root / name
        if not (group / "mon_data").exists():
            self._count(group)
            (group / "mon_groups").mkdir()
        masks = ";".join(f"{cache}={mask}" for cache in self.caches)
        (group / "schemata").write_text(f"    MB:0=100;1=100\n    L3:{masks}\n")
        size = 17301504 // 11 * int(mask, 16).bit_count()
        (group / "size").write_text("    L3:" + ";".join(f"{cache}={size}" for cache in self.caches) + "\n")
        (group / "mode").write_text("shareable\n")
        return group

    def monitoring(self, name: str, control: str = "") -> Path:
        """Make a monitoring group."""
        group = self.root / control / "mon_groups" / name
        self._count(group)
        return group

    def vm(self, uuid: str, control: str = "", **values: object) -> Path:
        """Make a VM's monitoring group, with these values on each cache."""
        group = self.monitoring(f"vmqos.{uuid}", control)
        for event, value in values.items():
            self.set(group, event, value)
        return group

    def set(self, group: Path, event: str, value: object, *caches: int) -> None:
        """Let a counter say something, on all caches or these."""
        for cache in caches or self.caches:
            (group / "mon_data" / f"mon_L3_{cache:02d}" / event).write_text(f"{value}\n")

    def set_package(self, group: Path, event: str, value: object, *packages: int) -> None:
        """Let a package's counter say something, on all packages or these."""
        for package in packages or self.packages:
            (group / "mon_data" / f"mon_PERF_PKG_{package:02d}" / event).write_text(f"{value}\n")

    def remove(self, group: Path) -> None:
        """Remove a group; unlike the kernel's, its open files still answer."""
        shutil.rmtree(group)

    def _count(self, group: Path) -> None:
        for cache in self.caches:
            directory = group / "mon_data" / f"mon_L3_{cache:02d}"
            parts = [directory / f"mon_sub_L3_{cache * self.nodes + node:02d}" for node in range(self.nodes)]
            for folder in (directory, *parts):
                folder.mkdir(parents=True)
                for event in self.events:
                    (folder / event).write_text("0\n")
        for package in self.packages:
            directory = group / "mon_data" / f"mon_PERF_PKG_{package:02d}"
            directory.mkdir(parents=True)
            for event in PACKAGE_EVENTS:
                (directory / event).write_text("Unavailable\n")


def open_files(root: Path) -> list[str]:
    """The files below ``root`` that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            continue
        if target.startswith(f"{root}/"):
            found.append(target)
    return found
