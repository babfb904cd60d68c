# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of one target: atheris, which drives libFuzzer.

It runs in a process of its own, ``python -m tests.fuzz.guided TARGET FOLDER DEADLINE ARGUMENTS...``:
libFuzzer ends its process.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import atheris

from tests.fuzz import json_edits
from tests.fuzz.table import BY_NAME
from tests.fuzz.trial import Trials

INSTRUMENTED = ["vmqos", "tests.functional.replay.recording", "tests.fuzz.targets.control"]
"""The packages whose branches and comparisons guide the search."""

FOREIGN = frozenset({"api", "gnocchi", "neighbours", "openstack"})
"""The modules of targets where libraries of others read or draw a part of the text. atheris would look into the regular
expressions of these, too: the search would be lost there, and atheris fails for some that httpx and rich have."""

TELL_EACH = 0.2
"""Seconds between two times that it is told how many inputs were tried."""


def main(name: str, folder: Path, deadline: float, arguments: list[str]) -> None:
    """Fuzz one target until the deadline, by the monotonic clock.

    :param folder: has a folder ``findings``; what came of it is written into ``result.json`` all the time.
    :param arguments: libFuzzer's.
    """
    target = BY_NAME[name]
    # So that the search is led through startswith() and through regular expressions, too.
    atheris.enabled_hooks.add("str")
    if target.function.partition(":")[0] not in FOREIGN:
        atheris.enabled_hooks.add("RegEx")
    with atheris.instrument_imports(include=INSTRUMENTED):
        parse = target.load()
    trials, told_at = Trials(parse, folder / "findings"), 0.0

    def try_one(data: bytes) -> None:
        nonlocal told_at
        trials(data)
        # The process is ended without a last word.
        if time.monotonic() - told_at > TELL_EACH:
            told_at = time.monotonic()
            (folder / "result.json").write_text(json.dumps({"tried": trials.tried, "taken": trials.taken}))

    seconds = max(1, int(deadline - time.monotonic()))
    mutator = {"custom_mutator": _mutated} if target.is_json else {}
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", *arguments], try_one, **mutator)
    atheris.Fuzz()


def _mutated(data: bytes, most: int, seed: int) -> bytes:
    """A value of the JSON changed in one half of all cases, bytes in the other half, as libFuzzer does."""
    changed = json_edits.edited(data, seed) if seed % 2 else None
    return changed if changed is not None and len(changed) <= most else atheris.Mutate(data, most)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
