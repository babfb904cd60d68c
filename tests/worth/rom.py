# SPDX-License-Identifier: Apache-2.0
"""The program of the experiments' VMs, as a ROM that a VM has in place of its firmware (``payload/load.c``)."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("payload")
SIZE = 1 << 16
BOOT_OFFSET = 0xFF00
"""Where ``boot.S`` is in the ROM (``load.ld``)."""

FLAGS = (
    *("-m32", "-march=i686", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"),
    *("-ffreestanding", "-fno-pic", "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fcf-protection=none"),
    # GCC would make a call of memcpy of a loop, and there is none.
    "-fno-tree-loop-distribute-patterns",
    *("-nostdlib", "-static", "-Wl,-m,elf_i386,--build-id=none,-z,noexecstack,--oformat,binary"),
)


def build(path: Path) -> Path:
    """Compile it, which takes a second or two in a guest.

    :returns: the path.
    :raises RuntimeError: with what gcc said.
    """
    command = ["gcc", *FLAGS, f"-DBOOT_OFFSET={BOOT_OFFSET:#x}", "-T", str(SOURCE / "load.ld"), "-o", str(path)]
    done = subprocess.run(
        [*command, str(SOURCE / "boot.S"), str(SOURCE / "load.c")], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{SOURCE} can't be compiled:\n{done.stderr}")
    if path.stat().st_size != SIZE:
        raise RuntimeError(f"the ROM made of {SOURCE} has {path.stat().st_size} bytes and not {SIZE}")
    return path
