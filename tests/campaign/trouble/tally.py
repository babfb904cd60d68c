# SPDX-License-Identifier: Apache-2.0
"""What came of several runs, kept in a file: a long campaign is played in portions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.campaign.trouble.story import Outcome
from tests.campaign.trouble.verdicts import Kind, Violation


def read(file: Path) -> dict[str, Outcome]:
    """What came of earlier runs, by machine."""
    found = {}
    for machine, fields in json.loads(file.read_text()).items():
        violations = [Violation(Kind(kind), text) for kind, text in fields.pop("violations")]
        places = set(fields.pop("places"))
        found[machine] = Outcome(**fields, violations=violations, places=places)
    return found


def write(file: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Keep what came of all runs so far."""
    told = {}
    for machine, outcome in outcomes.items():
        violations = [(one.kind.value, one.text) for one in outcome.violations]
        told[machine] = {**vars(outcome), "violations": violations, "places": sorted(outcome.places)}
    file.write_text(json.dumps(told))
