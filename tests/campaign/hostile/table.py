# SPDX-License-Identifier: Apache-2.0
"""What came of all inputs, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from tests.campaign.hostile.inputs import Family, Outcome, Result

COLUMNS = ("tried", "refused", "harmless", "harmed")


def lines(families: Sequence[Family], outcomes: Sequence[Outcome]) -> list[str]:
    """The table, and below it every input that did harm."""
    rows = {family.title: _counts([one for one in outcomes if one.family == family.name]) for family in families}
    rows["all"] = _counts(outcomes)
    width = max(map(len, rows))
    table = [f"{'':{width}}  " + "  ".join(f"{column:>8}" for column in COLUMNS)]
    table += [f"{title:{width}}  " + "  ".join(f"{count:8d}" for count in counts) for title, counts in rows.items()]
    return table + [described(one) for one in outcomes if one.result is Result.HARMED]


def described(outcome: Outcome) -> str:
    """One outcome in a line."""
    return (
        f"{outcome.result.value}: {outcome.family}: {outcome.input} (by {outcome.attacker.value}): {outcome.evidence}"
    )


def _counts(outcomes: Sequence[Outcome]) -> list[int]:
    results = [one.result for one in outcomes]
    return [len(results), *(results.count(result) for result in (Result.REFUSED, Result.HARMLESS, Result.HARMED))]
