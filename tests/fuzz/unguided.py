# SPDX-License-Identifier: Apache-2.0
"""Fuzzing of one target where atheris does not install: hypothesis changes the inputs that are kept.

It runs in a process of its own, as :mod:`.guided` does: ``python -m tests.fuzz.unguided TARGET FOLDER DEADLINE``.
Nothing guides it: what it finds, it finds by the words of the target and by the shape of the corpus.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import coverage
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz import json_edits
from tests.fuzz.table import BY_NAME, Target
from tests.fuzz.trial import Trials

INCLUDED = ["*/vmqos/*", "*/tests/functional/replay/*", "*/tests/fuzz/targets/control.py"]
"""The files whose lines are counted that inputs reach."""

_BATCH = 500
"""Inputs that are made before the clock is looked at."""

_NUMBERS = (0, 1, 0x0A, 0x20, 0x22, 0x25, 0x2D, 0x30, 0x39, 0x3C, 0x5C, 0x7F, 0x80, 0xFF)


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Inputs of the corpus with some pieces taken out, put in or doubled; and bytes of no shape at all."""
    known = [path.read_bytes() for path in target.inputs()] or [b""]
    words = [word.encode() for word in target.words] or [b" "]
    places = st.integers(0, max(map(len, known)))
    pieces = (
        st.sampled_from(words)
        | st.sampled_from(_NUMBERS).map(lambda number: bytes([number]))
        | st.builds(lambda whole, at, size: whole[at : at + size], st.sampled_from(known), places, st.integers(1, 40))
        | st.binary(max_size=8)
    )
    edits = st.lists(st.tuples(places, st.integers(0, 20) | places, pieces | st.just(b"")), max_size=6)
    changed = st.builds(_edited, st.sampled_from(known), edits)
    shapeless = st.lists(pieces, max_size=12).map(b"".join) | st.binary(max_size=64)
    found = changed | changed | shapeless
    if target.is_json:
        known_json = st.sampled_from(known)
        found |= st.builds(lambda data, seed: json_edits.edited(data, seed) or data, known_json, st.integers(0))
    return found.map(lambda data: data[: target.longest])


def _edited(data: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """Each edit is where, how many bytes go, and what comes instead."""
    for at, gone, instead in edits:
        data = data[:at] + instead + data[at + gone :]
    return data


def main(name: str, folder: Path, deadline: float) -> None:
    """Try inputs until the deadline, by the monotonic clock; what came of it is written into ``result.json``."""
    target = BY_NAME[name]
    trials = Trials(target.load(), folder / "findings")
    # Only now, so that what importing runs does not count.
    measured = coverage.Coverage(data_file=None, config_file=False, include=INCLUDED)
    measured.start()
    for path in target.inputs():
        trials(path.read_bytes())

    @settings(
        max_examples=_BATCH,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(target))
    def try_some(data: bytes) -> None:
        trials(data)

    # Once at least: on a busy machine the start alone may take until then.
    try_some()
    while time.monotonic() < deadline:
        try_some()
    measured.stop()
    found = measured.get_data()
    lines = sum(len(found.lines(file) or ()) for file in found.measured_files())
    (folder / "result.json").write_text(json.dumps({"tried": trials.tried, "taken": trials.taken, "reached": lines}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
