# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.agent.act import plan_steps
from vmqos.allocation import CreateGroup, Group, Layout, Split, Step, WriteMasks, WriteThrottles, caches
from vmqos.group_names import Owner
from vmqos.resctrl.bitmask import CapacityBitmask

WHOLE, CODE, DATA = CapacityBitmask(0x3F), CapacityBitmask(0x3), CapacityBitmask(0x3C)
APART, SAME = Split(CODE, DATA), Split(DATA, DATA)
L2 = caches.l2(5)
MASKS = [
    (WriteMasks("g", {0: WHOLE, 1: CODE}), ["L3:0=3f;1=3"], "give g the L3 ways 0=3f;1=3"),
    (
        WriteMasks("g", {0: WHOLE}, {0: APART}),
        ["L3CODE:0=3", "L3DATA:0=3c"],
        "give g the L3 ways 0=3f (code: L3 ways 0=3; data: L3 ways 0=3c)",
    ),
    (
        WriteMasks("", {0: DATA}, {0: SAME}),
        ["L3CODE:0=3c", "L3DATA:0=3c"],
        "give the default group the L3 ways 0=3c",
    ),
    (
        WriteMasks("g", {0: WHOLE, L2: CODE}),
        ["L3:0=3f", "L2:5=3"],
        "give g the L3 ways 0=3f and the L2 ways 5=3",
    ),
    (
        WriteMasks("g", {0: WHOLE, L2: DATA}, {L2: SAME}),
        ["L3:0=3f", "L2CODE:5=3c", "L2DATA:5=3c"],
        "give g the L3 ways 0=3f and the L2 ways 5=3c",
    ),
]


@pytest.mark.parametrize(("step", "lines", "words"), MASKS)
def test_masks_are_lines_of_schemata_and_words(step: WriteMasks, lines: list[str], words: str) -> None:
    assert plan_steps.lines(step) == lines
    assert plan_steps.describe(step) == words


def test_a_limit_is_told_as_schemata_has_it() -> None:
    assert (
        plan_steps.describe(WriteThrottles("g", {0: 50, 1: 100})) == "limit the memory bandwidth of g to MB:0=50;1=100"
    )


def test_what_steps_lead_to_is_foretold() -> None:
    before = Layout((Group("", Owner.DEFAULT, {0: WHOLE}, throttles={0: 100}),))
    steps: list[Step] = [
        CreateGroup("vmqos.shared-code2-data4-mb50"),
        WriteMasks("vmqos.shared-code2-data4-mb50", {0: WHOLE}, {0: APART}),
        WriteThrottles("vmqos.shared-code2-data4-mb50", {0: 50}),
    ]
    default, made = plan_steps.predict(before, steps).groups
    assert default == before.groups[0]
    assert (made.owner, made.masks, made.splits, made.throttles) == (Owner.CLASS, {0: WHOLE}, {0: APART}, {0: 50})
