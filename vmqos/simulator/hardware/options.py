# SPDX-License-Identifier: Apache-2.0
"""Mount options of resctrl: which there are and which a machine refuses."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from vmqos.simulator.hardware.profiles import Profile
from vmqos.simulator.kernel.numbers import refusal


@dataclass(frozen=True, slots=True)
class MountOptions:
    """What a mount asks for.

    :ivar cdp: code and data in the L3 have masks of their own.
    :ivar cdpl2: code and data in the L2 have masks of their own.
    :ivar mba_mbps: memory bandwidth is given in MB/s and kept by software.
    :ivar debug: show the hardware's class and monitoring numbers.
    """

    cdp: bool = False
    cdpl2: bool = False
    mba_mbps: bool = False
    debug: bool = False

    def __str__(self) -> str:
        shown = {"cdp": self.cdp, "cdpl2": self.cdpl2, "mba_MBps": self.mba_mbps, "debug": self.debug}
        return ",".join(name for name, given in shown.items() if given)


_FIELDS = {"cdp": "cdp", "cdpl2": "cdpl2", "mba_MBps": "mba_mbps", "debug": "debug"}


def parse(text: str, profile: Profile) -> MountOptions:
    """Read the options of ``mount -o`` (``rdt_parse_param``).

    :param text: names joined by commas; empty ones are skipped.
    :raises OSError: ``EINVAL`` for an unknown option, a value where none belongs, or a bandwidth controller that
        the machine cannot give.
    """
    names = [name for name in text.split(",") if name]
    if any(name not in _FIELDS for name in names):
        raise refusal(errno.EINVAL)
    options = MountOptions(**{_FIELDS[name]: True for name in names})
    if options.mba_mbps and not _can_control_bandwidth(profile):
        raise refusal(errno.EINVAL)
    return options


def check_cdp(options: MountOptions, profile: Profile) -> None:
    """Refuse CDP where the caches have none; the kernel looks at that after all else (``rdt_enable_ctx``).

    :raises OSError: ``EINVAL``.
    """
    for wanted, cache in ((options.cdp, profile.l3), (options.cdpl2, profile.l2)):
        if wanted and not (cache and cache.cdp):
            raise refusal(errno.EINVAL)


def _can_control_bandwidth(profile: Profile) -> bool:
    """Whether the software bandwidth controller can run (``supports_mba_mbps``)."""
    if profile.bandwidth is None or not profile.bandwidth.linear or profile.monitoring is None:
        return False
    watched = {"mbm_local_bytes"}
    if profile.kernel.has_mba_event:
        watched.add("mbm_total_bytes")
    return not watched.isdisjoint(profile.monitoring.events)
