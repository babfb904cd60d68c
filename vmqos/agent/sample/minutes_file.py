# SPDX-License-Identifier: Apache-2.0
"""The file that has the last day of every VM's readings, so that a restart of the agent does not end them.

It is no database and no truth. The truth lives in resctrl and libvirt; what is here is only shown. So no other module
may read it, and an agent without it lacks nothing but the past: a damaged file is told, and left alone.

It is a line that names the format, the length of a header (four bytes, the greatest first), the header (JSON), when
each minute began (64-bit integers), for each VM in the header's order what its pieces were packed to and the rows that
are in none (32-bit floats), and a CRC-32 of it all. In the first format there are no pieces, and each VM has a row for
each minute: such a file is read, too.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import zlib
from array import array
from collections.abc import Iterator
from contextlib import suppress

from vmqos.agent.sample.history import EXECUTED, PACKAGES, SERIES
from vmqos.agent.sample.minutes import DAY, MOST_VMS, PackedMinutes, PackedTrack
from vmqos.agent.sample.piece import HOUR, Piece, check, width

FORMAT = b"vmqos minutes 2\n"

FIRST_FORMAT = b"vmqos minutes 1\n"

LONGEST_HEADER = 1 << 20
"""Bytes: a VM takes some four hundred."""

_KEPT = DAY + HOUR
"""Minutes: the oldest piece is kept until all of it is too old."""

LONGEST = len(FORMAT) + 8 + LONGEST_HEADER + _KEPT * (8 + MOST_VMS * (1 + 4 * width(SERIES + EXECUTED + PACKAGES)))
"""Bytes of a file that is read. What zlib can't make smaller grows by less than a byte for each minute."""


class UnusableFile(Exception):
    """It is not what :func:`write` wrote, or what another version of it wrote."""


def write(path: str, minutes: PackedMinutes) -> None:
    """Replace the file: it is the old one or the new one at any moment. Only its owner may read it.

    :raises OSError: if it can't be written.
    """
    fresh = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(fresh)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            checksum = 0
            for part in _parts(minutes):
                checksum = zlib.crc32(part, checksum)
                file.write(part)
            file.write(checksum.to_bytes(4, "big"))
            file.flush()
            os.fsync(descriptor)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise


def read(path: str) -> PackedMinutes:
    """What the file has.

    :raises OSError: if it can't be read.
    :raises UnusableFile: if it has something else.
    """
    content = _content(path)
    parse = {FORMAT: _parse, FIRST_FORMAT: _parse_first}.get(bytes(content[: len(FORMAT)]))
    if parse is None:
        raise UnusableFile("it has another format")
    if zlib.crc32(content[:-4]) != int.from_bytes(content[-4:], "big"):
        raise UnusableFile("its checksum is wrong")
    try:
        return parse(content[len(FORMAT) : -4])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnusableFile(f"its header is none of ours: {type(error).__name__}") from error


def _parts(minutes: PackedMinutes) -> Iterator[bytes]:
    # There are few lists of series: the names are written once.
    lists = {minutes.series: 0}
    for track in minutes.vms.values():
        for piece in track.pieces:
            lists.setdefault(piece.series, len(lists))
    header = {
        "byteorder": sys.byteorder,
        "series": list(lists),
        "minutes": len(minutes.times),
        "vms": {
            uuid: {
                "missed": track.missed,
                "rows": len(track.rows) // width(minutes.series),
                "pieces": [(lists[piece.series], piece.minutes, len(piece.packed)) for piece in track.pieces],
            }
            for uuid, track in minutes.vms.items()
        },
    }
    text = json.dumps(header).encode()
    yield FORMAT
    yield len(text).to_bytes(4, "big")
    yield text
    yield minutes.times.tobytes()
    for track in minutes.vms.values():
        for piece in track.pieces:
            yield piece.packed
        yield track.rows.tobytes()


def _content(path: str) -> memoryview:
    # Without O_NONBLOCK the open of a FIFO would wait for a writer.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnusableFile("it is no regular file")
        if status.st_size > LONGEST:
            raise UnusableFile(f"it has {status.st_size} bytes, and {LONGEST} are the most that are read")
        return memoryview(file.read(status.st_size))


class _Body:
    """The header of a file, and what comes after it."""

    def __init__(self, body: memoryview) -> None:
        length = int.from_bytes(body[:4], "big")
        if length > LONGEST_HEADER:
            raise ValueError
        self.header = json.loads(bytes(body[4 : 4 + length]))
        if self.header["byteorder"] != sys.byteorder:
            raise ValueError
        self._rest = body[4 + length :]

    def take(self, length: int) -> bytes:
        """The next bytes."""
        if not 0 <= length <= len(self._rest):
            raise ValueError
        taken, self._rest = bytes(self._rest[:length]), self._rest[length:]
        return taken

    def end(self) -> None:
        """Refuse further bytes."""
        if self._rest:
            raise ValueError


def _parse(content: memoryview) -> PackedMinutes:
    body = _Body(content)
    lists = [tuple(names) for names in body.header["series"]]
    times = array("q", body.take(8 * int(body.header["minutes"])))
    tracks = {}
    for uuid, track in body.header["vms"].items():
        pieces = [Piece(lists[at], int(minutes), body.take(length)) for at, minutes, length in track["pieces"]]
        for piece in pieces:
            if not 0 < piece.minutes <= 2 * _KEPT:
                raise ValueError
            check(piece)
        rows = array("f", body.take(4 * width(lists[0]) * track["rows"]))
        tracks[uuid] = PackedTrack(pieces, rows, _missed(track["missed"], len(times)))
    body.end()
    return PackedMinutes(lists[0], times, tracks)


def _parse_first(content: memoryview) -> PackedMinutes:
    body = _Body(content)
    series, count = tuple(body.header["series"]), int(body.header["minutes"])
    times = array("q", body.take(8 * count))
    tracks = {}
    for uuid, missed in body.header["vms"].items():
        rows = array("f", body.take(4 * count * width(series)))
        tracks[uuid] = PackedTrack((), rows[: (count - _missed(missed, count)) * width(series)], missed)
    body.end()
    return PackedMinutes(series, times, tracks)


def _missed(minutes: int, count: int) -> int:
    if not 0 <= minutes <= count:
        raise ValueError
    return int(minutes)
