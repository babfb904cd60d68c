# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.cli.show import units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, ""),
        (0, "0 B"),
        (1023, "1023 B"),
        (98304, "96 KiB"),
        (1572864, "1.5 MiB"),
        (3 << 30, "3 GiB"),
        (5 << 40, "5120 GiB"),
    ],
)
def test_sizes_read_in_binary_units(count: int | None, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (0, "0 s"), (59.9, "59 s"), (60, "1 min"), (7505, "2 h 5 min"), (90061, "1 d 1 h"), (86400, "1 d")],
)
def test_durations_read_in_their_two_largest_units(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("masks", "ways", "schemata"),
    [
        ({}, "-", ""),
        ({"0": "3"}, "2", "0=3"),
        ({"0": "3", "1": "c0"}, "2", "0=3;1=c0"),
        ({"10": "f", "2": "3"}, "2:2 10:4", "2=3;10=f"),
    ],
)
def test_masks_read_as_ways_by_cache(masks: dict[str, str], ways: str, schemata: str) -> None:
    assert units.ways_by_cache(masks) == ways
    assert units.masks_by_cache(masks) == schemata


@pytest.mark.parametrize(
    ("amounts", "text"), [({}, "nothing"), ({"A": 1}, "A=1"), ({"CLASSES": 1, "WAYS": 2}, "WAYS=2, CLASSES=1")]
)
def test_amounts_of_resources_read_as_a_list(amounts: dict[str, int], text: str) -> None:
    assert units.amounts(amounts) == text


def test_runs_of_ways_are_drawn_together() -> None:
    assert units.way_list(0xE13) == "11-9 4 1-0"


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([1, 0, 2, 8, 8], "0-2,8"), ([5, 6, 9, 10], "5-6,9-10")]
)
def test_a_list_of_numbers_is_as_short_as_the_kernels(numbers: list[int], text: str) -> None:
    assert units.number_list(numbers) == text
    assert units.parse_number_list(text) == set(numbers)
