# SPDX-License-Identifier: Apache-2.0
"""A pipe that takes no byte more until it is read: what a program's log meets whose journal hangs."""

from __future__ import annotations

import fcntl
import os


class FullPipe:
    """A pipe that is full from the start.

    :ivar writing: its end for the program that is to write into it.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(self.writing, False)
        try:
            while True:
                os.write(self.writing, b".")
        except BlockingIOError:
            os.set_blocking(self.writing, True)

    def give_away(self) -> None:
        """Close the writing end here, for a program has it now: so :meth:`read` ends with that program."""
        os.close(self.writing)

    def read(self) -> bytes:
        """All that is written until the program ends."""
        said = b""
        while found := os.read(self._reading, 65536):
            said += found
        return said

    def close(self) -> None:
        """Close the reading end."""
        os.close(self._reading)
