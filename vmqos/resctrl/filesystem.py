# SPDX-License-Identifier: Apache-2.0
"""The files of one mounted resctrl: reading, writing, directories, and the lock between applications.

Everything is opened for one call and closed again, so that the operator can unmount resctrl at any time but while the
lock is held. Calls go to the kernel by file descriptor: the built-in ``open()`` costs more than twice as much.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator

from vmqos.resctrl import exceptions
from vmqos.resctrl.lock import RootLock

LAST_CMD_STATUS = "info/last_cmd_status"

_FIRST = 4096
"""Bytes of the first read: most files are shorter, and a large buffer costs more than to read them."""
_CHUNK = 65536
_LONGEST = 64 << 20
"""Bytes of a file. The longest is ``tasks``: at most 4 194 304 ids (``PID_MAX_LIMIT``), of up to eight bytes each."""
_GONE = (errno.ENOENT, errno.ENODEV)


def join(*parts: str) -> str:
    """One path from its parts; empty parts (the root, the default group) leave no trace."""
    return "/".join([part for part in parts if part])


class Filesystem:
    """A mounted resctrl. Paths are relative to its root; ``""`` is the root itself.

    :param root: the mount point, see :func:`vmqos.resctrl.mount.find`.
    :ivar takes_task_lists: whether the kernel takes several task ids in one write (Linux 6.7 and later); ``True``
        until :func:`vmqos.resctrl.tasks.move` has seen it refuse.
    """

    __slots__ = ("_lock", "root", "takes_task_lists")

    def __init__(self, root: str) -> None:
        self.root = root
        self._lock = RootLock(root)
        self.takes_task_lists = True

    def __repr__(self) -> str:
        return f"Filesystem({self.root!r})"

    def path(self, *relative: str) -> str:
        """The absolute path of a file or directory."""
        return "/".join((self.root, *filter(None, relative)))

    def read(self, *relative: str) -> str:
        """The whole text of a file.

        :raises vmqos.resctrl.exceptions.Vanished: if it does not exist (any more).
        :raises vmqos.resctrl.exceptions.Unreadable: if it can't be read.
        :raises vmqos.resctrl.exceptions.DeadMount: if it is a simulator's and the simulator has ended.
        """
        return self.read_bytes(*relative).decode(errors="replace")

    def read_bytes(self, *relative: str) -> bytes:
        """The whole content of a file, undecoded: for files that are read often. It raises what :meth:`read` raises."""
        path = self.path(*relative)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                chunks: list[bytes] = []
                size, left = _FIRST, _LONGEST
                while chunk := os.read(descriptor, size):
                    chunks.append(chunk)
                    left -= len(chunk)
                    if left < 0:
                        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
                    if len(chunk) < size:
                        # Each file is one record of a seq_file (kernfs_seq_show): the end is where a read is short.
                        break
                    size = _CHUNK
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._unreadable(error, path) from error

    def listdir(self, *relative: str) -> list[str]:
        """The names in a directory, files and directories alike, in no particular order.

        :raises vmqos.resctrl.exceptions.Vanished: if it does not exist (any more).
        """
        path = self.path(*relative)
        try:
            return os.listdir(path)
        except OSError as error:
            raise self._unreadable(error, path) from error

    def directories(self, *relative: str) -> list[str]:
        """The names of the directories in a directory, in ascending order.

        :raises vmqos.resctrl.exceptions.Vanished: if it does not exist (any more).
        """
        path = self.path(*relative)
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError as error:
            raise self._unreadable(error, path) from error

    def write(self, relative: str, text: str) -> None:
        """Write one command to a file, in one call of the kernel.

        :param text: the command; the line break at its end, without which the kernel refuses it, is added if missing.
        :raises vmqos.resctrl.exceptions.Vanished: if the file does not exist (any more).
        :raises vmqos.resctrl.exceptions.ReadOnly: if resctrl is mounted read-only.
        :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses it; one of its subclasses where what the
            kernel says tells why.
        """
        path = self.path(relative)
        data = text if text.endswith("\n") else f"{text}\n"
        reached = False
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                reached = True
                raw = data.encode()
                if os.write(descriptor, raw) != len(raw):
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            finally:
                os.close(descriptor)
        except OSError as error:
            # Where not even the open succeeded, the status would be an older command's.
            status = self.last_cmd_status() if reached else ""
            raise self._refused(error, "write", path, data, status) from error

    def mkdir(self, relative: str) -> None:
        """Make a group.

        :raises vmqos.resctrl.exceptions.Vanished: if the parent directory does not exist (any more).
        :raises vmqos.resctrl.exceptions.ReadOnly: if resctrl is mounted read-only.
        :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses it, as :meth:`write`.
        """
        path = self.path(relative)
        self._change_tree("mkdir", path, "", lambda: os.mkdir(path, 0o755))

    def rmdir(self, relative: str) -> None:
        """Remove a group; its tasks go to the parent (those of a control group to the default group).

        :raises vmqos.resctrl.exceptions.Vanished: if the group does not exist (any more).
        :raises vmqos.resctrl.exceptions.ReadOnly: if resctrl is mounted read-only.
        :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses it.
        """
        path = self.path(relative)
        self._change_tree("rmdir", path, "", lambda: os.rmdir(path))

    def rename(self, old: str, new: str) -> None:
        """Rename or move a monitoring group.

        :raises vmqos.resctrl.exceptions.Vanished: if the group or the destination's parent does not exist (any more).
        :raises vmqos.resctrl.exceptions.ReadOnly: if resctrl is mounted read-only.
        :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses it, as :meth:`write`.
        """
        source, target = self.path(old), self.path(new)
        self._change_tree("rename", source, target, lambda: os.rename(source, target))

    def last_cmd_status(self) -> str:
        """The kernel's reason why the last command failed; empty if all was well or it is unreadable."""
        try:
            status = self.read(LAST_CMD_STATUS).strip("\n")
        except exceptions.ResctrlError:
            return ""
        return "" if status == "ok" else status

    @contextlib.contextmanager
    def lock(self, exclusive: bool, timeout: float | None = None) -> Iterator[None]:
        """Hold the lock between applications on resctrl: ``flock`` on the root directory.

        The kernel documents it ("Locking between applications"); libvirt and pqos take it. It belongs to the open
        directory, so a thread that takes it twice waits for itself.

        :param exclusive: whether to change something (``LOCK_EX``) or only to read (``LOCK_SH``).
        :param timeout: seconds to wait, 0 or more; ``None`` waits for ever.
        :raises vmqos.resctrl.exceptions.LockTimeout: if others kept the lock.
        :raises vmqos.resctrl.exceptions.Vanished: if the root does not exist.
        """
        try:
            descriptor = self._lock.acquire(exclusive, timeout)
        except OSError as error:
            raise self._unreadable(error, self.root) from error
        try:
            yield
        finally:
            self._lock.release(descriptor, exclusive)

    def _change_tree(self, action: str, path: str, data: str, change: Callable[[], None]) -> None:
        """Make, remove or rename a directory.

        mkdir and rmdir do not clear ``last_cmd_status`` on kernels up to 6.12 at least: messages pile up in its 512
        bytes until the newest no longer fits. So a failed command is given a second time, now with a clear status.
        """
        try:
            return change()
        except OSError as error:
            if error.errno in _GONE:
                raise self._refused(error, action, path, data, "") from error
        cleared = self._clear_last_cmd_status()
        try:
            change()
        except OSError as error:
            raise self._refused(error, action, path, data, self.last_cmd_status() if cleared else "") from error

    def _clear_last_cmd_status(self) -> bool:
        """Write the default group's mode as it is: the kernel clears the status and finds nothing to do."""
        try:
            self.write("mode", self.read("mode"))
        except exceptions.ResctrlError:
            return False
        return True

    def _unreadable(self, error: OSError, path: str) -> exceptions.ResctrlError:
        if error.errno in _GONE:
            return exceptions.Vanished(path=path)
        if error.errno == errno.ENOTCONN:
            return exceptions.DeadMount(path=self.root)
        return exceptions.Unreadable(path=path, errno_name=_name(error))

    def _refused(self, error: OSError, action: str, path: str, data: str, status: str) -> exceptions.ResctrlError:
        if error.errno in _GONE:
            return exceptions.Vanished(path=path)
        if error.errno == errno.ENOTCONN:
            return exceptions.DeadMount(path=self.root)
        if error.errno == errno.EROFS:
            return exceptions.ReadOnly(path=self.root)
        kind = _kind_of_refusal(action, _name(error), status.lower())
        return kind(action=action, path=path, data=data, errno_name=_name(error), last_cmd_status=status)


def _kind_of_refusal(action: str, errno_name: str, status: str) -> type[exceptions.CommandFailed]:
    """What a refusal by the kernel means.

    :param status: ``last_cmd_status``, in lower case.
    """
    match action, errno_name:
        case _, "EEXIST":
            return exceptions.GroupExists
        case "mkdir", "ENOSPC":
            return exceptions.NoClosidLeft if "closid" in status else exceptions.NoRmidLeft
        case "mkdir", "EBUSY":
            return exceptions.RmidsInLimbo
        case "write", "EINVAL" if "overlaps" in status:
            return exceptions.MasksOverlap
    return exceptions.CommandFailed


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error.errno))
