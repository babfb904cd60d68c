# SPDX-License-Identifier: Apache-2.0
"""What the plugin recorded of the accesses of a guest (``tests/kernel/plugin/trace.h``), as values."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.cachemodel.library import Access, From, Kind

RECORD = struct.Struct("<QQQIBBBB")
FLUSH = len(Kind)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One record.

    :ivar access: what the model was given; of a flush only its CPU and domain count.
    :ivar served: where the model served it from; ``None`` for a flush.
    """

    access: Access
    served: From | None


def read(path: Path) -> Iterator[Recorded]:
    """Read a file; a last record that is not whole is left out."""
    data = path.read_bytes()
    for line, l2_mask, l3_mask, rmid, cpu, domain, kind, served in RECORD.iter_unpack(
        data[: len(data) // RECORD.size * RECORD.size]
    ):
        flush = kind == FLUSH
        access = Access(line, Kind.LOAD if flush else Kind(kind), l3_mask, l2_mask, cpu, domain, rmid)
        yield Recorded(access, None if flush else From(served))
