# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from vmqos.resctrl import exceptions, info
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem


@pytest.mark.parametrize(
    ("text", "locked"),
    [
        ("0=SSSSSSSSSSS;1=SSSSSSSSSSS", {}),
        ("0=SSSSSSSSSPP;1=SSSSSSSSSSS", {0: 0x3}),
        ("0=PP000000SSS;12=XHSE0PXHSE0", {0: 0x600, 12: 0x20}),
        ("3=", {}),
        ("", {}),
    ],
)
def test_each_letter_is_a_way_the_highest_first(tmp_path: Path, text: str, locked: dict[int, int]) -> None:
    (tmp_path / "info" / "L3").mkdir(parents=True)
    (tmp_path / "info" / "L3" / "bit_usage").write_text(f"{text}\n")
    found = info.read_pseudo_locked(Filesystem(str(tmp_path)), "L3")
    assert found == {cache: CapacityBitmask(bits) for cache, bits in locked.items()}


def test_a_kernel_that_does_not_tell_has_nothing_locked(tmp_path: Path) -> None:
    assert info.read_pseudo_locked(Filesystem(str(tmp_path)), "L3") == {}


@pytest.mark.parametrize("text", ["SSSS", "0=SS;SS", "x=PP"])
def test_a_text_of_another_form_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "info" / "L3").mkdir(parents=True)
    (tmp_path / "info" / "L3" / "bit_usage").write_text(text)
    with pytest.raises(exceptions.UnexpectedContent, match="bit_usage says"):
        info.read_pseudo_locked(Filesystem(str(tmp_path)), "L3")
