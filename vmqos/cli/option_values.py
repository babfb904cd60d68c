# SPDX-License-Identifier: Apache-2.0
"""Numbers as options take them: what is wrong is told with the value and with what is allowed.

argparse itself names the Python function that refused the value, which tells a user nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole_number(least: int) -> Callable[[str], int]:
    """A check for a whole number in plain decimal digits.

    :param least: the smallest number that is allowed.
    """

    def check(text: str) -> int:
        allowed = f"a whole number from {least} up is allowed"
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number: {allowed}") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}: {allowed}")
        return value

    return check


def seconds(least: float, most: float) -> Callable[[str], float]:
    """A check for a length of time in seconds.

    :param least: the shortest that is allowed, and ``most`` the longest.
    """

    def check(text: str) -> float:
        allowed = f"a number of seconds from {least:g} to {most:g} is allowed"
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number: {allowed}") from None
        # This refuses "nan" too.
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is too short or too long: {allowed}")
        return value

    return check
