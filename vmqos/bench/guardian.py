# SPDX-License-Identifier: Apache-2.0
"""A process that puts everything right when the experiment's own process ends, however that comes.

``python -m vmqos.bench.guardian PATH SECONDS [URI UUID]``: when standard input ends, which is when the last process
that has its other end does, give back the ways on the resctrl at PATH, waiting for the lock as long as it says; and
let the VM run again that was paused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from vmqos.bench import ways
from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem

PATIENCE = 60.0
"""Seconds that its owner waits for it in the end."""


@contextlib.contextmanager
def watching(path: str, timeout: float, paused: Sequence[str] = ()) -> Iterator[None]:
    """Have a guardian while the block lasts; at its end everything has been put right.

    :param path: where resctrl is mounted.
    :param timeout: seconds to wait for the lock.
    :param paused: libvirt's URI and the UUID of a VM that may be paused; empty if there is none.
    """
    # In a session of its own, Ctrl-C does not reach it; and it has no descriptor of ours but the pipe's. It imports
    # what we do, and nothing that happens to lie in the working directory (-P).
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "vmqos.bench.guardian", path, str(timeout), *paused],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        process.stdin.close()
        process.wait(PATIENCE)


def main(arguments: Sequence[str]) -> int:
    """Wait for the end of standard input, then tidy up.

    :returns: the exit status.
    """
    path, timeout, *paused = arguments
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    status = 0
    if paused:
        # Imported here: only this case needs libvirt.
        from vmqos.bench import vms

        vms.resume(*paused)
    try:
        ways.give_back(Filesystem(path), float(timeout))
    except exceptions.Vanished:
        pass  # unmounted: all groups went with it
    except exceptions.ResctrlError as error:
        sys.stderr.write(f"vmqos bench could not give its ways back; 'vmqos reset' does: {error}\n")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
