# SPDX-License-Identifier: Apache-2.0
"""What a program logs of faults of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.campaign.trouble.verdicts import Kind, Violation


def faults(log: Path, who: str) -> Iterator[Violation]:
    """The records of a log that tell of a fault of the program's own.

    :param log: a file; one that is not there has none.
    :param who: whose log it is, for people.
    """
    said = log.read_text(errors="replace") if log.exists() else ""
    # The lines of a traceback are indented.
    for record in re.split(r"^(?=\S)", said, flags=re.MULTILINE):
        if "unexpectedly" in record or "Traceback" in record:
            yield Violation(Kind.FAULT, f"{who} logs {record}")
