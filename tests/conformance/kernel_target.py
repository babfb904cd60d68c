# SPDX-License-Identifier: Apache-2.0
"""The kernel's own resctrl, inside the lab's guest."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.kernel.inside import msr

_LIBC = ctypes.CDLL(None, use_errno=True)


class KernelTarget:
    """``mount -t resctrl`` and ``/dev/cpu/N/msr``."""

    root = "/sys/fs/resctrl"

    def __init__(self) -> None:
        self._msr: dict[int, int] = {}

    def mount(self, options: str) -> str | None:
        """See :meth:`.Target.mount`."""
        return _errno(_LIBC.mount(b"resctrl", self.root.encode(), b"resctrl", 0, options.encode()))

    def umount(self) -> str | None:
        """See :meth:`.Target.umount`."""
        return _errno(_LIBC.umount2(self.root.encode(), 0))

    def registers(self, wanted: Sequence[tuple[int, int]]) -> list[int | str]:
        """See :meth:`.Target.registers`."""
        return [self._read(cpu, register) for cpu, register in wanted]

    def let_limbo_pass(self) -> None:
        """The kernel looks once a second."""
        time.sleep(0.1)

    @contextmanager
    def lasting_limbo(self, rmids: int) -> Iterator[None]:
        """See :meth:`.Target.lasting_limbo`.

        Linux keeps an RMID in limbo while it can't read how many lines the RMID has (``__check_limbo``). Otherwise it
        may find it free at its next look, a second after the first RMID was freed.
        """
        try:
            for rmid in range(1, rmids):
                msr.say_unavailable(0, rmid)
            yield
        finally:
            for rmid in range(1, rmids):
                msr.say_numbers(0, rmid)

    def close(self) -> None:
        """Nothing is left but descriptors."""
        for descriptor in self._msr.values():
            os.close(descriptor)
        self._msr.clear()

    def _read(self, cpu: int, register: int) -> int | str:
        if cpu not in self._msr:
            self._msr[cpu] = os.open(f"/dev/cpu/{cpu}/msr", os.O_RDONLY)
        try:
            value: int = struct.unpack("<Q", os.pread(self._msr[cpu], 8, register))[0]
        except OSError as error:
            return errno.errorcode[error.errno or errno.EIO]
        return value


def _errno(result: int) -> str | None:
    return errno.errorcode[ctypes.get_errno()] if result else None
