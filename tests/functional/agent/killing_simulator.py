# SPDX-License-Identifier: Apache-2.0
"""The simulator, which kills whoever writes to it after a number of writes: ``MOUNTPOINT SYSFS LOG COUNTDOWN``.

The file COUNTDOWN arms it: its content says how many changes the next client may make. The one after which none is
left is carried out, and the client is dead before it learns of that.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from vmqos import simulator


def main(mountpoint: str, sysfs: str, log: str, countdown: str) -> None:
    """Serve until it is unmounted."""
    file = Path(countdown)

    def count(record: simulator.Record) -> None:
        if record.pid == os.getpid() or not file.exists():
            return
        left = int(file.read_text()) - 1
        if left > 0:
            file.write_text(str(left))
            return
        file.unlink()
        os.kill(record.pid, signal.SIGKILL)

    simulator.serve(mountpoint, "broadwell", "", sysfs, log, observer=count)


if __name__ == "__main__":
    main(*sys.argv[1:])
