# SPDX-License-Identifier: Apache-2.0
"""The ``[allocation]`` section: who may get which ways."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("allocation", title="Who may get which ways")

OPTIONS = [
    cfg.IntOpt(
        "default_ways_min",
        default=2,
        min=1,
        max=32,
        help="The fewest ways that the default group, which is the host itself and every VM without a promise, "
        "keeps on each cache: on every L3, and on every L2 where VMs have ways of their own.",
    ),
    cfg.BoolOpt(
        "use_shareable_ways",
        default=False,
        help="Whether ways that I/O devices fill too (info/L3/shareable_bits) may be promised exclusively. "
        "They are given out last, and no mask can keep the devices out of them.",
    ),
    cfg.StrOpt(
        "reserved_ways",
        regex=r"^(0[xX])?[0-9a-fA-F]+$",
        default="0",
        help="L3 ways, as a hexadecimal mask, that vmqos leaves alone on every cache: they are neither promised nor "
        "given to the default group. libvirt's cachetune, for one, gives out only ways that no group holds.",
    ),
    cfg.ListOpt(
        "shared_classes",
        default=[],
        help="The classes of shared promises for which this host keeps a CLOSID (class of service) at any time, also "
        "while no VM is in them. A class is named by what it grants: ways4 for hw:cache_ways=4 with "
        "hw:cache_policy=shared, mb50 for hw:mem_bandwidth_percent=50, ways4-mb50 for both, and likewise code1-data3, "
        "l2ways2 and mbps4000 beside L3 ways. Placement is told of each (CUSTOM_LLC_SHARED_WAYS4), so that servers of "
        "its flavor are placed only where the class is sure to be. What this host can't grant takes no CLOSID.",
    ),
    cfg.IntOpt(
        "other_classes",
        default=None,
        min=0,
        help="How many shared classes there may be beside those of shared_classes, for VMs whose flavors do not ask "
        "Placement for their class. Placement counts these CLOSIDs out of what it promises to exclusive VMs. If "
        "unset, 2 where there are 8 CLOSIDs or more and 1 on other hosts; and as many as there are CLOSIDs where "
        "Placement is told nothing ([placement]).",
    ),
    cfg.StrOpt(
        "when_full",
        default="pend",
        choices=[
            ("pend", "the VM waits in the default group until a class is free"),
            ("share", "the VM joins an existing class, and is reported as degraded"),
        ],
        help="What becomes of a VM when the hardware has no CLOSID (class of service) left for it.",
    ),
    cfg.BoolOpt(
        "kernel_exclusive",
        default=True,
        help="Put the groups of exclusive VMs into the kernel's mode 'exclusive' where it allows that, so that the "
        "kernel itself refuses every mask that would overlap theirs, also one that another program writes.",
    ),
]
