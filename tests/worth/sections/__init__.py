# SPDX-License-Identifier: Apache-2.0
"""What each experiment's results say: a module for each, from its JSON to a :class:`~tests.worth.section.Section`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.worth.section import Section
from tests.worth.sections import (
    batch_channel,
    bench,
    capped_batch,
    compression,
    four_cases,
    guest_mixes,
    halves,
    jitter,
    leaving,
    memory_limit,
    mixes,
    neighbours,
    pseudo_locked,
    size,
    size_passive,
    size_programs,
)

ALL: Mapping[str, Callable[[Any], Section]] = {
    "four_cases": four_cases.section,
    "bench": bench.section,
    "compression": compression.section,
    "capped_batch": capped_batch.section,
    "batch_channel": batch_channel.section,
    "memory_limit": memory_limit.section,
    "halves": halves.section,
    "jitter": jitter.section,
    "pseudo_locked": pseudo_locked.section,
    "mixes": mixes.section,
    "neighbours": neighbours.section,
    "guest_mixes": guest_mixes.section,
    "size": size.section,
    "size_programs": size_programs.section,
    "size_passive": size_passive.section,
    "leaving": leaving.section,
}
"""By experiment, in the order of the report."""
