# SPDX-License-Identifier: Apache-2.0
"""Recordings of what a real kernel's resctrl answered: one JSON object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]

OWN = Path(__file__).parent / "recordings"
VARIABLE = "VMQOS_RECORDINGS"


def paths() -> list[Path]:
    """The recordings to replay: those of the environment variable, else our own."""
    named = os.environ.get(VARIABLE, "")
    if named:
        return [Path(path) for path in named.split(":") if path]
    return sorted(OWN.glob("*.jsonl"))


def load(path: Path) -> list[Record]:
    """Every record of a recording, in order.

    :raises ValueError: if a line is no JSON object with ``op`` and ``sec``, or is of a tree and has no ``path``.
    """
    records: list[Record] = []
    text = path.read_text(encoding="utf-8").removesuffix("\n")
    # What a kernel wrote may hold every other break of lines.
    for number, line in enumerate(text.split("\n") if text else (), 1):
        try:
            record = json.loads(line)
        except RecursionError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        if not _is_record(record):
            raise ValueError(f"{path}:{number}: no record of a recording")
        records.append(record)
    return records


def _is_record(record: Any) -> bool:
    if not isinstance(record, dict) or "op" not in record or "sec" not in record:
        return False
    content = record.get("content")
    of_file = isinstance(record.get("path"), str) and (content is None or isinstance(content, str))
    return record["op"] != "tree" or of_file


def contents(records: Sequence[Record]) -> dict[str, str]:
    """The files of the first tree that was recorded with plain mount options, by path."""
    found: dict[str, str] = {}
    for record in records:
        if record["op"] == "tree" and not record.get("mount") and record.get("content") is not None:
            found.setdefault(record["path"], record["content"])
        elif found and record["op"] != "tree":
            break
    return found


def refused(record: Record) -> str | None:
    """The name of the error that the kernel answered with."""
    name = record.get("errno")
    return str(name) if name else None
