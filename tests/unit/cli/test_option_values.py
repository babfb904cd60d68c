# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse

import pytest

from vmqos.cli.option_values import seconds, whole_number


def test_numbers_that_are_allowed_are_taken() -> None:
    assert [whole_number(0)(text) for text in ("0", "17")] == [0, 17]
    assert [seconds(0.1, 60)(text) for text in ("0.1", "2", "60")] == [0.1, 2.0, 60.0]


@pytest.mark.parametrize("text", ["abc", "", "1.5", "0x10", "-1"])
def test_what_is_no_whole_number_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="a whole number from 0 up is allowed") as refused:
        whole_number(0)(text)
    assert text in str(refused.value)


@pytest.mark.parametrize("text", ["abc", "", "1s", "nan", "inf", "0", "-3", "61"])
def test_what_is_no_length_of_time_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"a number of seconds from 0\.1 to 60 is allowed") as refused:
        seconds(0.1, 60)(text)
    assert text in str(refused.value)
