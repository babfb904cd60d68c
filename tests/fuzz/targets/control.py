# SPDX-License-Identifier: Apache-2.0
"""A parser with a planted defect: a run of the engine that does not find it is worth nothing."""

from __future__ import annotations


def parse(data: bytes) -> bool:
    """Fails for what begins with one certain word. An engine that is guided by coverage is led there byte by byte."""
    return _begins(data, b"ways")


def _begins(data: bytes, word: bytes) -> bool:
    for at, wanted in enumerate(word):
        if len(data) <= at or data[at] != wanted:
            return at > 0
    raise ZeroDivisionError("the planted defect")
