# SPDX-License-Identifier: Apache-2.0
"""The files and directories of a mount, with the habits of the kernel's kernfs."""

from __future__ import annotations

import errno
import itertools
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vmqos.simulator.kernel.numbers import refusal

PAGE_SIZE = 4096
_GOLDEN_RATIO_64 = 0x61C8864680B583EB
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a system call.

    :ivar uid: effective user id.
    :ivar gid: effective group id.
    :ivar tid: thread id.
    """

    uid: int = 0
    gid: int = 0
    tid: int = 0


class Node:
    """A file or directory.

    :ivar mode: type and permissions, as in ``st_mode``.
    :ivar alive: ``False`` once it, or a directory above it, was removed.
    """

    def __init__(self, name: str, mode: int, owner: Caller) -> None:
        self.name = name
        self.mode = mode
        self.uid = owner.uid
        self.gid = owner.gid
        self.parent: Directory | None = None
        self.alive = True
        self.number = next(_numbers)
        self.created = time.time()

    @property
    def links(self) -> int:
        """The link count that ``stat`` shows."""
        return 1


class Directory(Node):
    """A directory; ``group`` is the resctrl group it belongs to, if any."""

    def __init__(self, name: str, permissions: int, owner: Caller, group: object = None) -> None:
        super().__init__(name, stat.S_IFDIR | permissions, owner)
        self.group = group
        self._children: dict[str, Node] = {}

    @property
    def links(self) -> int:
        """2, and one for each directory in it."""
        return 2 + sum(isinstance(child, Directory) for child in self._children.values())

    def add(self, node: Node) -> None:
        """Put ``node`` into this directory.

        :raises OSError: ``EEXIST`` if the name is taken.
        """
        if node.name in self._children:
            raise refusal(errno.EEXIST)
        self._children[node.name] = node
        node.parent = self

    def remove(self, name: str) -> None:
        """Remove a child and all that is below it (``kernfs_remove``)."""
        _die(self._children.pop(name))

    def move(self, node: Node, target: Directory, name: str) -> None:
        """Rename a child, maybe into another directory (``kernfs_rename``).

        :raises OSError: ``EEXIST`` if the new name is taken.
        """
        if name in target._children:
            raise refusal(errno.EEXIST)
        del self._children[node.name]
        node.name = name
        target.add(node)

    def get(self, name: str) -> Node | None:
        """The child of that name."""
        return self._children.get(name)

    def __iter__(self) -> Iterator[Node]:
        """The children in the order in which kernfs lists them."""
        return iter(sorted(self._children.values(), key=lambda node: (_name_hash(node.name), node.name)))


class File(Node):
    """A file whose content is made when it is read.

    :param show: makes the content; raises :class:`OSError`.
    :param store: takes what is written; ``None`` where the kernel has no handler.
    :param writable: whether the kernel would open the file for writing at all if its mode allowed it.
    """

    def __init__(
        self,
        name: str,
        permissions: int,
        owner: Caller,
        show: Callable[[], str],
        store: Callable[[str, Caller], None] | None = None,
        *,
        writable: bool = True,
    ) -> None:
        super().__init__(name, stat.S_IFREG | permissions, owner)
        self._show = show
        self._store = store
        self._writable = writable

    def check_open(self, reading: bool, writing: bool) -> None:
        """The kernel's check beyond the permissions (``KERNFS_ROOT_EXTRA_OPEN_PERM_CHECK``): root is not exempt.

        :raises OSError: ``EACCES``.
        """
        if writing and not (self.mode & 0o222 and self._writable):
            raise refusal(errno.EACCES)
        if reading and not self.mode & 0o444:
            raise refusal(errno.EACCES)

    def read(self) -> str:
        """The whole content.

        :raises OSError: ``ENODEV`` if the file was removed while open.
        """
        self._check_alive()
        return self._show()

    def write(self, data: bytes, caller: Caller) -> int:
        """Take one write.

        :return: how many bytes were taken: all.
        :raises OSError: ``E2BIG`` for more than a page, ``ENODEV`` if the file was removed while open, and
            whatever the handler finds wrong.
        """
        if len(data) > PAGE_SIZE:
            raise refusal(errno.E2BIG)
        self._check_alive()
        if self._store is None:
            raise refusal(errno.EINVAL)
        self._store(data.decode("latin-1"), caller)
        return len(data)

    def _check_alive(self) -> None:
        if not self.alive:
            raise refusal(errno.ENODEV)


def find(root: Directory, path: str) -> Node:
    """The node at ``path``, its parts separated by slashes.

    :raises OSError: ``ENOENT`` if there is none, ``ENOTDIR`` if a file is in the way.
    """
    node: Node = root
    for part in path.split("/"):
        if not part:
            continue
        if not isinstance(node, Directory):
            raise refusal(errno.ENOTDIR)
        child = node.get(part)
        if child is None:
            raise refusal(errno.ENOENT)
        node = child
    return node


def _die(node: Node) -> None:
    node.alive = False
    if isinstance(node, Directory):
        for child in node:
            _die(child)


def _name_hash(name: str) -> int:
    """The kernel's hash of a name (``kernfs_name_hash``), by which kernfs sorts a directory."""
    value = 0
    for byte in name.encode("utf-8", "surrogateescape"):
        value = (value + (byte << 4) + (byte >> 4)) * 11 & 0xFFFF_FFFF_FFFF_FFFF
    value = (value * _GOLDEN_RATIO_64 & 0xFFFF_FFFF_FFFF_FFFF) >> 32
    value &= 0x7FFF_FFFF
    return value + 2 if value < 2 else min(value, 0x7FFF_FFFE)
