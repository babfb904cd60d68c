# SPDX-License-Identifier: Apache-2.0
"""The file that has the last day of every VM's readings, so that a restart of the agent does not end them.

It is no database and no truth. The truth lives in resctrl and libvirt; what is here is only shown. So no other module
may read it, and an agent without it lacks nothing but the past: a damaged file is told, and left alone.

What is packed is in the file alone once it is written: the agent keeps the file open, reads there what a client asks
for, and copies it to the next file.

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

from vmqos import regular_file
from vmqos.agent.sample.history import EXECUTED, PACKAGES, SERIES
from vmqos.agent.sample.minutes import DAY, MOST_VMS, PackedMinutes, PackedTrack
from vmqos.agent.sample.piece import HOUR, Piece, PieceFile, Stored, content_of, length_of, width

FORMAT = b"vmqos minutes 2\n"

FIRST_FORMAT = b"vmqos minutes 1\n"

LONGEST_HEADER = 1 << 20
"""Bytes: a VM takes some four hundred."""

_KEPT = DAY + HOUR
"""Minutes: the oldest piece is kept until all of it is too old."""

LONGEST = len(FORMAT) + 8 + LONGEST_HEADER + _KEPT * (8 + MOST_VMS * (1 + 4 * width(SERIES + EXECUTED + PACKAGES)))
"""Bytes of a file that is read. What zlib can't make smaller grows by less than a byte for each minute."""

_CHECKSUM = 4
"""Bytes at the end."""

_CHUNK = 1 << 16
"""Bytes that are read at a time for the checksum."""


class UnusableFile(Exception):
    """It is not what :func:`write` wrote, or what another version of it wrote."""


def write(path: str, minutes: PackedMinutes) -> None:
    """Replace the file: it is the old one or the new one at any moment. Only its owner may read it.

    From then on the pieces are in the file alone. One that the last file has, and that can't be read there, is zeros
    in this one, which is no piece.

    :raises OSError: if it can't be written, or if the path is that of a device or the like.
    """
    regular_file.check_replaceable(path)
    fresh = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(fresh)
    kept = PieceFile(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        places = _write(kept, minutes)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise
    for piece, begin in places:
        piece.packed = Stored(kept, begin, length_of(piece))


def read(path: str) -> PackedMinutes:
    """What the file has. Its pieces stay there.

    :raises OSError: if it can't be read.
    :raises UnusableFile: if it has something else.
    """
    file, size = _open(path)
    parse = {FORMAT: _parse, FIRST_FORMAT: _parse_first}.get(file.read(0, len(FORMAT)))
    if parse is None:
        raise UnusableFile("it has another format")
    end, checksum = size - _CHECKSUM, 0
    for begin in range(0, end, _CHUNK):
        checksum = zlib.crc32(file.read(begin, min(_CHUNK, end - begin)), checksum)
    if checksum.to_bytes(_CHECKSUM, "big") != file.read(end, _CHECKSUM):
        raise UnusableFile("its checksum is wrong")
    try:
        return parse(_Body(file, len(FORMAT), end))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnusableFile(f"its header is none of ours: {type(error).__name__}") from error


def _write(kept: PieceFile, minutes: PackedMinutes) -> list[tuple[Piece, int]]:
    """Write all of it; the pieces, and where each begins."""
    places: list[tuple[Piece, int]] = []
    with open(kept.descriptor, "wb", closefd=False) as file:
        checksum, begin = 0, 0
        for part, piece in _parts(minutes):
            if piece is not None:
                places.append((piece, begin))
            checksum = zlib.crc32(part, checksum)
            begin += file.write(part)
        file.write(checksum.to_bytes(_CHECKSUM, "big"))
        file.flush()
        os.fsync(kept.descriptor)
    return places


def _parts(minutes: PackedMinutes) -> Iterator[tuple[bytes, Piece | None]]:
    """What the file has, and which piece a part is."""
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
                "pieces": [(lists[piece.series], piece.minutes, length_of(piece)) for piece in track.pieces],
            }
            for uuid, track in minutes.vms.items()
        },
    }
    text = json.dumps(header).encode()
    yield FORMAT + len(text).to_bytes(4, "big") + text + minutes.times.tobytes(), None
    for track in minutes.vms.values():
        for piece in track.pieces:
            yield _content(piece), piece
        yield track.rows.tobytes(), None


def _content(piece: Piece) -> bytes:
    """What is written of a piece."""
    try:
        found = content_of(piece)
    except TimeoutError:
        raise
    except OSError:
        found = b""
    return found.ljust(length_of(piece), b"\0")


def _open(path: str) -> tuple[PieceFile, int]:
    """The file, and its size."""
    # Without O_NONBLOCK the open of a FIFO would wait for a writer.
    file = PieceFile(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    status = os.fstat(file.descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnusableFile("it is no regular file")
    if status.st_size > LONGEST:
        raise UnusableFile(f"it has {status.st_size} bytes, and {LONGEST} are the most that are read")
    return file, status.st_size


class _Body:
    """The header of a file, and what comes after it.

    :param begin: of the header's length.
    :param end: of all but the checksum.
    """

    def __init__(self, file: PieceFile, begin: int, end: int) -> None:
        self._file, self._begin, self._end = file, begin, end
        length = int.from_bytes(self.take(4), "big")
        if length > LONGEST_HEADER:
            raise ValueError
        self.header = json.loads(self.take(length))
        if self.header["byteorder"] != sys.byteorder:
            raise ValueError

    def take(self, length: int) -> bytes:
        """The next bytes."""
        found = self._file.read(self.skip(length).begin, length)
        if len(found) != length:
            raise ValueError
        return found

    def skip(self, length: int) -> Stored:
        """Where the next bytes are."""
        begin = self._begin
        if not 0 <= length <= self._end - begin:
            raise ValueError
        self._begin += length
        return Stored(self._file, begin, length)

    def finish(self) -> None:
        """Refuse further bytes."""
        if self._begin != self._end:
            raise ValueError


def _parse(body: _Body) -> PackedMinutes:
    lists = [tuple(names) for names in body.header["series"]]
    times = array("q", body.take(8 * int(body.header["minutes"])))
    tracks = {}
    for uuid, track in body.header["vms"].items():
        pieces = [Piece(lists[at], int(minutes), body.skip(length)) for at, minutes, length in track["pieces"]]
        if not all(0 < piece.minutes <= 2 * _KEPT for piece in pieces):
            raise ValueError
        rows = array("f", body.take(4 * width(lists[0]) * track["rows"]))
        tracks[uuid] = PackedTrack(pieces, rows, _missed(track["missed"], len(times)))
    body.finish()
    return PackedMinutes(lists[0], times, tracks)


def _parse_first(body: _Body) -> PackedMinutes:
    series, count = tuple(body.header["series"]), int(body.header["minutes"])
    times = array("q", body.take(8 * count))
    tracks = {}
    for uuid, missed in body.header["vms"].items():
        rows = array("f", body.take(4 * count * width(series)))
        tracks[uuid] = PackedTrack((), rows[: (count - _missed(missed, count)) * width(series)], missed)
    body.finish()
    return PackedMinutes(series, times, tracks)


def _missed(minutes: int, count: int) -> int:
    if not 0 <= minutes <= count:
        raise ValueError
    return int(minutes)
