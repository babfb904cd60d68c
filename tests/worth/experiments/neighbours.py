# SPDX-License-Identifier: Apache-2.0
"""Who slows whom, as insight says it of generated mixes, natively: no guest (:mod:`tests.worth.neighbours`)."""

from __future__ import annotations

from typing import Any

from tests.worth.neighbours import campaign, table
from tests.worth.neighbours.judge import SIGHTS


def run() -> dict[str, Any]:
    """Counts by sight, and the seconds from each onset to the moment at which the culprit was named."""
    found, others = campaign.whole(), campaign.whole(campaign.OTHER_SEEDS, quiet=0)
    return {
        "first_seed": campaign.TEST_SEEDS,
        "sights": {sight: table.figures(found, sight) | {"seconds": table.seconds(found, sight)} for sight in SIGHTS},
        "others": {"first_seed": campaign.OTHER_SEEDS, **{sight: table.figures(others, sight) for sight in SIGHTS}},
    }
