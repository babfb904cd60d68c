# SPDX-License-Identifier: Apache-2.0
"""What came of a campaign, as a table: a row for each machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.campaign.trouble.story import Outcome
from tests.campaign.trouble.verdicts import Kind

COLUMNS = ("stories", "events", "writes", "kills", "places", "quiets", "longest")


def lines(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """The table.

    :param outcomes: what came of the stories, by machine.
    """
    whole = Outcome()
    for outcome in outcomes.values():
        whole.add(outcome)
    rows = {**outcomes, "all": whole}
    width = max(map(len, rows))
    yield _line("", width, _heads())
    for name, outcome in rows.items():
        yield _line(name, width, _cells(outcome))


def _line(name: str, width: int, cells: list[str]) -> str:
    """One line; a column is as wide as its head, and wide enough for six digits."""
    widths = [max(8, len(head) + 2) for head in _heads()]
    return f"{name:{width}}" + "".join(f"{cell:>{size}}" for cell, size in zip(cells, widths, strict=True))


def _heads() -> list[str]:
    return [*COLUMNS, *(kind.value if kind is Kind.UNSERVED else f"{kind.value}s" for kind in Kind)]


def _cells(outcome: Outcome) -> list[str]:
    counts = [sum(one.kind is kind for one in outcome.violations) for kind in Kind]
    known = (outcome.stories, outcome.events, outcome.writes, outcome.kills, len(outcome.places), outcome.quiets)
    return [*map(str, known), f"{outcome.longest:.2f} s", *map(str, counts)]
