# SPDX-License-Identifier: Apache-2.0
"""A process that puts everything right when the experiment's own process ends, however that comes.

``python -m vmqos.bench.guardian PATH SECONDS [URI UUID]``: when standard input ends, which is when the last process
that has its other end does, give back the ways on the resctrl at PATH, waiting for the lock as long as it says; and
let the VM run again if the last line was ``paused``. A VM that others have paused stays so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from vmqos.bench import exceptions, ways
from vmqos.resctrl import exceptions as resctrl_exceptions
from vmqos.resctrl.filesystem import Filesystem

PATIENCE = 60.0
"""Seconds that its owner waits for it in the end."""


LIBVIRT_PATIENCE, PAUSE = 30.0, 1.0
"""Seconds for which libvirt is asked again and again to let the VM run, for it may just be started anew."""

_PAUSED, _RESUMED = b"paused\n", b"resumed\n"


@contextlib.contextmanager
def watching(path: str, timeout: float, vm: Sequence[str] = ()) -> Iterator[Callable[[bool], None]]:
    """Have a guardian while the block lasts; at its end everything has been put right.

    The block gets what tells the guardian whether the VM is paused now, for the experiment. It raises
    :class:`vmqos.bench.exceptions.LoadFailed` if the guardian has ended.

    :param path: where resctrl is mounted.
    :param timeout: seconds to wait for the lock.
    :param vm: libvirt's URI and the UUID of a VM that may be paused; empty if there is none.
    """
    # In a session of its own, Ctrl-C does not reach it; and it has no descriptor of ours but the pipe's. It imports
    # what we do, and nothing that happens to lie in the working directory (-P).
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "vmqos.bench.guardian", path, str(timeout), *vm],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    pipe = process.stdin
    assert pipe is not None

    def tell(is_paused: bool) -> None:
        try:
            pipe.write(_PAUSED if is_paused else _RESUMED)
        except OSError as error:
            raise exceptions.LoadFailed(what="the guardian", problem="it has ended") from error

    try:
        yield tell
    finally:
        pipe.close()
        process.wait(PATIENCE)


def main(arguments: Sequence[str]) -> int:
    """Wait for the end of standard input, then tidy up.

    :returns: the exit status.
    """
    path, timeout, *vm = arguments
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    is_paused = False
    for line in sys.stdin.buffer:
        is_paused = line == _PAUSED
    # The ways first: libvirt may hang.
    done = [_gives_back(path, float(timeout))]
    if is_paused:
        done.append(_resumes(*vm))
    return 0 if all(done) else 1


def _gives_back(path: str, timeout: float) -> bool:
    """Give the ways back; whether that worked."""
    try:
        ways.give_back(Filesystem(path), timeout)
    except resctrl_exceptions.Vanished:
        pass  # unmounted: all groups went with it
    except resctrl_exceptions.ResctrlError as error:
        sys.stderr.write(f"vmqos bench could not give its ways back; 'vmqos reset' does: {error}\n")
        return False
    return True


def _resumes(uri: str, uuid: str) -> bool:
    """Let the VM run again; whether that worked."""
    # Imported here: only this case needs libvirt.
    from vmqos.bench import left_paused, vms

    until = time.monotonic() + LIBVIRT_PATIENCE
    while True:
        try:
            vms.resume(uri, uuid)
            left_paused.forget(uuid)
            return True
        except exceptions.LoadFailed as error:
            if time.monotonic() >= until:
                sys.stderr.write(f"vmqos bench could not let a VM run again; 'virsh resume {uuid}' does: {error}\n")
                return False
        time.sleep(PAUSE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
