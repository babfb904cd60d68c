# SPDX-License-Identifier: Apache-2.0
"""The file that has the last day of every VM's readings, so that a restart of the agent does not end them.

It is no database and no truth. The truth lives in resctrl and libvirt; what is here is only shown. So no other module
may read it, and an agent without it lacks nothing but the past: a damaged file is told, and left alone.

It is a line that names the format, the length of a header (four bytes, the greatest first), the header (JSON), when
each minute began (64-bit integers), the rows of each VM in the header's order (32-bit floats), and a CRC-32 of it all.
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
from vmqos.agent.sample.minutes import DAY, MOST_VMS, STATISTICS, Minutes, Track

FORMAT = b"vmqos minutes 1\n"

LONGEST_HEADER = 1 << 16
"""Bytes: a VM takes some fifty."""

_MOST_SERIES = len(SERIES + EXECUTED + PACKAGES)

LONGEST = len(FORMAT) + 8 + LONGEST_HEADER + DAY * (8 + MOST_VMS * 4 * len(STATISTICS) * _MOST_SERIES)
"""Bytes of a file that is read."""


class UnusableFile(Exception):
    """It is not what :func:`write` wrote, or what another version of it wrote."""


def write(path: str, minutes: Minutes) -> None:
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


def read(path: str) -> Minutes:
    """What the file has.

    :raises OSError: if it can't be read.
    :raises UnusableFile: if it has something else.
    """
    content = _content(path)
    if content[: len(FORMAT)] != FORMAT:
        raise UnusableFile("it has another format")
    if zlib.crc32(content[:-4]) != int.from_bytes(content[-4:], "big"):
        raise UnusableFile("its checksum is wrong")
    try:
        return _parse(content[len(FORMAT) : -4])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnusableFile(f"its header is none of ours: {type(error).__name__}") from error


def _parts(minutes: Minutes) -> Iterator[bytes]:
    header = {
        "byteorder": sys.byteorder,
        "series": minutes.series,
        "minutes": len(minutes.times),
        "vms": {uuid: track.missed for uuid, track in minutes.vms.items()},
    }
    text = json.dumps(header).encode()
    yield FORMAT
    yield len(text).to_bytes(4, "big")
    yield text
    yield minutes.times.tobytes()
    for track in minutes.vms.values():
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


def _parse(body: memoryview) -> Minutes:
    length = int.from_bytes(body[:4], "big")
    if length > LONGEST_HEADER:
        raise ValueError
    header = json.loads(bytes(body[4 : 4 + length]))
    series, count, vms = tuple(header["series"]), int(header["minutes"]), header["vms"]
    for_times, for_rows = 8 * count, 4 * count * len(series) * len(STATISTICS)
    at = 4 + length
    if header["byteorder"] != sys.byteorder or count < 0 or len(body) != at + for_times + for_rows * len(vms):
        raise ValueError
    times = array("q", body[at : at + for_times].tobytes())
    at += for_times
    tracks = {}
    for uuid, missed in vms.items():
        tracks[uuid] = Track(array("f", body[at : at + for_rows].tobytes()), int(missed))
        at += for_rows
    return Minutes(series, times, tracks)
