# SPDX-License-Identifier: Apache-2.0
"""Sets of CPUs as ``cpus`` and ``cpus_list`` show and take them (the kernel's ``lib/bitmap-str.c``)."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from vmqos.simulator.kernel.numbers import digits, is_space, refusal

_CHUNK = 32


def format_mask(cpus: Iterable[int], count: int) -> str:
    """The set in hexadecimal, in groups of 32 CPUs (``%*pb``).

    :param count: how many CPUs the machine could have: the highest number plus one.
    """
    bits = sum(1 << cpu for cpu in cpus)
    groups = []
    for start in range(0, count, _CHUNK):
        width = (min(_CHUNK, count - start) + 3) // 4
        groups.append(f"{bits >> start & (1 << min(_CHUNK, count - start)) - 1:0{width}x}")
    return ",".join(reversed(groups))


def format_list(cpus: Iterable[int]) -> str:
    """The set as numbers and ranges (``%*pbl``)."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _separates(character: str) -> bool:
    return is_space(character) or character == ","


def parse_mask(text: str, count: int) -> frozenset[int]:
    """Read hexadecimal digits in groups of 32 bits (``bitmap_parse``).

    :raises OSError: ``EINVAL`` for anything that is no digit, ``EOVERFLOW`` for a CPU beyond ``count``
        or a group of more than eight digits.
    """
    text = text.partition("\n")[0]
    chunks = (count + _CHUNK - 1) // _CHUNK
    bits = shift = 0
    while True:
        text = text.rstrip(" \t\v\f\r\xa0,")
        if not text:
            break
        if shift == chunks * _CHUNK:
            raise refusal(errno.EOVERFLOW)
        start = len(text)
        while start and not _separates(text[start - 1]):
            start -= 1
        # The kernel reads from the end and meets whatever comes first: a bad digit or a ninth good one.
        for place, character in enumerate(reversed(text[start:])):
            value, length = digits(character, 16)
            if place == 8 and length:
                raise refusal(errno.EOVERFLOW)
            if not length:
                raise refusal(errno.EINVAL)
            bits |= value << (shift + 4 * place)
        text = text[:start]
        shift += _CHUNK
    if bits >> count:
        raise refusal(errno.EOVERFLOW)
    return frozenset(cpu for cpu in range(count) if bits >> cpu & 1)


def parse_list(text: str, count: int) -> frozenset[int]:
    """Read numbers, ranges, ``all``, ``N`` and ``start-end:used/group`` (``bitmap_parselist``).

    :raises OSError: ``EINVAL`` for a text of another form, ``ERANGE`` for a CPU beyond ``count``.
    """
    found: set[int] = set()
    rest = text
    while True:
        while rest and _separates(rest[0]):
            rest = rest[1:]
        if not rest:
            return frozenset(found)
        first, last, used, group, rest = _region(rest, count - 1)
        if first > last or group == 0 or used > group:
            raise refusal(errno.EINVAL)
        if last >= count:
            raise refusal(errno.ERANGE)
        for start in range(first, last + 1, group):
            found.update(range(start, min(start + used, last + 1)))


def _ends(text: str) -> bool:
    return not text or _separates(text[0])


def _region(text: str, highest: int) -> tuple[int, int, int, int, str]:
    """One region: first, last, used, group and the text after it."""
    if text[:3].lower() == "all":
        first, last, text = 0, highest, text[3:]
    else:
        first, text = _number(text, highest)
        if _ends(text):
            return first, first, first + 1, first + 1, text
        if text[0] != "-":
            raise refusal(errno.EINVAL)
        last, text = _number(text[1:], highest)
    if _ends(text):
        return first, last, last + 1, last + 1, text
    if text[0] != ":":
        raise refusal(errno.EINVAL)
    used, text = _number(text[1:], highest)
    if text[:1] != "/":
        raise refusal(errno.EINVAL)
    group, text = _number(text[1:], highest)
    return first, last, used, group, text


def _number(text: str, highest: int) -> tuple[int, str]:
    if text[:1] == "N":
        return highest, text[1:]
    value, length = digits(text, 10)
    if not length:
        raise refusal(errno.EINVAL)
    if value >= 1 << 32:
        raise refusal(errno.EOVERFLOW)
    return value, text[length:]
