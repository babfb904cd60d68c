# SPDX-License-Identifier: Apache-2.0
"""Whether there is a cache behind the masks, or software only plays one."""

from __future__ import annotations

from vmqos.resctrl import cpuinfo

_EMULATORS = ("QEMU",)
_LONGEST = 1 << 16
"""Characters of a file that are read."""


def why_not(simulated: bool, proc: str = "/proc", dmi: str = "/sys/class/dmi/id") -> str:
    """Why figures taken here mean nothing; empty on a machine of iron.

    A hypervisor sets a bit of CPUID that no processor sets (Intel SDM volume 2 and AMD APM volume 3 leave leaf 1, ECX
    bit 31 to it), which Linux shows as the flag ``hypervisor``. Arm has no such bit; there the firmware's tables tell.

    :param simulated: whether resctrl is the simulator's.
    :param proc: where procfs is mounted.
    :param dmi: where the firmware's tables are.
    """
    if simulated:
        return "resctrl is simulated here, and its masks partition no cache"
    if "hypervisor" in cpuinfo.flags(proc) or _read(f"{dmi}/sys_vendor").strip() in _EMULATORS:
        return (
            "this is a virtual or emulated machine, and what its masks do to a real cache, if anything, can't be known "
            "from inside"
        )
    return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST)
    except OSError:
        return ""
