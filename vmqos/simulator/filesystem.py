# SPDX-License-Identifier: Apache-2.0
"""The simulated machine's resctrl as FUSE operations: paths and handles in, system calls' answers out."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any

# mfusepy would take libfuse 2 first, whose writes arrive in pieces of one page.
os.environ.setdefault("FUSE_LIBRARY_NAME", "fuse3")

import mfusepy

from vmqos.simulator.kernel.numbers import refusal
from vmqos.simulator.kernel.tree import PAGE_SIZE, Caller, Directory, File, Node
from vmqos.simulator.machine import Machine
from vmqos.simulator.record import Record

Observer = Callable[[Record], None]

_ENDED_BY_SIGNAL = 8
"""What libfuse's ``fuse_main`` returns when its loop ended, not of itself, after mounting."""


class OpenFile:
    """An open file, and the content that was made when it was read from its beginning (``seq_file``)."""

    def __init__(self, path: str, file: File) -> None:
        self.path = path
        self.file = file
        self.content = b""


class ResctrlFilesystem(mfusepy.Operations):  # type: ignore[misc]
    """FUSE operations of one mount.

    :param machine: a machine that is mounted.
    :param observer: called after every operation that could change something, failed ones included.
    :param ready: called when the mount works and FUSE handles signals.
    """

    use_ns = True
    flag_nopath = True
    flag_nullpath_ok = True

    def __init__(
        self, machine: Machine, observer: Observer | None = None, ready: Callable[[], None] | None = None
    ) -> None:
        self._machine = machine
        self._observer = observer
        self._ready = ready
        self._open: dict[int, OpenFile] = {}
        self._open_directories: dict[int, Directory] = {}
        self._handles = itertools.count(1)

    def init(self, path: str) -> None:
        """The kernel has greeted the server."""
        if self._ready is not None:
            self._ready()

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, Any]:
        """``stat``."""
        with self._machine.lock:
            return _attributes(self._node(path, fh))

    def readdir(self, path: str | None, fh: int) -> Iterator[tuple[str, dict[str, int], int]]:
        """List a directory in kernfs's order."""
        with self._machine.lock:
            directory = self._open_directories[fh]
            nodes = [(node.name, _attributes(node)) for node in directory] if directory.alive else []
            here = _attributes(directory)
        yield ".", here, 0
        yield "..", here, 0
        for name, attributes in nodes:
            yield name, attributes, 0

    def opendir(self, path: str) -> int:
        """Open a directory."""
        node = self._machine.find(path)
        if not isinstance(node, Directory):
            raise refusal(errno.ENOTDIR)
        handle = next(self._handles)
        self._open_directories[handle] = node
        return handle

    def releasedir(self, path: str | None, fh: int) -> int:
        """Close a directory."""
        self._open_directories.pop(fh, None)
        return 0

    def open(self, path: str, flags: int) -> int:
        """Open a file; the kernel refuses some modes even to root."""
        node = self._machine.find(path)
        if not isinstance(node, File):
            raise refusal(errno.EISDIR)
        access = flags & os.O_ACCMODE
        node.check_open(access in (os.O_RDONLY, os.O_RDWR), access in (os.O_WRONLY, os.O_RDWR))
        handle = next(self._handles)
        self._open[handle] = OpenFile(path.lstrip("/"), node)
        return handle

    def release(self, path: str | None, fh: int) -> int:
        """Close a file."""
        self._open.pop(fh, None)
        return 0

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        """Read; the content is made anew when reading begins at 0."""
        opened = self._open[fh]
        if offset == 0:
            opened.content = self._machine.read(opened.file).encode("utf-8", "surrogateescape")
        elif not opened.file.alive:
            raise refusal(errno.ENODEV)
        return opened.content[offset : offset + size]

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        """Write; the offset does not matter."""
        opened, caller = self._open[fh], _caller()
        return self._observed(
            "write",
            opened.path,
            caller,
            lambda: self._machine.write(opened.file, data, caller),
            data=data.decode("latin-1"),
        )

    def mkdir(self, path: str, mode: int) -> int:
        """Make a group."""
        caller, name = _caller(), path.lstrip("/")
        return self._observed("mkdir", name, caller, lambda: self._machine.mkdir(name, stat.S_IMODE(mode), caller))

    def rmdir(self, path: str) -> int:
        """Remove a group."""
        name = path.lstrip("/")
        return self._observed("rmdir", name, _caller(), lambda: self._machine.rmdir(name))

    def rename(self, old: str, new: str) -> int:
        """Rename a monitoring group."""
        source, target = old.lstrip("/"), new.lstrip("/")
        return self._observed("rename", source, _caller(), lambda: self._machine.rename(source, target), data=target)

    def chmod(self, path: str | None, mode: int) -> int:
        """Set permissions; who may is FUSE's ``default_permissions`` to decide."""
        node = self._node(path, None)

        def change() -> None:
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)

        return self._observed("chmod", (path or "").lstrip("/"), _caller(), change, data=f"{stat.S_IMODE(mode):o}")

    def chown(self, path: str | None, uid: int, gid: int) -> int:
        """Set owner and group; -1 leaves one as it is."""
        node = self._node(path, None)

        def change() -> None:
            node.uid = uid if uid >= 0 else node.uid
            node.gid = gid if gid >= 0 else node.gid

        return self._observed("chown", (path or "").lstrip("/"), _caller(), change, data=f"{uid}:{gid}")

    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        """Files have no length to change; the kernel takes it."""
        return 0

    def utimens(self, path: str | None, times: tuple[int, int] | None = None) -> int:
        """Times are not kept."""
        return 0

    def unlink(self, path: str) -> int:
        """Files go with their group only."""
        raise refusal(errno.EPERM)

    def symlink(self, target: str, source: str) -> int:
        """There are no links."""
        raise refusal(errno.EPERM)

    def link(self, target: str, source: str) -> int:
        """There are no links."""
        raise refusal(errno.EPERM)

    def mknod(self, path: str, mode: int, dev: int) -> int:
        """No process can make a file: the kernel's resctrl has no such operation."""
        raise refusal(errno.EACCES if stat.S_ISREG(mode) else errno.EPERM)

    def create(self, path: str, mode: int, fi: int | None = None) -> int:
        """No process can make a file: the kernel's resctrl has no such operation."""
        raise refusal(errno.EACCES)

    def statfs(self, path: str) -> dict[str, int]:
        """``statfs``, as for every file system without storage."""
        return {"f_bsize": PAGE_SIZE, "f_frsize": PAGE_SIZE, "f_namemax": 255}

    def _node(self, path: str | None, fh: int | None) -> Node:
        if fh is not None and fh in self._open:
            return self._open[fh].file
        if fh is not None and fh in self._open_directories:
            return self._open_directories[fh]
        if path is None:
            raise refusal(errno.ENOENT)
        return self._machine.find(path)

    def _observed(self, op: str, path: str, caller: Caller, act: Callable[[], int | None], data: str = "") -> int:
        failed: OSError | None = None
        result: int | None = 0
        with self._machine.lock:
            with self._machine.hardware.registers.watched() as writes:
                try:
                    result = act()
                except OSError as error:
                    failed = error
            if self._observer is not None:
                name = errno.errorcode[failed.errno] if failed and failed.errno else None
                self._observer(Record(op, path, data, caller.tid, name, tuple(writes)))
        if failed is not None:
            raise failed
        return result or 0


def run(operations: ResctrlFilesystem, mountpoint: str, source: str) -> None:
    """Serve until it is unmounted or a signal comes; a killed server leaves no mount behind (``auto_unmount``).

    :param source: what ``/proc/mounts`` shows as the device.
    :raises OSError: ``EIO`` if it cannot be mounted; libfuse has said why on standard error.
    """
    try:
        _serve(operations, mountpoint, source)
    except RuntimeError as error:
        if error.args != (_ENDED_BY_SIGNAL,):
            raise OSError(errno.EIO, "FUSE could not be mounted", mountpoint) from error


def _serve(operations: ResctrlFilesystem, mountpoint: str, source: str) -> None:
    mfusepy.FUSE(
        operations,
        mountpoint,
        foreground=True,
        nothreads=True,
        allow_other=os.geteuid() == 0,
        auto_unmount=True,
        default_permissions=True,
        direct_io=True,
        use_ino=True,
        hard_remove=True,
        attr_timeout=0,
        entry_timeout=0,
        negative_timeout=0,
        fsname=source,
        subtype="resctrl",
    )


def _caller() -> Caller:
    uid, gid, tid = mfusepy.fuse_get_context()
    return Caller(uid, gid, tid)


def _attributes(node: Node) -> dict[str, Any]:
    created = int(node.created * 1e9)
    return {
        "st_mode": node.mode,
        "st_ino": node.number,
        "st_nlink": node.links,
        "st_uid": node.uid,
        "st_gid": node.gid,
        "st_size": 0,
        "st_blksize": PAGE_SIZE,
        "st_atime": created,
        "st_mtime": created,
        "st_ctime": created,
    }
