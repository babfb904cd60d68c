# SPDX-License-Identifier: Apache-2.0
"""Numbers and blanks in text as the kernel reads them (``lib/kstrtox.c``, ``strim``)."""

from __future__ import annotations

import errno
import os

_SPACE = " \t\n\v\f\r\xa0"
_DIGITS = "0123456789abcdef"


def refusal(code: int) -> OSError:
    """The error with which the simulated kernel refuses a system call."""
    return OSError(code, os.strerror(code))


def is_space(character: str) -> bool:
    """Whether the kernel's ``isspace`` holds for one character of Latin-1."""
    return character in _SPACE


def strip(text: str) -> str:
    """``text`` without blanks at either end (``strim``)."""
    return text.strip(_SPACE)


def digits(text: str, base: int) -> tuple[int, int]:
    """Read the digits at the beginning of ``text``.

    :return: the value and how many characters it took; 0 characters if there is no digit.
    """
    length = 0
    while length < len(text) and text[length].lower() in _DIGITS[:base]:
        length += 1
    return (int(text[:length], base) if length else 0), length


def _base_of(text: str, base: int) -> tuple[str, int]:
    """Resolve base 0 and skip ``0x`` (``_parse_integer_fixup_radix``)."""
    if base == 0:
        if not text.startswith("0"):
            return text, 10
        hexadecimal = text[1:2] in ("x", "X") and text[2:3].lower() in _DIGITS[:16] and text[2:3] != ""
        base = 16 if hexadecimal else 8
    if base == 16 and text[:2] in ("0x", "0X"):
        text = text[2:]
    return text, base


def unsigned(text: str, base: int, bits: int) -> int:
    """``kstrtoul`` and its kin: the whole text, one ``+`` before and one newline after allowed.

    :param base: 10, 16 or 0 (told by the prefix).
    :param bits: the width of the kernel's type.
    :raises OSError: ``EINVAL`` if it is no number, ``ERANGE`` if it does not fit.
    """
    text, base = _base_of(text.removeprefix("+"), base)
    value, length = digits(text, base)
    if value >= 1 << 64:
        raise refusal(errno.ERANGE)
    if not length or text[length:] not in ("", "\n"):
        raise refusal(errno.EINVAL)
    if value >= 1 << bits:
        raise refusal(errno.ERANGE)
    return value


def signed(text: str, base: int, bits: int) -> int:
    """``kstrtoint`` and its kin: as :func:`unsigned`, but one ``-`` is allowed.

    :raises OSError: ``EINVAL`` or ``ERANGE``, as :func:`unsigned`.
    """
    if text.startswith("-"):
        value = -unsigned(text[1:], base, 64) if text[1:2] != "+" else _invalid()
    else:
        value = unsigned(text, base, 64)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise refusal(errno.ERANGE)
    return value


def _invalid() -> int:
    raise refusal(errno.EINVAL)
