# SPDX-License-Identifier: Apache-2.0
"""Keeping over a restart of the gateway what its counters need so that they do not go back.

Remote traffic is the difference of two counters that are read one after the other. Where it rests, it is told as the
most that it ever was, and a gateway that starts anew would find a little less. A monitoring system takes that for a
counter that began anew, and would show the whole of it as a burst.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from dataclasses import dataclass, field

import msgspec

from vmqos import regular_file
from vmqos.daemon.log_once import LogOnce

LOG = logging.getLogger(__name__)

LONGEST = 32 << 20
"""Bytes of the file that are read: a thousand VMs on 24 caches have three million."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of the counters; each field is what a class of this package keeps under that name.

    :ivar last: of :class:`vmqos.gateway.metrics.left_groups.LeftGroups`.
    :ivar left: likewise.
    :ivar remote: of :class:`vmqos.gateway.metrics.remote.RemoteCounters`.
    :ivar highest: of :class:`vmqos.gateway.metrics.rising.RisingCounters`.
    """

    last: dict[str, dict[Key, tuple[str, float]]] = field(default_factory=dict)
    left: dict[str, dict[Key, float]] = field(default_factory=dict)
    remote: dict[tuple[str, str], tuple[str, float, float, float]] = field(default_factory=dict)
    highest: dict[Key, float] = field(default_factory=dict)


class KeptCounters:
    """The file where they are kept.

    :param path: where; the directory has to be there.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._once = LogOnce(LOG)
        self._written: tuple[bytes, tuple[int, int]] | None = None
        """A digest of what was written last, and which file that is."""

    def read(self) -> Kept:
        """What was kept; nothing where there is no file, or none that can be read."""
        try:
            return msgspec.msgpack.decode(regular_file.read(self._path, LONGEST), type=Kept)
        except FileNotFoundError:
            return Kept()
        except (OSError, ValueError, RecursionError) as error:
            LOG.warning("%s can't be read, so counters may begin anew: %s", self._path, error)
            return Kept()

    def write(self, kept: Kept) -> None:
        """Keep this, unless the file has it already; where that fails, the log says so."""
        content = msgspec.msgpack.encode(kept)
        digest = hashlib.sha256(content).digest()
        with contextlib.suppress(OSError):
            if self._written == (digest, _which(os.lstat(self._path))):
                return
        try:
            descriptor, fresh = tempfile.mkstemp(prefix=".counters-", dir=os.path.dirname(self._path) or ".")
            try:
                with open(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    which = _which(os.fstat(descriptor))
                regular_file.check_replaceable(self._path)
                os.replace(fresh, self._path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(fresh)
                raise
        except OSError as error:
            # Its text names the fresh file, which is another one each time.
            told, problem = (
                "%s can't be written, so counters may begin anew after a restart: %s",
                error.strerror or error,
            )
            self._once.log(logging.WARNING, "write", told, self._path, problem)
        else:
            self._written = digest, which
            self._once.end("write")


def _which(file: os.stat_result) -> tuple[int, int]:
    """What tells a file from another one that is put in its place, and from itself after a change."""
    return file.st_ino, file.st_mtime_ns
