# SPDX-License-Identifier: Apache-2.0
"""What differs between the kernels whose resctrl is simulated."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """The visible differences of one kernel's resctrl, as recorded on 6.12.95 and 7.2.12.

    :ivar version: major and minor number, such as ``6.12``.
    :ivar pads_values: masks are padded with zeros and bandwidths with blanks (``show_doms``).
    :ivar mkdir_clears_status: making a group or writing its CPUs forgets the messages before.
    :ivar mkdir_outside: the errno of a mkdir below ``info``.
    :ivar has_mba_event: ``mba_MBps_event`` chooses the counter that the bandwidth controller watches.
    :ivar has_assign_mode: ``info/L3_MON/mbm_assign_mode`` exists.
    :ivar has_io_alloc: ``io_alloc`` and ``io_alloc_cbm`` are there where the hardware is able to (Linux 6.19).
    :ivar has_package_events: what a package counts is there, where the hardware counts (Linux 7.0).
    :ivar starts_sparse: where masks may have gaps, a new group gets every free way, not the lowest run of them alone
        (``cbm_ensure_valid``).
    """

    version: str
    pads_values: bool
    mkdir_clears_status: bool
    mkdir_outside: int
    has_mba_event: bool
    has_assign_mode: bool
    has_io_alloc: bool
    has_package_events: bool
    starts_sparse: bool


LINUX_6_12 = Kernel(
    "6.12",
    pads_values=True,
    mkdir_clears_status=False,
    mkdir_outside=errno.EPERM,
    has_mba_event=False,
    has_assign_mode=False,
    has_io_alloc=False,
    has_package_events=False,
    starts_sparse=False,
)
LINUX_7_2 = Kernel(
    "7.2",
    pads_values=False,
    mkdir_clears_status=True,
    mkdir_outside=errno.ENODEV,
    has_mba_event=True,
    has_assign_mode=True,
    has_io_alloc=True,
    has_package_events=True,
    starts_sparse=True,
)


def of_release(release: str) -> Kernel:
    """The simulated kernel that behaves like the one whose ``uname -r`` is ``release``.

    :raises ValueError: if ``release`` does not begin with two numbers.
    """
    found = re.match(r"(\d+)\.(\d+)", release)
    if found is None:
        raise ValueError(f"{release!r} is no kernel release: it must begin with numbers such as 6.12")
    return LINUX_6_12 if (int(found[1]), int(found[2])) < (6, 13) else LINUX_7_2
