# SPDX-License-Identifier: Apache-2.0
"""Doing again, on the simulator, what a recording says was done, and noting what comes out differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.functional.replay import operations
from tests.functional.replay.recording import Record
from tests.functional.replay.rules import RULES, UNJUDGED
from tests.functional.replay.stage import Stage
from tests.functional.replay.verdict import Difference, Tally

Handler = Callable[[Stage, Record], list[Difference]]


def play(stage: Stage, records: Sequence[Record]) -> dict[str, Tally]:
    """Replay every record.

    :return: what came of them, by section.
    """
    tallies: dict[str, Tally] = {}
    for number, record in enumerate(records):
        tally = tallies.setdefault(record["sec"], Tally())
        reason = next((reason for reason, covers in UNJUDGED if covers(record)), None)
        handler = operations.HANDLERS.get(record["op"])
        if reason is None and handler is None:
            reason = f"unknown operation {record['op']}"
        if reason is not None or handler is None:
            tally.unjudged[str(reason)] += 1
            continue
        tally.take(_attempt(stage, records, number, handler), RULES)
    return tallies


def _attempt(stage: Stage, records: Sequence[Record], number: int, handler: Handler) -> list[Difference]:
    """Replay one record; a record that the replay cannot follow counts as differing."""
    record = records[number]
    try:
        stage.prepare(records, number)
        found = handler(stage, record)
        stage.finish(records, number)
    except (LookupError, ValueError, TypeError, OSError, StopIteration) as error:
        return [Difference(record, "replay", "something that it can follow", repr(error))]
    return found
