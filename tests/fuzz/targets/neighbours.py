# SPDX-License-Identifier: Apache-2.0
"""Recordings of neighbours, which users send with a verdict that looks wrong."""

from __future__ import annotations

import io

from vmqos.cli.neighbours import recording as recordings
from vmqos.cli.neighbours import replay, view
from vmqos.cli.neighbours.recording import Facts, Header
from vmqos.cli.show.terminal import Terminal


class Refused(Exception):
    """What the parser says of a line."""


def recording(data: bytes) -> bool:
    try:
        found = list(recordings.read(io.BytesIO(data), _refuse))
    except Refused:
        return False
    again = b"".join(
        recordings.header_line(record)
        if isinstance(record, Header)
        else recordings.facts_line(record)
        if isinstance(record, Facts)
        else recordings.sweep_line(record)
        for record in found
    )
    assert list(recordings.read(io.BytesIO(again), _refuse)) == found
    # Whatever the parser lets through, the law has to bear, and what it says has to be shown.
    for moments in (replay.Moments(), replay.Moments(every=10.0, window=9)):
        for verdict in replay.verdicts(found, moments, _refuse):
            called = {vm["uuid"]: vm["name"] for vm in verdict.vms}
            view.rows(verdict.answer, called)
            view.draw(verdict.answer, called, None, Terminal())
    return len(found) > 2


def _refuse(line: int, problem: str) -> Refused:
    return Refused(f"line {line}: {problem}")
