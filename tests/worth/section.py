# SPDX-License-Identifier: Apache-2.0
"""A section of the report, as a value: what was found, beside what the literature has."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SAME = 0.10
"""Results that differ by no more than this part are called the same: one measure for the whole report."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence about order or direction, and whether our figures say so, too."""

    text: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Bars:
    """Groups of bars side by side.

    :ivar name: of its file.
    :ivar title: what it shows.
    :ivar unit: of the values.
    :ivar values: by series, one value for each group.
    :ivar axis: what the groups are.
    :ivar colour: the first series', by number: so that a series has the same in two plots.
    """

    name: str
    title: str
    unit: str
    groups: Sequence[str]
    values: Mapping[str, Sequence[float]]
    axis: str = ""
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Curves:
    """The share of events that took no longer than so long, by series; the rest as of :class:`Bars`."""

    name: str
    title: str
    unit: str
    samples: Mapping[str, Sequence[float]]


def digest(plot: Bars | Curves) -> str:
    """Of all that a plot shows: its file has it, and so can be told from one of other figures."""
    return hashlib.sha256(repr(plot).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text below a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """One experiment.

    :ivar source: where it comes from, and what was found there.
    :ivar text: what was done here.
    :ivar claims: what of the source holds here.
    :ivar left_out: how far it can be compared.
    """

    title: str
    source: str
    text: str
    tables: Sequence[Table]
    plots: Sequence[Bars | Curves]
    claims: Sequence[Claim]
    left_out: str
