# SPDX-License-Identifier: Apache-2.0
"""In what the kernels differ from each other: the only place of the suite that knows of versions.

A case that depends on one of these asks ``rdt.has(difference)``; a case about something that older kernels do not have
at all is marked ``needs.kernel_with(difference)``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that newer kernels do in another way.

    :ivar what: the newer kernels' way.
    :ivar since: the first version that has it.
    :ivar reference: where it was changed.
    """

    what: str
    since: tuple[int, int]
    reference: str

    def is_in(self, version: str) -> bool:
        """Whether a kernel has it.

        :param version: such as ``6.12`` or ``7.2``.
        """
        major, minor = version.split(".")[:2]
        return (int(major), int(minor)) >= self.since


UNKNOWN = (6, 13)
"""Some version after 6.12 and not after 7.2, the two that the suite runs on: nobody looked for it."""

UNPADDED_VALUES = Difference(
    "schemata shows masks without leading zeros and bandwidths without leading blanks",
    (6, 15),
    "commit 43312b8ea1c6: x86/resctrl: Remove data_width and the tabular format",
)
MBPS_EVENT = Difference(
    "mounted with mba_MBps, each control group has a file mba_MBps_event",
    (6, 14),
    'commit f5cd0e316f14: x86/resctrl: Add "mba_MBps_event" file to CTRL_MON directories',
)
ASSIGNMENT_MODE = Difference(
    "info/L3_MON/mbm_assign_mode says how counters come to groups",
    (6, 18),
    "fs/resctrl/monitor.c: resctrl_mbm_assign_mode_show, resctrl_mbm_assign_mode_write",
)
IO_ALLOC = Difference(
    "where devices can be confined to some ways, info/L3 has io_alloc and io_alloc_cbm",
    (6, 19),
    "commit 9445c7059c1c: fs/resctrl: Add user interface to enable/disable io_alloc feature",
)
PACKAGE_EVENTS = Difference(
    "where processor packages count for RMIDs (Intel's AET), info has PERF_PKG_MON, and mon_data a folder for each",
    (7, 0),
    "fs/resctrl/ctrlmondata.c: print_event_value; arch/x86/kernel/cpu/resctrl/intel_aet.c",
)
STATUS_CLEARED_BY_MKDIR = Difference(
    "making a group and writing its CPUs clear last_cmd_status; before, messages pile up",
    UNKNOWN,
    "fs/resctrl/rdtgroup.c: rdtgroup_mkdir, rdtgroup_cpus_write",
)
MKDIR_OUTSIDE_GROUPS = Difference(
    "to make a group below info is refused with ENODEV; before, with EPERM",
    UNKNOWN,
    "fs/resctrl/rdtgroup.c: rdtgroup_mkdir",
)
SPARSE_STARTING_MASKS = Difference(
    "where masks may be sparse, a new group starts with every way that is free; before, with the lowest run of them",
    UNKNOWN,
    "fs/resctrl/rdtgroup.c: cbm_ensure_valid",
)
UMOUNT_HANGS_ON_A_LOCKED_REGION = Difference(
    "umount hangs for ever while a group is pseudo-locked: pseudo_lock_devnode waits for the lock that umount holds",
    (6, 15),
    "commit 741c10b096bc: kernfs: Use RCU to access kernfs_node::name",
)
