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
        "kernel itself refuses every mask that would overlap theirs, whoever writes it.",
    ),
]
