# SPDX-License-Identifier: Apache-2.0
"""Numbers as options take them: what is wrong is told with the value and with what is allowed.

argparse itself names the Python function that refused the value, which tells a user nothing.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DECIMAL = re.compile(r"-?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})")
"""Python itself reads more: blanks around a number, ``_`` in it, and the digits of every script."""
_SIZE = re.compile(r"(\d{1,20})\s*([KMG]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """A check for a whole number in plain decimal digits.

    :param least: the smallest number that is allowed, and ``most`` the greatest; ``None``: any.
    """

    def check(text: str) -> int:
        allowed = f"a whole number from {least} {'up' if most is None else f'to {most}'} is allowed"
        if not _WHOLE.fullmatch(text):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number: {allowed}")
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}: {allowed}")
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"{text} is more than {most}: {allowed}")
        return value

    return check


def seconds(least: float, most: float) -> Callable[[str], float]:
    """A check for a length of time in seconds.

    :param least: the shortest that is allowed, and ``most`` the longest.
    """

    def check(text: str) -> float:
        allowed = f"a number of seconds from {least:g} to {most:g} is allowed"
        if not _DECIMAL.fullmatch(text):
            raise argparse.ArgumentTypeError(f"{text!r} is no number: {allowed}")
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is too short or too long: {allowed}")
        return value

    return check


def size(least: str, most: str) -> Callable[[str], int]:
    """A check for a number of bytes, such as ``4096``, ``64K`` or ``2 GiB``.

    :param least: the smallest that is allowed, and ``most`` the largest, each in the same notation.
    """

    def check(text: str) -> int:
        found = _SIZE.fullmatch(text.strip())
        if found is None:
            raise argparse.ArgumentTypeError(f"{text} is no size: bytes, or a number with K, M or G")
        value = _bytes(found)
        if not _bytes(_SIZE.fullmatch(least)) <= value <= _bytes(_SIZE.fullmatch(most)):
            raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most}")
        return value

    return check


def _bytes(found: re.Match[str] | None) -> int:
    assert found is not None
    return int(found[1]) * _UNITS[found[2].upper()]
