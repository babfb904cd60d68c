# SPDX-License-Identifier: Apache-2.0
"""Capacity bitmasks: which ways of a cache a control group may fill."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vmqos.resctrl import exceptions

_HEXADECIMAL = re.compile(r"(?:0[xX])?[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True, order=True)
class CapacityBitmask:
    """A set of ways of one cache; bit 0 is way 0.

    The kernel calls it CBM (Intel SDM volume 3, "Cache Allocation Technology"). The value says nothing about
    the machine: whether a mask is legal there is
    :meth:`vmqos.resctrl.capabilities.CacheResource.check`'s to say.

    :param bits: the mask as an integer, 0 or greater.
    :raises ValueError: if ``bits`` is negative.
    """

    bits: int = 0

    def __post_init__(self) -> None:
        if self.bits < 0:
            raise ValueError(f"a capacity bitmask has no negative bits: {self.bits}")

    @classmethod
    def parse(cls, text: str) -> CapacityBitmask:
        """Read the kernel's notation: hexadecimal digits, with or without ``0x``.

        :raises vmqos.resctrl.exceptions.InvalidBitmask: if ``text`` is anything else.
        """
        if not _HEXADECIMAL.fullmatch(text):
            raise exceptions.InvalidBitmask(text=text)
        return cls(int(text, 16))

    @classmethod
    def run(cls, start: int, length: int) -> CapacityBitmask:
        """The mask of ``length`` neighbouring ways, ``start`` being the lowest."""
        return cls(((1 << length) - 1) << start)

    @property
    def ways(self) -> tuple[int, ...]:
        """The ways in the mask, in ascending order."""
        return tuple(self)

    @property
    def count(self) -> int:
        """How many ways the mask has."""
        return self.bits.bit_count()

    @property
    def is_contiguous(self) -> bool:
        """Whether the ways are neighbours without a gap; an empty mask is."""
        if not self.bits:
            return True
        shifted = self.bits >> ((self.bits & -self.bits).bit_length() - 1)
        return shifted & (shifted + 1) == 0

    def runs(self) -> tuple[CapacityBitmask, ...]:
        """The maximal runs of neighbouring ways, lowest first."""
        found, rest = [], self.bits
        while rest:
            start = (rest & -rest).bit_length() - 1
            shifted = rest >> start
            length = (~shifted & (shifted + 1)).bit_length() - 1
            run = CapacityBitmask.run(start, length)
            found.append(run)
            rest &= ~run.bits
        return tuple(found)

    def overlaps(self, other: CapacityBitmask) -> bool:
        """Whether any way is in both masks."""
        return bool(self.bits & other.bits)

    def __iter__(self) -> Iterator[int]:
        rest = self.bits
        while rest:
            lowest = rest & -rest
            yield lowest.bit_length() - 1
            rest ^= lowest

    def __bool__(self) -> bool:
        return self.bits != 0

    def __and__(self, other: CapacityBitmask) -> CapacityBitmask:
        return CapacityBitmask(self.bits & other.bits)

    def __or__(self, other: CapacityBitmask) -> CapacityBitmask:
        return CapacityBitmask(self.bits | other.bits)

    def __sub__(self, other: CapacityBitmask) -> CapacityBitmask:
        return CapacityBitmask(self.bits & ~other.bits)

    def __str__(self) -> str:
        return f"{self.bits:x}"
