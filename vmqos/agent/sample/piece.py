# SPDX-License-Identifier: Apache-2.0
"""An hour of one VM's minutes in fewer bytes; a picture of it looks the same.

Readings are noise for the most part, which no library makes smaller, so digits that no picture shows go: a number below
1000 is rounded to thousandths, as which it is told, and any other by an 8192nd of itself at most. What is left of a
series' numbers has its first bytes in common. So a piece has all first bytes together, then all second ones, and so on,
each series in turn. zlib makes half of that where every number differs each minute, and nearly nothing where none does.

A piece is in memory until a file has it, and is read from there when it is asked for.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
import zlib
from array import array
from dataclasses import dataclass
from typing import NamedTuple

from vmqos.agent.sample.history import STATISTICS

HOUR = 60
"""Minutes of a piece, unless there is a reason for fewer or more."""

PATIENCE = 2.0
"""Seconds that a thread waits for the end of another one's read of the same file."""

_LEVEL = 6
"""The higher levels take longer and win nothing."""

_THOUSAND = 1000

_GREATEST = _THOUSAND * 1000
"""What 999.9999 is in thousandths. The bits of a 32-bit float that is 1000 or more, below 0 or NaN are a greater whole
number."""

_CUT = 11
"""Bits at the end of a number's 23-bit fraction that are zeros once it was rounded."""

_HALF, _WITHOUT = 1 << _CUT - 1, -1 << _CUT

_ROUNDED_UP_TO = 1e38
"""A number above might become infinite; no counter has such a one."""

_BYTES = array("f").itemsize


class PieceFile:
    """A file that can be read until nothing in memory refers to it any more, whatever its name is by then.

    One thread reads at a time: a disk that hangs costs the agent one thread of those that answer, and no further one.

    :param descriptor: of the open file, which is closed with this.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._reads = threading.Lock()
        weakref.finalize(self, os.close, descriptor)

    def read(self, begin: int, length: int) -> bytes:
        """So many bytes, or fewer where the file ends.

        :raises TimeoutError: if the disk does not answer.
        :raises OSError: if they can't be read.
        """
        if not self._reads.acquire(timeout=PATIENCE):
            raise TimeoutError(errno.ETIMEDOUT, "the disk does not answer")
        try:
            return os.pread(self.descriptor, length, begin)
        finally:
            self._reads.release()


class Stored(NamedTuple):
    """Where a file has a piece.

    :ivar begin: of its first byte.
    :ivar length: in bytes.
    """

    file: PieceFile
    begin: int
    length: int


@dataclass(slots=True)
class Piece:
    """Minutes of one VM, without a gap.

    :ivar series: the names of the series, in the order in which they stand in a row.
    :ivar minutes: how many there are.
    :ivar packed: what :func:`pack` made of their rows, or where that is. Once it is in a file, it is that place.
    """

    series: tuple[str, ...]
    minutes: int
    packed: bytes | Stored


def width(series: tuple[str, ...]) -> int:
    """How many numbers a row has."""
    return len(series) * len(STATISTICS)


def pack(series: tuple[str, ...], rows: array[float]) -> Piece:
    """Make a piece of rows, and round them."""
    wide, mixed = width(series), array("I")
    for at in range(wide):
        column = rows[at::wide]
        bits = array("I", map(_rounded, column, array("I", column.tobytes())))
        mixed += bits
    text = mixed.tobytes()
    planes = b"".join(text[at::_BYTES] for at in range(_BYTES))
    return Piece(series, len(rows) // wide, zlib.compress(planes, _LEVEL))


def _rounded(number: float, bits: int) -> int:
    """What a piece has of a number that a 32-bit float has as these bits."""
    if 0 <= number < _THOUSAND:
        # A 32-bit float times 1000 is exact in Python's floats, so this is what round(number, 3) would be.
        return round(number * _THOUSAND)
    # What carries beyond the fraction makes the exponent one more, which is the next power of two.
    return (bits + _HALF) & _WITHOUT if _THOUSAND <= number <= _ROUNDED_UP_TO else bits


def length_of(piece: Piece) -> int:
    """How many bytes were made of it."""
    packed = piece.packed
    return packed.length if isinstance(packed, Stored) else len(packed)


def content_of(piece: Piece) -> bytes:
    """These bytes.

    :raises TimeoutError: if they are in a file, and the disk does not answer.
    :raises OSError: if the file can't be read.
    """
    packed = piece.packed
    return packed.file.read(packed.begin, packed.length) if isinstance(packed, Stored) else packed


def unpack(piece: Piece) -> array[float]:
    """The rows of a piece.

    :raises ValueError: if the bytes are none of :func:`pack`.
    :raises TimeoutError: as :func:`content_of`.
    :raises OSError: as :func:`content_of`.
    """
    planes = _planes(piece)
    size, wide = len(planes) // _BYTES, width(piece.series)
    text = bytearray(len(planes))
    for at in range(_BYTES):
        text[at::_BYTES] = planes[size * at : size * (at + 1)]
    mixed = array("I", bytes(text))
    rows = array("f", bytes(len(text)))
    for at in range(wide):
        bits = mixed[at * piece.minutes : (at + 1) * piece.minutes]
        column = array("f", bits.tobytes())
        if min(bits) <= _GREATEST:
            column = array(
                "f",
                [
                    number / _THOUSAND if number <= _GREATEST else as_it_is
                    for number, as_it_is in zip(bits, column, strict=True)
                ],
            )
        rows[at::wide] = column
    return rows


def _planes(piece: Piece) -> bytes:
    size, unpacking = piece.minutes * width(piece.series) * _BYTES, zlib.decompressobj()
    try:
        # zlib ends what it packs with a checksum.
        planes = unpacking.decompress(content_of(piece), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(planes) != size or not unpacking.eof or unpacking.unused_data:
        raise ValueError("a piece has another length")
    return planes
