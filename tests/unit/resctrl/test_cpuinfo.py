# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from vmqos.resctrl import cpuinfo

ONE, OTHER = "processor\t: 0\nmodel\t\t: 79", "processor\t: 1\nmodel\t\t: 85"


@pytest.mark.parametrize(
    ("text", "first"), [(f"{ONE}\n\n{OTHER}\n\n", ONE), (f"{ONE}\n", f"{ONE}\n"), (f"\n\n{OTHER}\n", ""), ("", "")]
)
def test_the_first_cpu_ends_at_the_first_empty_line(tmp_path: Path, text: str, first: str) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert cpuinfo.first_cpu(str(tmp_path)) == first.encode()


def test_no_more_is_read_than_a_cpu_has(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_bytes(b"\xff" * (1 << 20))
    assert cpuinfo.first_cpu(str(tmp_path)) == b"\xff" * (1 << 16)


def test_where_proc_tells_nothing_the_caller_is_told_why(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cpuinfo.first_cpu(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (f"{ONE}\nvmx flags\t: ept\nflags\t\t: fpu cat_l3 \nbugs\t\t: mds\n\nflags: sse\n", {"fpu", "cat_l3"}),
        (f"{ONE}\n\nflags\t: fpu\n", set()),
        ("CPU implementer\t: 0x41\n", set()),
        (None, set()),
    ],
    ids=["they are told", "another CPU's", "Arm", "nothing"],
)
def test_flags_are_words_of_the_first_cpu(tmp_path: Path, text: str | None, flags: set[str]) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert cpuinfo.flags(str(tmp_path)) == flags
