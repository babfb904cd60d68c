# SPDX-License-Identifier: Apache-2.0
"""The process that stands for the one which made a recording: it does the system calls.

A program of its own, so that it can be moved into groups, fork, start threads and lose its working directory
without the test doing so. One JSON request a line on standard input, one answer a line on standard output.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)


class Actor:
    """Handlers of the requests; each returns what the system call returned."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._thread: tuple[threading.Thread, threading.Event] | None = None
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def pid(self) -> int:
        """This process."""
        return os.getpid()

    def read(self, path: str) -> str:
        """A whole file."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            found = b""
            while True:
                piece = os.read(descriptor, 65536)
                if not piece:
                    return found.decode("latin-1")
                found += piece
        finally:
            os.close(descriptor)

    def write(self, path: str, pieces: list[str], flags: int) -> Any:
        """One descriptor, one write for each piece."""
        descriptor = os.open(path, os.O_WRONLY | flags)
        try:
            taken = [os.write(descriptor, piece.encode("latin-1")) for piece in pieces]
        finally:
            os.close(descriptor)
        return taken if len(taken) > 1 else taken[0]

    def create(self, path: str) -> None:
        """A new file."""
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))

    def mkdir(self, path: str, permissions: int) -> None:
        """A directory."""
        os.mkdir(path, permissions)

    def rmdir(self, path: str) -> None:
        """Remove a directory."""
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        """Rename."""
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def symlink(self, target: str, path: str) -> None:
        """A symbolic link."""
        os.symlink(target, path)

    def chmod(self, path: str, permissions: int) -> None:
        """Permissions."""
        os.chmod(path, permissions)

    def chown(self, path: str, uid: int, gid: int) -> None:
        """Owner and group."""
        os.chown(path, uid, gid)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def stat(self, path: str) -> dict[str, Any]:
        """What ``lstat`` says."""
        found = os.lstat(path)
        return {
            "mode": f"{found.st_mode:o}",
            "uid": found.st_uid,
            "gid": found.st_gid,
            "nlink": found.st_nlink,
            "size": found.st_size,
        }

    def statvfs(self, path: str) -> dict[str, int]:
        """What ``statvfs`` says."""
        found = os.statvfs(path)
        return {"bsize": found.f_bsize, "namemax": found.f_namemax, "blocks": found.f_blocks}

    def flock(self, path: str, flags: int) -> None:
        """Take and drop an exclusive lock."""
        descriptor = os.open(path, flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)

    def run(self, argv: list[str], cwd: str) -> dict[str, Any]:
        """A command in a directory."""
        done = subprocess.run(argv, capture_output=True, text=True, cwd=cwd, check=False)
        return {"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

    def open(self, path: str, flags: int) -> None:
        """Open a file, unless it is, and keep it open under its path."""
        if path not in self._open:
            self._open[path] = os.open(path, flags)

    def read_open(self, path: str) -> str:
        """Read what is open."""
        return os.read(self._open[path], 100).decode("latin-1")

    def write_open(self, path: str, data: str) -> int:
        """Write to what is open."""
        return os.write(self._open[path], data.encode("latin-1"))

    def close_all(self) -> None:
        """Close what is open."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def chdir(self, path: str) -> None:
        """Change the working directory."""
        os.chdir(path)

    def getcwd(self) -> str:
        """The working directory; afterwards it is the root."""
        try:
            return os.getcwd()
        finally:
            os.chdir("/")

    def fork(self) -> int:
        """A child that sleeps."""
        child = subprocess.Popen(["sleep", "1000"])
        self._children[child.pid] = child
        return child.pid

    def end_children(self) -> None:
        """End the children."""
        for child in self._children.values():
            child.kill()
            child.wait()
        self._children.clear()

    def start_thread(self) -> int | None:
        """A thread that waits."""
        event = threading.Event()
        thread = threading.Thread(target=event.wait)
        thread.start()
        self._thread = (thread, event)
        return thread.native_id

    def stop_thread(self) -> None:
        """End the thread, for the kernel too: Python is done with it a moment earlier."""
        if self._thread is not None:
            thread, event = self._thread
            event.set()
            thread.join()
            while os.path.exists(f"/proc/self/task/{thread.native_id}"):
                time.sleep(0.001)
            self._thread = None

    def mount_again(self, target: str, flags: int, options: str) -> int:
        """``mount`` on what is mounted."""
        return self._checked(_LIBC.mount(b"resctrl", target.encode(), b"resctrl", flags, options.encode()))

    def umount(self, target: str) -> int:
        """``umount``."""
        return self._checked(_LIBC.umount2(target.encode(), 0))

    def _checked(self, result: int) -> int:
        if result:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result


def main() -> None:
    """Answer requests until standard input ends."""
    os.umask(0)
    actor = Actor()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"ret": getattr(actor, name)(*arguments), "errno": None}
        except OSError as error:
            answer = {"ret": -1, "errno": errno.errorcode[error.errno or errno.EIO]}
        print(json.dumps(answer), flush=True)
    actor.end_children()


if __name__ == "__main__":
    main()
