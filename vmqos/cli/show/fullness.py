# SPDX-License-Identifier: Apache-2.0
"""How full a VM's ways are, cache by cache. Pure.

A VM that has filled its ways on one cache and has nothing on another lacks cache; the sum over both tells a VM whose
ways are half full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmqos.cli.show import units
from vmqos.cli.show.terminal import Terminal

_LEVELS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Fill:
    """What a VM holds of one cache where ways were promised to it.

    :ivar cache: the cache's id.
    :ivar held: bytes; more than ``granted`` while lines are left in ways that it had before.
    :ivar granted: the bytes of its ways there, more than 0.
    """

    cache: int
    held: float
    granted: int

    @property
    def share(self) -> float:
        """How full its ways are, from 0 up."""
        return self.held / self.granted

    @property
    def percent(self) -> str:
        """How full its ways are, for people, such as ``99%``. A share below 1 is never rounded up to ``100%``."""
        share = round(100 * self.share)
        return f"{min(share, 99) if self.share < 1 else share}%"


def fills(
    held: Mapping[int, float | None],
    ways: Mapping[int, int],
    cache_ways: Mapping[int, int],
    cache_bytes: Mapping[int, int],
) -> tuple[Fill, ...]:
    """What a VM holds of each cache where it has ways and where both sizes are known, in the order of the caches.

    :param held: bytes that the VM holds, by cache id; ``None`` where no number is known.
    :param ways: how many ways were promised to it, by cache id.
    :param cache_ways: how many ways each cache has.
    :param cache_bytes: the size of each cache.
    """
    found = []
    for cache in sorted(ways):
        has, every = held.get(cache), cache_ways.get(cache)
        granted = cache_bytes.get(cache, 0) * ways[cache] // every if every else 0
        if has is not None and granted:
            found.append(Fill(cache, has, granted))
    return tuple(found)


def fullest(found: Sequence[Fill]) -> Fill | None:
    """The one whose ways are fullest, the first of several; ``None`` where there is none."""
    return max(found, key=lambda one: one.share, default=None)


def told(found: Sequence[Fill], several: bool) -> str:
    """How full the fullest is, such as ``98%``, and which one that is where there are several: ``0:98%``."""
    most = fullest(found)
    if most is None:
        return ""
    return f"{most.cache}:{most.percent}" if several else most.percent


def bar(fill: Fill, width: int, terminal: Terminal) -> str:
    """A bar of ``width`` columns; one of a single column is as high as its share in a fancy terminal."""
    share = min(1.0, fill.share)
    if width == 1 and terminal.fancy:
        return _LEVELS[round(share * (len(_LEVELS) - 1))]
    full = round(width * share)
    return terminal.glyph("█", "=") * full + terminal.glyph("░", "-") * (width - full)


def lines(found: Sequence[Fill], terminal: Terminal) -> str:
    """A line for each cache: its id, a bar, and the numbers."""
    return "\n".join(
        f"cache {one.cache}  {bar(one, 10, terminal)}  {one.percent:>4}, {units.size(one.held)} of "
        f"{units.size(one.granted)}"
        for one in found
    )


def plain(found: Sequence[Fill]) -> str:
    """Bytes held and granted by cache, such as ``0=6186598/6291456;1=0/6291456``."""
    return ";".join(f"{one.cache}={one.held:.0f}/{one.granted}" for one in found)
