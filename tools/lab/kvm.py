# SPDX-License-Identifier: Apache-2.0
"""Whether KVM really works here: a device node, even one that opens, does not say so."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

PROBE_TIMEOUT = 10.0


def usable() -> bool:
    """Run a VM's firmware under KVM and see whether it says its first word.

    Takes a tenth of a second where KVM works.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    with tempfile.TemporaryDirectory(prefix="vmqos-kvm-") as directory:
        said = Path(directory) / "firmware"
        qemu = subprocess.Popen(
            [
                *(
                    "qemu-system-x86_64",
                    "-accel",
                    "kvm",
                    "-machine",
                    "pc",
                    "-m",
                    "32",
                    "-nodefaults",
                    "-display",
                    "none",
                ),
                # SeaBIOS writes its messages to this port.
                *("-debugcon", f"file:{said}", "-global", "isa-debugcon.iobase=0x402"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + PROBE_TIMEOUT
            while qemu.poll() is None and time.monotonic() < deadline:
                if said.exists() and said.stat().st_size:
                    return True
                time.sleep(0.02)
            return False
        finally:
            qemu.kill()
            qemu.wait()


def virt_type() -> str:
    """``kvm`` or ``qemu`` (software emulation), for ``<domain type=...>``.

    The environment variable ``VMQOS_LAB_VIRT_TYPE`` decides without a probe.
    """
    return os.environ.get("VMQOS_LAB_VIRT_TYPE") or ("kvm" if usable() else "qemu")
