# SPDX-License-Identifier: Apache-2.0
"""System calls on a resctrl, each with its answer, each recorded."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, TypeVar

from tests.conformance.answer import Answer
from tests.conformance.recording import Names, Operation, comparable
from tests.conformance.target import Target

T = TypeVar("T")


class Operations:
    """What can be done to the resctrl of a target.

    :ivar recording: every operation so far.
    :ivar names: of the tasks that it knows; the recording has them in place of the ids.
    :ivar is_mounted: whether it is.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.recording: list[Operation] = []
        self.names = Names()
        self.is_mounted = False

    @property
    def root(self) -> str:
        """The mount point."""
        return self.target.root

    def path(self, path: str) -> str:
        """The whole path of what is at ``path`` below the mount point."""
        return os.path.join(self.root, path) if path else self.root

    def mount(self, options: str = "") -> str | None:
        """Mount it.

        :param options: joined by commas.
        :return: the name of the error if it is refused.
        """
        failed = self.target.mount(options)
        self.record("mount", "", options, failed)
        self.is_mounted = self.is_mounted or failed is None
        return failed

    def umount(self) -> str | None:
        """Unmount it.

        :return: the name of the error if it is refused.
        """
        failed = self.target.umount()
        self.record("umount", "", "", failed)
        self.is_mounted = self.is_mounted and failed is not None
        return failed

    def write(self, path: str, data: str) -> Answer:
        """Open a file and write all of ``data`` (in Latin-1) at once."""

        def act() -> None:
            descriptor = os.open(self.path(path), os.O_WRONLY | os.O_TRUNC)
            try:
                taken = os.write(descriptor, data.encode("latin-1"))
            finally:
                os.close(descriptor)
            assert taken == len(data), f"{taken} of {len(data)} bytes were taken"

        return self._act("write", path, self.names.in_text(data) if path.endswith("tasks") else data, act)

    def mkdir(self, path: str, mode: int = 0o755) -> Answer:
        """Make a group."""
        return self._act("mkdir", path, f"{mode:o}", lambda: os.mkdir(self.path(path), mode))

    def rmdir(self, path: str) -> Answer:
        """Remove a group."""
        return self._act("rmdir", path, "", lambda: os.rmdir(self.path(path)))

    def rename(self, old: str, new: str) -> Answer:
        """Rename a group."""
        return self._act("rename", old, new, lambda: os.rename(self.path(old), self.path(new)))

    def do(self, name: str, path: str, act: Callable[[str], object], data: str = "") -> Answer:
        """Another system call.

        :param name: for the recording.
        :param act: is given the whole path.
        """
        return self._act(name, path, data, lambda: act(self.path(path)))

    def read(self, path: str) -> str:
        """The content of a file.

        :raises OSError: if it cannot be read.
        """
        return self._look("read", path, lambda: content_of(self.path(path)))

    def refusal_to_read(self, path: str) -> str | None:
        """The name of the error that reading a file gives; ``None`` if there is none."""
        try:
            self.read(path)
        except OSError as error:
            return _name(error)
        return None

    def ls(self, path: str = "") -> list[str]:
        """The names in a folder, sorted."""
        return self._look("ls", path, lambda: sorted(os.listdir(self.path(path))))

    def permissions(self, path: str) -> str:
        """Type and permissions, in octal."""
        return self._look("stat", path, lambda: f"{os.lstat(self.path(path)).st_mode:o}")

    @property
    def status(self) -> str:
        """``info/last_cmd_status``."""
        return self.read("info/last_cmd_status")

    def record(self, op: str, path: str, data: str, failed: str | None, content: Any = None) -> None:
        """Record an operation after which the status was not read.

        :param failed: the name of the error, if any.
        """
        self.recording.append(Operation(op, path, data, failed, None, content))

    def _act(self, op: str, path: str, data: str, act: Callable[[], object]) -> Answer:
        failed = None
        try:
            act()
        except OSError as error:
            failed = _name(error)
        status = content_of(self.path("info/last_cmd_status")) if self.is_mounted else None
        shown = self.names.in_text(status) if status is not None and path.endswith("tasks") else status
        self.recording.append(Operation(op, path, data, failed, shown))
        return Answer(failed, status)

    def _look(self, op: str, path: str, look: Callable[[], T]) -> T:
        try:
            found = look()
        except OSError as error:
            self.record(op, path, "", _name(error))
            raise
        self.record(op, path, "", None, comparable(self.names, path, found))
        return found


def content_of(path: str) -> str:
    """All of a file, in Latin-1; nothing is recorded.

    :raises OSError: if it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = b""
        while piece := os.read(descriptor, 65536):
            found += piece
        return found.decode("latin-1")
    finally:
        os.close(descriptor)


def _name(error: OSError) -> str:
    return errno.errorcode[error.errno or errno.EIO]
