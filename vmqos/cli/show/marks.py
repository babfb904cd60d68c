# SPDX-License-Identifier: Apache-2.0
"""The letter, digit and colour of a group on the map of the ways. Pure.

A group's mark follows from its name, so that it stays what it is from one look to the next. Where two groups would have
the same mark, the one that came first has it, and the later one takes the next that is free: a group that comes changes
no other's mark. The agent's page for browsers does the same (lanes.js).
"""

from __future__ import annotations

from collections.abc import Iterable

_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193
"""Of the 32-bit hash FNV-1a (RFC 9923), which is a line of code in any language."""


def allot(names: Iterable[str], count: int) -> dict[str, int]:
    """A number for each name: first the numbers below ``count``, then those below twice ``count``, and so on.

    :param names: in the order in which they came.
    :param count: how many marks there are; those who use more numbers begin with the first mark again.
    """
    given: dict[str, int] = {}
    bearers = [0] * count
    for name in names:
        fewest = min(bearers)
        mark = _hash(name) % count
        while bearers[mark] > fewest:
            mark = (mark + 1) % count
        given[name] = mark + count * fewest
        bearers[mark] += 1
    return given


def _hash(name: str) -> int:
    found = _FNV_OFFSET
    for byte in name.encode(errors="surrogatepass"):
        found = (found ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return found
