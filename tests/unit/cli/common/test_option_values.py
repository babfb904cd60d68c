# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse

import pytest

from vmqos.cli.common.option_values import seconds, size, whole_number


def test_numbers_that_are_allowed_are_taken() -> None:
    assert [whole_number(0)(text) for text in ("0", "17", "017")] == [0, 17, 17]
    assert [seconds(0.1, 60)(text) for text in ("0.1", ".5", "2", "3.", "60")] == [0.1, 0.5, 2.0, 3.0, 60.0]


@pytest.mark.parametrize("text", ["abc", "", "1.5", "0x10", "-1", "1_0", " 1", "+1", "\u0661", "1" * 5000])
def test_what_is_no_whole_number_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="a whole number from 0 up is allowed") as refused:
        whole_number(0)(text)
    assert text in str(refused.value)


def test_a_whole_number_beyond_the_greatest_one_is_refused_with_what_is_allowed() -> None:
    assert whole_number(1, 20)("20") == 20
    told = "21 is more than 20: a whole number from 1 to 20 is allowed"
    with pytest.raises(argparse.ArgumentTypeError, match=told):
        whole_number(1, 20)("21")


@pytest.mark.parametrize(
    "text", ["abc", "", "1s", "nan", "inf", "0", "-3", "61", "1_0", " 1", "+1", "\u0661", "1" * 5000]
)
def test_what_is_no_length_of_time_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"a number of seconds from 0\.1 to 60 is allowed") as refused:
        seconds(0.1, 60)(text)
    assert text in str(refused.value)


@pytest.mark.parametrize(("text", "value"), [("6M", 6 << 20), ("64KiB", 65536), ("4096", 4096), ("1 g", 1 << 30)])
def test_sizes_have_units(text: str, value: int) -> None:
    assert size("4K", "16G")(text) == value


@pytest.mark.parametrize("text", ["much", "", "1_0M", "\u0661M", "64\u212a", "1.5M", "-4K", "9" * 5000, "4095", "17G"])
def test_what_is_no_size_that_is_allowed_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is no size|is not between 4K and 16G"):
        size("4K", "16G")(text)
