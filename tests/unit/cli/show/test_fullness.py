# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.cli.show import fullness
from vmqos.cli.show.fullness import Fill
from vmqos.cli.show.terminal import Terminal

PLAIN, FANCY = Terminal(False, 80), Terminal(True, 80)


def test_a_fill_is_told_where_ways_and_both_sizes_are_known() -> None:
    held = {0: 5.0, 1: None, 2: 7.0, 4: 9.0}
    ways = {4: 3, 0: 2, 1: 2, 2: 0, 3: 2}
    sizes = {0: 110, 1: 110, 2: 110, 3: 110, 4: 99}
    assert fullness.fills(held, ways, dict.fromkeys(range(5), 11), sizes) == (Fill(0, 5.0, 20), Fill(4, 9.0, 27))
    assert fullness.fills(held, ways, {}, sizes) == ()
    assert fullness.fills(held, ways, dict.fromkeys(range(5), 11), {}) == ()


@pytest.mark.parametrize(
    ("held", "percent"), [(0, "0%"), (499, "50%"), (996, "99%"), (999, "99%"), (1000, "100%"), (1500, "150%")]
)
def test_only_what_is_full_is_told_as_full(held: int, percent: str) -> None:
    assert Fill(0, held, 1000).percent == percent


def test_the_fullest_cache_is_the_one_with_the_greatest_share() -> None:
    found = [Fill(0, 50, 100), Fill(1, 40, 50), Fill(2, 80, 100)]
    assert fullness.fullest(found) == found[1]
    assert fullness.told(found, True) == "1:80%"
    assert fullness.told(found[:1], False) == "50%"
    assert fullness.told([], True) == ""


@given(st.integers(0, 3000), st.integers(1, 12), st.sampled_from([PLAIN, FANCY]))
def test_a_bar_is_as_wide_as_it_should_be_and_no_emptier_for_more(held: int, width: int, terminal: Terminal) -> None:
    drawn = fullness.bar(Fill(0, held, 1000), width, terminal)
    assert len(drawn) == width
    assert terminal.fancy or drawn.isascii()
    more = fullness.bar(Fill(0, held + 100, 1000), width, terminal)
    assert more.count("=") >= drawn.count("=")


def test_lines_tell_every_cache_with_its_numbers() -> None:
    found = [Fill(0, 6186598, 6 << 20), Fill(1, 0, 6 << 20)]
    assert fullness.lines(found, PLAIN).split("\n") == [
        "cache 0  ==========   98%, 5.9 MiB of 6 MiB",
        "cache 1  ----------    0%, 0 B of 6 MiB",
    ]
    assert fullness.plain(found) == "0=6186598/6291456;1=0/6291456"
