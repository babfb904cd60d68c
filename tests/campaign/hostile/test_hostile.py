# SPDX-License-Identifier: Apache-2.0
"""Hostile input of every kind harms no VM of others, and does not keep the agent from its work."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.campaign.hostile import table
from tests.campaign.hostile.campaign import Campaign
from tests.campaign.hostile.families import FAMILIES
from tests.campaign.hostile.inputs import Family, Input, Result

FEWEST = 200

BATCHES = [
    pytest.param(family, inputs, id=f"{family.name}-{name}".replace(" ", "-"))
    for family in FAMILIES
    for name, inputs in family.batches().items()
]


@pytest.mark.parametrize(("family", "inputs"), BATCHES)
def test_no_harm_is_done(campaign: Campaign, family: Family, inputs: list[Input]) -> None:
    outcomes = campaign.try_batch(family, inputs)
    harmed = [table.described(one) for one in outcomes if one.result is Result.HARMED]
    assert not harmed, "\n".join(harmed)


def test_the_campaign_is_large_and_every_input_has_a_name_of_its_own() -> None:
    names = Counter((family.name, one.name) for family in FAMILIES for one in family.inputs)
    assert len(names) >= FEWEST
    assert max(names.values()) == 1
