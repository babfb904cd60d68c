# SPDX-License-Identifier: Apache-2.0
"""Reading the counters of one group, by kept descriptors where they may be kept."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from vmqos.resctrl.monitoring import Missing
from vmqos.telemetry.sweep.beginning import Beginning
from vmqos.telemetry.sweep.carried import NOTHING
from vmqos.telemetry.sweep.shape import Domain

ENOUGH = 64
"""Bytes: a counter is a number of up to 20 digits, or a word."""

_WHY = {
    errno.ENODEV: Missing.VANISHED,
    errno.ENOENT: Missing.VANISHED,
    errno.EACCES: Missing.UNREADABLE,
    errno.EPERM: Missing.UNREADABLE,
}


class GroupReader:
    """The counters of one group, for as long as it is the same group.

    A kept descriptor says ENODEV once its group is removed, also where another one of the same name has been made; it
    goes along where a monitoring group is renamed. So a group whose descriptors all answer is still the same one.

    :param directory: the group's directory below the root of resctrl.
    :param path: the same, absolute.
    :param generation: what tells this group from all others, those before and after it included; empty where there is
        no group, of which every counter has vanished.
    :param domains: what to read.
    :ivar beginning: what its packages had counted before.
    :ivar carried: what its earlier hardware counters had counted, where VMs take turns to have some.
    :ivar descriptors: those that are open, domain by domain, in the order of its files.
    :ivar kept: how many descriptors are open.
    :ivar vanished: whether there is no group (any more): any :meth:`read` found files gone.
    """

    __slots__ = (
        "_domains",
        "_path",
        "beginning",
        "carried",
        "descriptors",
        "directory",
        "generation",
        "kept",
        "vanished",
    )

    def __init__(self, directory: str, path: str, generation: str, domains: Sequence[Domain]) -> None:
        self.directory = directory
        self.generation = generation
        self.beginning = Beginning()
        self.carried = NOTHING
        self._path = path
        self.kept = 0
        self.vanished = not generation
        self._domains = domains
        self.descriptors: list[list[int]] = []

    def move(self, directory: str, path: str) -> None:
        """The group was renamed; what is open stays open."""
        self.directory = directory
        self._path = path

    def keep(self) -> bool:
        """Open every file, to stay open until :meth:`close`; ``False``, and none is open, if that can't be done."""
        try:
            for domain in self._domains:
                opened: list[int] = []
                self.descriptors.append(opened)
                for file in domain.files:
                    opened.append(_open(f"{self._path}/{domain.path}/{file}"))
        except OSError:
            self.close()
            return False
        self.kept = sum(map(len, self.descriptors))
        return True

    def close(self) -> None:
        """Close what is kept."""
        self.kept = 0
        while self.descriptors:
            for descriptor in self.descriptors.pop():
                os.close(descriptor)

    def read(self, domain: int) -> list[bytes | Missing]:
        """What every file of one domain says in this moment, in their order, or why it says nothing."""
        try:
            if self.kept:
                pread = os.pread
                return [pread(descriptor, ENOUGH, 0) for descriptor in self.descriptors[domain]]
            if self.generation:
                return self._read_opening(self._domains[domain])
        except OSError:
            return [self._read_one(domain, position) for position in range(len(self._domains[domain].files))]
        return [Missing.VANISHED] * len(self._domains[domain].files)

    def _read_opening(self, domain: Domain) -> list[bytes | Missing]:
        """Have the kernel find the way to the directory once for all files."""
        directory = os.open(f"{self._path}/{domain.path}", os.O_PATH | os.O_CLOEXEC)
        try:
            return [_read_once(file, directory) for file in domain.files]
        finally:
            os.close(directory)

    def _read_one(self, number: int, position: int) -> bytes | Missing:
        try:
            if self.kept:
                return os.pread(self.descriptors[number][position], ENOUGH, 0)
            domain = self._domains[number]
            return _read_once(f"{self._path}/{domain.path}/{domain.files[position]}")
        except OSError as error:
            missing = _WHY.get(error.errno or 0, Missing.ERROR)
            self.vanished |= missing is Missing.VANISHED
            return missing


def _open(path: str, directory: int | None = None) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)


def _read_once(path: str, directory: int | None = None) -> bytes:
    descriptor = _open(path, directory)
    try:
        return os.read(descriptor, ENOUGH)
    finally:
        os.close(descriptor)
