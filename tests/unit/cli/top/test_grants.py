# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from vmqos.cli.show.terminal import Terminal
from vmqos.cli.top import grants
from vmqos.cli.top.data import Row

SPLIT = {"ways": {0: 6, 1: 6}, "code_ways": {0: 2, 1: 2}, "data_ways": {0: 4, 1: 4}, "ways_requested": 6}


@pytest.mark.parametrize(
    ("fields", "bar", "cell"),
    [
        ({"ways": {0: 3}}, "###........", "3"),
        (SPLIT, "####cc.....", "2c+4d"),
        (SPLIT | {"ways_requested": 8}, "####cc.....", "2c+4d/8"),
        (SPLIT | {"data_ways": {0: 4, 1: 3}}, "####cc.....", "0:2c+4d 1:2c+3d"),
        (SPLIT | {"code_ways": {0: 3, 1: 3}}, "####cc.....", "3c+4d"),
        ({"ways_requested": 6}, "...........", "0/6"),
    ],
)
def test_ways_for_code_and_for_data_are_told_apart(fields: dict[str, Any], bar: str, cell: str) -> None:
    row = Row(uuid="u", **fields)
    assert grants.ways(row) == cell
    assert grants.bar(row, 11, Terminal(False, 80)).plain == bar


@pytest.mark.parametrize(
    ("fields", "cell"),
    [
        ({}, "-"),
        ({"l2_ways": {3: 4, 7: 4}, "l2_ways_requested": 4}, "4"),
        ({"l2_ways": {3: 4, 7: 2}, "l2_ways_requested": 4}, "2/4"),
        ({"l2_ways_requested": 4}, "0/4"),
    ],
)
def test_of_l2_ways_the_fewest_count(fields: dict[str, Any], cell: str) -> None:
    assert grants.l2_ways(Row(uuid="u", **fields)) == cell


@pytest.mark.parametrize(
    ("fields", "cell"),
    [
        ({}, "-"),
        ({"is_limited": True}, "none"),
        ({"is_limited": True, "bandwidth": {"0": 60, "1": 60}, "bandwidth_unit": "%"}, "60 %"),
        ({"bandwidth": {"0": 125, "1": 250}, "bandwidth_unit": "MB/s"}, "0:125 MB/s 1:250 MB/s"),
    ],
)
def test_a_limit_is_what_is_in_force(fields: dict[str, Any], cell: str) -> None:
    assert grants.limit(Row(uuid="u", **fields)) == cell
