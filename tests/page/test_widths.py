# SPDX-License-Identifier: Apache-2.0
"""What is wider than its place on a phone, a tablet, a laptop and a large screen, with few VMs and with many."""

from __future__ import annotations

import pytest

from tests.page.browser import Browser
from tests.page.conftest import NAMES, OpenPage
from tests.page.filled import crowded, few
from tests.page.played_host import PlayedHost

WIDTHS = [390, 820, 1400, 1920]

OUTSIDE = """
// What is there for readers of the screen only has a pixel, wherever that is.
const seen = [...document.querySelectorAll('body *')].filter((one) => one instanceof HTMLElement || one.matches('svg'))
  .filter((one) => one.checkVisibility() && !one.closest('.unseen, .words, .skip'));
return seen.map((one) => [one, one.getBoundingClientRect()])
  .filter(([, box]) => box.width && (box.left < -0.5 || box.right > innerWidth + 0.5))
  .map(([one, box]) => `${one.tagName}.${one.className} ${one.textContent.slice(0, 40)} ${box.left} ${box.right}`);
"""

CUT = """
// Text that its box, or one around it, cuts off.
const seen = [...document.querySelectorAll('body bdi, body h1 span, body dd, body .value, body .full')]
  .filter((one) => one.checkVisibility() && one.textContent && !one.closest('.unseen, .words'));
function isCut(element) {
  const range = document.createRange();
  range.selectNodeContents(element);
  const text = range.getBoundingClientRect();
  for (let at = element; at !== document.body; at = at.parentElement) {
    const [style, box] = [getComputedStyle(at), at.getBoundingClientRect()];
    if (style.display === 'inline' || style.overflowX === 'visible') continue;
    if (text.right > box.right + 1 || text.bottom > box.bottom + 2 || at.scrollWidth > at.clientWidth + 1) return true;
  }
  return false;
}
return seen.filter(isCut).map((one) => [one.textContent, one.closest('[title]')?.title ?? null]);
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("number", [4, 60, 200])
def test_nothing_is_outside_of_the_screen(number: int, width: int, host: PlayedHost, open_page: OpenPage) -> None:
    crowded(host, number)
    browser = open_page("light", (width, 900))
    browser.all(NAMES)[0].click()
    assert browser.run(OUTSIDE) == []
    assert browser.run("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_cut_can_be_read_nevertheless(width: int, host: PlayedHost, open_page: OpenPage) -> None:
    crowded(host, 20)
    long = "a-name-without-any-blank-" * 9
    host.add(long, 1, flavor=long)
    browser = open_page("light", (width, 900))
    found = browser.run(CUT)
    assert long in [text for text, _ in found], "the test sees what is cut"
    for text, title in found:
        assert title is not None and text in title, (text, title)
    # Without a pointer: who unfolds the VM reads it all.
    (name,) = [one for one in browser.all(NAMES) if one.text.startswith("a-name")]
    name.click()
    assert browser.run("return arguments[0].scrollHeight <= arguments[0].clientHeight + 1", name)
    (details,) = browser.all(".details:not([hidden])")
    assert details.text.count(long) == 2


@pytest.mark.parametrize("width", WIDTHS)
def test_names_that_differ_at_their_ends_are_told_apart(width: int, host: PlayedHost, open_page: OpenPage) -> None:
    crowded(host, 20)
    browser = open_page("light", (width, 900))
    cut = browser.run(CUT)
    assert [text for text, _ in cut if text.startswith(("kubernetes", "customer", "telco"))] == []
    # Nor in the lines below the pictures; in the pictures themselves, a long name has a block's width.
    inside = browser.run(
        "return [...document.querySelectorAll('.key bdi')].filter((one) => one.scrollHeight > one.clientHeight + 1)"
        ".map((one) => one.textContent)"
    )
    assert inside == []


@pytest.mark.parametrize(("width", "used"), [(390, 366), (820, 788), (1400, 1368), (1920, 1888), (3000, 2400)])
def test_the_page_is_as_wide_as_the_screen_up_to_where_rows_are_too_long(
    width: int, used: int, host: PlayedHost, open_page: OpenPage
) -> None:
    few(host)
    browser = open_page("light", (width, 900))
    boxes = browser.run(
        "return ['#vms', '#ways', '#host'].map((one) => document.querySelector(one).getBoundingClientRect())"
        ".map((box) => [box.left, box.width])"
    )
    for left, wide in boxes:
        assert wide == pytest.approx(used, abs=2)
        assert left == pytest.approx((width - used) / 2, abs=2)


@pytest.mark.parametrize("width", WIDTHS)
def test_figures_of_a_group_stand_apart_and_below_each_other(width: int, host: PlayedHost, open_page: OpenPage) -> None:
    crowded(host, 8)
    browser = open_page("light", (width, 900))
    lines = browser.run(
        """
        const box = (element) => element.getBoundingClientRect().toJSON();
        return [...document.querySelectorAll('.cache:first-child .key li')].filter((one) => one.lastChild.textContent)
          .map((one) => [box(one.querySelector('.dim')), box(one.querySelector('.full'))]);
        """
    )
    assert len(lines) == 4
    for facts, full in lines:
        assert facts["right"] + 4 <= full["left"] or facts["top"] >= full["bottom"] - 4
    for side, which in (("left", 0), ("right", 1)):
        assert len({round(line[which][side]) for line in lines}) == 1


@pytest.mark.parametrize("width", [1400, 1920])
def test_figures_of_one_row_stand_on_one_line(width: int, host: PlayedHost, open_page: OpenPage) -> None:
    host.add("mail-1")
    browser = open_page("light", (width, 900))
    middles = browser.run(
        "return [...document.querySelectorAll('#vms .badge, #vms .value')].map((one) => one.getBoundingClientRect())"
        ".map((box) => (box.top + box.bottom) / 2)"
    )
    assert len(middles) == 3 and max(middles) - min(middles) < 1.5


def markers(browser: Browser) -> set[float]:
    """How wide the triangles before the names are."""
    widths = browser.run(
        "return [...document.querySelectorAll('#vms .name')].map((one) => "
        "one.querySelector('bdi').getBoundingClientRect().left - one.getBoundingClientRect().left)"
    )
    return {round(width, 1) for width in widths}


def test_long_names_begin_where_short_ones_do(host: PlayedHost, open_page: OpenPage) -> None:
    crowded(host, 20)
    browser = open_page("light", (1400, 900))
    assert len(markers(browser)) == 1


@pytest.mark.parametrize(
    ("width", "packages", "rows"),
    [
        (390, False, [1, 1, 1, 1, 1]),
        (820, False, [2, 2, 1]),
        (1400, False, [2, 3]),
        (1920, False, [5]),
        (390, True, [1, 1, 1, 1, 1, 1, 1, 1]),
        (820, True, [2, 2, 2, 2]),
        (1400, True, [2, 3, 3]),
        (1920, True, [4, 4]),
    ],
)
def test_rows_of_charts_are_full(
    width: int, packages: bool, rows: list[int], host: PlayedHost, open_page: OpenPage
) -> None:
    crowded(host, 4)
    host.packages = packages
    browser = open_page("light", (width, 900))
    browser.all(NAMES)[0].click()
    boxes = browser.run(
        "return [...document.querySelectorAll('.charts > figure')].map((one) => one.getBoundingClientRect())"
        ".map((box) => [box.top, box.left, box.right])"
    )
    left, right = browser.run(
        "const box = document.querySelector('.charts').getBoundingClientRect(); return [box.left, box.right]"
    )
    tops = sorted({top for top, _, _ in boxes})
    lines = [[box for box in boxes if box[0] == top] for top in tops]
    assert [len(line) for line in lines] == rows
    for line in lines:
        assert (line[0][1], line[-1][2]) == pytest.approx((left, right), abs=1)
    # The charts of a row stand side by side, however many lines their captions have.
    charts = browser.run(
        "return [...document.querySelectorAll('.charts .chart')].map((one) => one.getBoundingClientRect().top)"
    )
    assert len({round(top) for top in charts}) == len(rows)
