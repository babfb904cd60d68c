# SPDX-License-Identifier: Apache-2.0
"""Bytes, seconds, masks and amounts of resources as people read them.

A capacity bitmask is a plain ``int`` here, bit 0 being way 0: the agent has checked it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def parse_mask(text: str) -> int:
    """A mask of the API: hexadecimal digits."""
    return int(text, 16)


def size(count: float | None) -> str:
    """Bytes in the largest binary unit that keeps the number above 1, such as ``1.5 MiB``; empty for ``None``."""
    if count is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.1f}".removesuffix(".0") + f" {unit}"


def duration(seconds: float) -> str:
    """Seconds in the two largest units, such as ``2 h 5 min``."""
    whole = max(int(seconds), 0)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{number} {unit}" for number, unit in parts[:2] if number) or "0 s"


def by_cache(texts: Mapping[str, str]) -> str:
    """The text, if all caches have it; otherwise each cache with its text, such as ``0:2 1:4``; ``-`` for none."""
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return " ".join(f"{cache}:{text}" for cache, text in sorted(texts.items(), key=_by_number)) or "-"


def ways_by_cache(masks: Mapping[str, str]) -> str:
    """How many ways on which cache: ``2`` where all have the same number, ``0:2 1:4`` where not, ``-`` for none."""
    return by_cache({cache: str(parse_mask(mask).bit_count()) for cache, mask in masks.items()})


def parts_by_cache(code: Mapping[str, str], data: Mapping[str, str]) -> str:
    """How many ways on which cache, where code and data have ways of their own: ``2c+4d`` is 2 for code, 4 for data."""
    counts = {
        cache: f"{parse_mask(code[cache]).bit_count()}c+{parse_mask(data[cache]).bit_count()}d"
        for cache in code.keys() & data.keys()
    }
    return by_cache(counts)


def masks_by_cache(masks: Mapping[str, str]) -> str:
    """Masks as schemata writes them, such as ``0=3;1=c``."""
    return ";".join(f"{cache}={mask}" for cache, mask in sorted(masks.items(), key=_by_number))


def bandwidth_by_cache(limits: Mapping[str, int], unit: str | None) -> str:
    """Limits of memory bandwidth: ``60 %`` where all caches have the same, ``0:60 % 1:80 %`` where not."""
    return by_cache({cache: f"{limit} {unit}" for cache, limit in limits.items()})


def amounts(resources: Mapping[str, int]) -> str:
    """How much of each of Placement's resource classes: ``CUSTOM_LLC_WAYS=2, CUSTOM_LLC_CLASSES=1``, or ``nothing``."""
    return ", ".join(f"{name}={amount}" for name, amount in sorted(resources.items(), reverse=True)) or "nothing"


def way_list(mask: int) -> str:
    """The numbers of a mask's ways, highest first, runs drawn together: ``10-9 4 1-0``."""
    runs: list[list[int]] = []
    for way in range(mask.bit_length() - 1, -1, -1):
        if mask >> way & 1:
            if runs and runs[-1][-1] == way + 1:
                runs[-1].append(way)
            else:
                runs.append([way])
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def number_list(numbers: Iterable[int]) -> str:
    """Numbers in the kernel's notation for CPUs: ``0-3,8``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_number_list(text: str) -> set[int]:
    """The numbers of such a list."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        found.update(range(int(first), int(last if dash else first) + 1))
    return found


def _by_number(item: tuple[str, str]) -> int:
    return int(item[0])
