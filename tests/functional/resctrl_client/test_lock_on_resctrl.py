# SPDX-License-Identifier: Apache-2.0
"""The lock between applications on a mounted resctrl."""

import contextlib
import os
import subprocess
import sys
import threading
import time

import pytest

from vmqos.resctrl import exceptions

_HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
fcntl.flock(descriptor, fcntl.LOCK_EX if sys.argv[2] == "exclusive" else fcntl.LOCK_SH)
print("held", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def held_elsewhere(fs, kind):
    """Another process, as libvirtd would be, holds the lock."""
    command = [sys.executable, "-c", _HOLDER, fs.root, kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_free_lock_is_taken_at_once_and_given_back(fs, exclusive):
    for _ in range(3):
        with fs.lock(exclusive, timeout=0):
            pass


def test_readers_share_the_lock(fs):
    with held_elsewhere(fs, "shared"), fs.lock(exclusive=False, timeout=0):
        pass


@pytest.mark.parametrize(("held", "exclusive"), [("exclusive", True), ("exclusive", False), ("shared", True)])
def test_a_taken_lock_is_told_with_its_holder_after_the_timeout(fs, held, exclusive):
    with held_elsewhere(fs, held) as holder:
        begin = time.monotonic()
        with pytest.raises(exceptions.LockTimeout) as caught, fs.lock(exclusive, timeout=0.2):
            pass
        assert time.monotonic() - begin >= 0.2
        assert f"process {holder.pid} (python" in str(caught.value)
        assert f"fuser -v {fs.root}" in str(caught.value)


def test_who_waits_gets_the_lock_when_it_is_free(fs):
    with held_elsewhere(fs, "exclusive") as holder:
        free = threading.Timer(0.1, holder.stdin.close)
        free.start()
        with fs.lock(exclusive=True, timeout=None):
            pass
        free.join()


def test_the_lock_is_free_after_an_error_within(fs):
    with pytest.raises(RuntimeError), fs.lock(exclusive=True):
        raise RuntimeError
    with fs.lock(exclusive=True, timeout=0):
        pass


def test_nothing_of_resctrl_stays_open_but_while_the_lock_is_held(fs):
    def open_below_root():
        found = []
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        return [path for path in found if path.startswith(fs.root)]

    with fs.lock(exclusive=True):
        fs.read("schemata")
        assert open_below_root() == [fs.root]
    assert open_below_root() == []
