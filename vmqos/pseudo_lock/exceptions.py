# SPDX-License-Identifier: Apache-2.0
"""Why a cache can't be locked, or unlocked: one class a failure, its message what the operator should do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmqos.pseudo_lock.regions import Lock


class LockError(Exception):
    """The root of these errors; each subclass fills ``msg_fmt`` from its keyword arguments."""

    msg_fmt = "the cache can't be locked"

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self.msg_fmt.format(**values))


class NotRoot(LockError):
    """Only root may make groups."""

    msg_fmt = "no right to change {path}: run it as root, such as with sudo"


class InvalidLockName(LockError):
    """A name that no device can have."""

    msg_fmt = (
        "{name!r} can't name a lock: up to 32 letters, digits and the characters . _ -, the first one a letter or digit"
    )


class ProcessorCannot(LockError):
    """The kernel knows no way to lock on this processor."""

    msg_fmt = "this host can't lock cache: {reason}"


class NoSuchLockableCache(LockError):
    """The cache is not there, or can't be partitioned."""

    msg_fmt = "there is no cache {wanted} that resctrl can partition here; there are: {known}"


class RegionTooLarge(LockError):
    """More than the kernel locks in one piece."""

    msg_fmt = (
        "the kernel locks 4194304 bytes at most; {size} bytes would be {real} bytes in whole ways of {way_size} bytes. "
        "Ask for {allowed} bytes or less"
    )


class NoWaysToLock(LockError):
    """No neighbouring ways are free that are enough.

    :param ways: how many are needed; ``possible``: how many there are, ``way_size``: bytes of each.
    """

    msg_fmt = (
        "{none} free to be locked ({size} bytes, {way_size} bytes a way): {most}. VMs' own ways, other groups', "
        "reserved ones and I/O ways are not taken, and the default group keeps {floor}"
    )

    def __init__(self, *, ways: int, possible: int, cache: str, way_size: int, **values: object) -> None:
        none = f"no way of {cache} is" if ways == 1 else f"no {ways} neighbouring ways of {cache} are"
        at_most = "at most 1 way is" if possible == 1 else f"at most {possible} ways are"
        most = f"{at_most}, {possible * way_size} bytes" if possible else "none is"
        super().__init__(none=none, most=most, way_size=way_size, **values)


class AnotherRegion(LockError):
    """The CPUs of that cache have a locked region already."""

    msg_fmt = (
        "the CPUs of {cache} have a locked region already, {other}, and the kernel allows one in each hierarchy of "
        "caches: remove that one first, or choose another cache"
    )


class LockExists(LockError):
    """The name is taken."""

    msg_fmt = "there is a lock '{name}' already: 'vmqos lock show {name}' tells what it is"


class NotLocked(LockError):
    """The kernel took every command, and the region is not what it should be."""

    msg_fmt = "the kernel took every command, but {problem}"


class NoSuchLock(LockError):
    """There is no lock of that name."""

    msg_fmt = "there is no lock '{name}'; there are: {known}"


class ForeignLock(LockError):
    """Another program made it."""

    msg_fmt = (
        "{name} is no lock of vmqos, which leaves it alone: the program or the person that made it removes it "
        "(rmdir {path}, once no process has {device} open)"
    )


class LockInUse(LockError):
    """A process has its device open."""

    msg_fmt = (
        "{device} is in use by {users}: stop that first. A group that is removed meanwhile leaves its ways locked "
        "until the host is rebooted, for the kernel does not look again when the device is closed"
    )


class WaysNotGivenBack(LockError):
    """The lock is removed, and the kernel refused to give its ways to the default group.

    :param lock: what it was.
    """

    msg_fmt = (
        "the lock '{name}' is removed, but the default group did not get its ways ({problem}): a pass of the agent "
        "gives them to it; where no agent runs, write them to its schemata"
    )

    def __init__(self, *, lock: Lock, problem: Exception) -> None:
        self.lock = lock
        super().__init__(name=lock.name, problem=problem)


class NotTakenBack(LockError):
    """It failed, and what had been done could not be taken back."""

    msg_fmt = "{error}. Not everything could be taken back ({problem}): 'vmqos lock remove {name}' does it later"


class SizeForGuest(LockError):
    """The size can't be that of a PCI device's memory."""

    msg_fmt = (
        "a VM can be given a power of two from 4096 bytes on, such as 262144 (256K), for it is the memory of a PCI "
        "device; {size} is none"
    )


class VmCannot(LockError):
    """The VM can't be given the region."""

    msg_fmt = "VM {vm} can't be given the region: {reason}"
