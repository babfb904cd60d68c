# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.unit.local_api import examples
from tests.unit.local_api.examples import cache, group, vm_group
from vmqos.cli.show import map_rows, terminal, way_map
from vmqos.cli.show.terminal import Terminal


def picture(
    caches: list[Any], vms: list[Any] | None = None, width: int = 80, fancy: bool = False, **options: Any
) -> str:
    screen = Terminal(fancy=fancy, width=width)
    return way_map.draw(map_rows.build(caches, vms or [], **options), screen).plain


EXPECTED = """\
L3 cache 0, 11 ways x 1.5 MiB = 16.5 MiB, CPUs 0
                    way  10 9  8  7  6  5  4  3  2  1  0   ways     size  mask
  X  db-1                .  .  .  .  .  X  X  X  X  .  .      4    6 MiB    3c
  W  web-1               .  .  .  .  .  .  .  .  .  W  W      2    3 MiB     3
  7  class ways2, 1 VM   .  .  .  7  7  .  .  .  .  .  .      2    3 MiB    c0
  =  default group       =  =  =  =  =  .  .  .  .  .  .      5  7.5 MiB   7c0
  ~  also filled by I/O  ~  ~  .  .  .  .  .  .  .  .  .      2    3 MiB   600
     3 ways left to promise exclusively

 A  a letter: one VM's own    1  a digit: a class, VMs' cap in the shared pool
 =  default group    ~  I/O devices fill it too"""


def test_a_cache_is_drawn_as_a_line_a_group_under_the_numbers_of_the_ways() -> None:
    assert picture(examples.caches()[:1], examples.vms()) == EXPECTED


def test_the_fancy_picture_differs_in_ornament_alone() -> None:
    fancy = picture(examples.caches(), examples.vms(), fancy=True)
    plain = (
        fancy.replace("\N{MULTIPLICATION SIGN}", "x").replace(" · C", ", C").replace(" · 1", ", 1").replace("·", ".")
    )
    assert plain == picture(examples.caches(), examples.vms())


@pytest.mark.parametrize("ways", [1, 4, 8, 10, 11, 12, 15, 16, 20, 32])
@pytest.mark.parametrize("width", [80, 100, 132])
def test_caches_of_all_kinds_fit_the_terminal(ways: int, width: int) -> None:
    top = f"{1 << (ways - 1):x}"
    groups = [
        group("", "default", f"{(1 << ways) - 1:x}"),
        vm_group(examples.WEB, top, "a-very-long-name-for-a-virtual-machine-数据库主机"),
    ]
    caches = [cache(number, groups, ways=ways, shareable_bits="0") for number in range(2)]
    lines = picture(caches, width=width).splitlines()
    drawn = [line for line in lines if "not alone" not in line]
    assert max(map(cell_len, drawn)) <= width
    row = next(line for line in lines if line.startswith("  W"))
    assert row.count("W") == 2


@pytest.mark.parametrize(("ways", "width"), [(20, 80), (32, 80), (32, 100), (64, 100)])
def test_numbers_of_ways_stand_upright_where_they_have_no_room_side_by_side(ways: int, width: int) -> None:
    groups = [group("", "default", "1"), vm_group(examples.WEB, f"{1 << (ways - 1):x}", "vm")]
    shown = picture([cache(0, groups, ways=ways, shareable_bits="0")], width=width)
    lines = [line.ljust(width) for line in shown.splitlines()]
    column = next(line for line in lines if line.startswith("  W")).index("W", 6)
    assert lines[1][column] + lines[2][column] == str(ways - 1)
    column = next(line for line in lines if line.startswith("  =")).index("=", 6)
    assert lines[1][column] + lines[2][column] == " 0"


def test_very_narrow_terminals_lose_the_figures_and_keep_the_map() -> None:
    shown = picture(examples.caches(), examples.vms(), width=40)
    assert "MiB    3c" not in shown
    assert "X X X X" in shown or "XXXX" in shown


def test_unknown_sizes_leave_no_gap_in_the_words() -> None:
    groups = [group("", "default", "7ff")]
    shown = picture([cache(0, groups, way_bytes=None, size_bytes=None, cpus="", shareable_bits="0")])
    assert shown.startswith("L3 cache 0, 11 ways, CPUs none\n")


@pytest.mark.parametrize(
    ("free", "run", "sentence"),
    [
        (0, 0, "no ways left to promise exclusively"),
        (1, 1, "1 way left to promise exclusively"),
        (5, 5, "5 ways left to promise exclusively\n"),
        (5, 3, "5 ways left to promise exclusively, at most 3 side by side"),
    ],
)
def test_what_is_left_is_said_below_the_map(free: int, run: int, sentence: str) -> None:
    groups = [group("", "default", "7ff")]
    assert sentence in picture([cache(0, groups, free_ways=free, largest_free_run=run)])


def test_a_broken_promise_is_said_below_the_map() -> None:
    groups = [group("", "default", "7fe"), vm_group(examples.WEB, "3", "web")]
    assert "! web is not alone: default group may fill its way 1 too" in picture([cache(0, groups)])


def test_the_legend_explains_the_symbols_that_occur_and_no_others() -> None:
    shown = picture([cache(0, [group("", "default", "7ff")], shareable_bits="0")])
    assert "=  default group" in shown
    assert "I/O" not in shown
    assert "class" not in shown


def test_no_caches_are_no_picture() -> None:
    assert picture([]) == ""


@given(st.text(max_size=60), st.integers(60, 120), st.booleans())
def test_no_name_breaks_the_picture(name: str, width: int, fancy: bool) -> None:
    groups = [group("", "default", "7fc"), vm_group(examples.WEB, "3", name), group(f"x{name}", "foreign", "700")]
    shown = picture([cache(0, groups)], width=width, fancy=fancy)
    assert all(line.isprintable() for line in shown.split("\n"))
    rows = [line for line in shown.split("\n") if line[2:3] in ("W", "#", "=")]
    ends = {cell_len(line) for line in rows}
    assert len(ends) == 1


def test_colours_tell_vms_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream, screen = io.StringIO(), Terminal(fancy=True, width=80)
    terminal.show(way_map.draw(map_rows.build(examples.caches(), examples.vms()), screen), stream, screen)
    cells = {part.split("m", 1)[0] for part in stream.getvalue().split("\x1b[") if part.endswith((" X ", " W "))}
    assert len(cells) == 2


EVERYTHING = """\
L3 cache 0, 11 ways x 1.5 MiB = 16.5 MiB, CPUs 0
               way  10 9  8  7  6  5  4  3  2  1  0   ways  bandwidth     size
  W  web-1, data    .  .  .  .  .  W  W  W  W  .  .      4       50 %    6 MiB
  W  web-1, code    .  .  .  .  .  .  .  .  .  W  W      2       50 %    3 MiB
  x  lock table     .  x  .  .  .  .  .  .  .  .  .      1             1.5 MiB
  =  default group  =  .  =  =  =  .  .  .  .  .  .      4               6 MiB
     3 ways left to promise exclusively

L2 caches 0-4, 8 ways x 1.5 MiB = 12 MiB each, CPUs 0
               way  7  6  5  4  3  2  1  0   ways  bandwidth     size
  =  default group  =  =  =  =  =  =  =  =      8              12 MiB
     3 ways left to promise exclusively in each

 A  a letter: one VM's own    =  default group    x  pseudo-locked memory"""


def test_code_and_data_limits_locks_and_the_many_l2_caches_are_told_where_they_are() -> None:
    vm = vm_group(examples.WEB, "3f", "web-1") | {"code_mask": "3", "data_mask": "3c", "bandwidth": 50}
    groups = [group("", "default", "5c0"), vm, group("vmqos.lock-table", "foreign", "200", mode="pseudo-locked")]
    small = [cache(number, [group("", "default", "ff")], ways=8, resource="L2", cpus="0") for number in range(5)]
    caches = [cache(0, groups, bandwidth_unit="%"), *small]
    shown = picture([one | {"shareable_bits": "0"} for one in caches])
    assert shown == EVERYTHING


def test_vms_below_the_picture_are_all_named_however_many_they_are() -> None:
    uuids = [f"{number:08x}-0f0b-4a55-9c1e-2b6d7a90c3aa" for number in range(40)]
    groups = [group("", "default", "7ff"), *(vm_group(uuid, "7ff", "x") for uuid in uuids)]
    vms = [
        examples.vm(uuid, f"web-{number:02}", group=f"vmqos.{uuid}", masks={"1": "3"})
        for number, uuid in enumerate(uuids)
    ]
    shown = picture([cache(0, groups, shareable_bits="0")], vms)
    assert max(map(cell_len, shown.splitlines())) <= 80
    listed = " ".join(shown.split())
    assert f"VMs with ways on other caches only: {', '.join(f'web-{number:02}' for number in range(40))}" in listed
    assert "     VMs with ways" in shown
