# SPDX-License-Identifier: Apache-2.0
"""Numbers are read as the kernel reads them."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.simulator.kernel.numbers import signed, strip, unsigned


@pytest.mark.parametrize(
    ("text", "base", "value"),
    [
        ("7", 16, 7),
        ("0x7", 16, 7),
        ("0X7", 16, 7),
        ("F", 16, 15),
        ("00f", 16, 15),
        ("+5", 10, 5),
        ("050", 10, 50),
        ("5\n", 10, 5),
        ("0x10", 0, 16),
        ("010", 0, 8),
        ("10", 0, 10),
    ],
)
def test_a_number_is_read_whole(text: str, base: int, value: int) -> None:
    assert unsigned(text, base, 64) == value


@pytest.mark.parametrize(
    ("text", "base", "bits", "code"),
    [
        ("", 10, 32, errno.EINVAL),
        ("-1", 10, 32, errno.EINVAL),
        ("3x", 16, 64, errno.EINVAL),
        ("+", 10, 32, errno.EINVAL),
        ("++1", 10, 32, errno.EINVAL),
        ("0x", 0, 32, errno.EINVAL),
        ("5\n\n", 10, 32, errno.EINVAL),
        ("08", 0, 32, errno.EINVAL),
        ("4294967296", 10, 32, errno.ERANGE),
        ("1ffffffffffffffff", 16, 64, errno.ERANGE),
        ("99999999999999999999x", 10, 64, errno.ERANGE),
    ],
)
def test_anything_else_is_refused(text: str, base: int, bits: int, code: int) -> None:
    with pytest.raises(OSError) as refused:
        unsigned(text, base, bits)
    assert refused.value.errno == code


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_every_signed_number_of_its_width_is_read(value: int) -> None:
    assert signed(str(value), 0, 32) == value


@pytest.mark.parametrize("value", [1 << 31, -(1 << 31) - 1])
def test_a_signed_number_beyond_its_width_is_out_of_range(value: int) -> None:
    with pytest.raises(OSError) as refused:
        signed(str(value), 0, 32)
    assert refused.value.errno == errno.ERANGE


def test_a_minus_takes_no_plus() -> None:
    with pytest.raises(OSError):
        signed("-+5", 0, 32)


def test_blanks_are_the_kernels() -> None:
    assert strip(" \t7\r\xa0") == "7"
