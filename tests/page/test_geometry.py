# SPDX-License-Identifier: Apache-2.0
"""Where things are drawn: nothing lies over anything else, on screens of every width."""

from __future__ import annotations

from typing import Any

import pytest

from tests.page.browser import Browser
from tests.page.conftest import NAMES, OpenPage, Pause
from tests.page.filled import rich, troubled
from tests.page.played_host import PlayedHost

COLUMNS = """
return [...document.querySelectorAll('#vms thead th')].map((cell) => cell.getBoundingClientRect())
  .filter((box) => box.width).map((box) => [box.left, box.width]);
"""

ROWS = """
return [...document.querySelectorAll('#vms tbody')].map((body) => [...body.rows[0].cells]
  .map((cell) => cell.getBoundingClientRect()).filter((box) => box.width).map((box) => [box.left, box.width]));
"""

PIECES = """
// Each word where it is drawn, and each thing that is a box: a line, a bar, a badge, a button.
const root = document.querySelector(arguments[0]);
const found = [];
// What a box with hidden overflow cuts off is not drawn.
let number = 0;
function drawn(element, name, {left, top, right, bottom}) {
  for (let at = element; at !== root; at = at.parentElement) {
    if (getComputedStyle(at).overflowX === 'visible') continue;
    const box = at.getBoundingClientRect();
    [left, right] = [Math.max(left, box.left), Math.min(right, box.right)];
    [top, bottom] = [Math.max(top, box.top), Math.min(bottom, box.bottom)];
  }
  found.push([name, left, top, right, bottom, number]);
}
const seen = (element) => element.checkVisibility() && !element.closest('.unseen, .words, [hidden]');
const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode;
  if (!seen(node.parentElement)) continue;
  for (const match of node.textContent.matchAll(/\\S+/g)) {
    const range = document.createRange();
    range.setStart(node, match.index);
    range.setEnd(node, match.index + match[0].length);
    number += 1;
    for (const box of range.getClientRects()) drawn(node.parentElement, match[0], box);
  }
}
for (const element of root.querySelectorAll('svg, .meter')) {
  if (!seen(element)) continue;
  number += 1;
  drawn(element, element.classList[0], element.getBoundingClientRect());
}
return found.filter(([, left, top, right, bottom]) => right - left > 1 && bottom - top > 1);
"""

WIDTHS = [320, 360, 390, 480, 481, 600, 767, 800, 1000, 1120, 1400, 1920]

SLACK = 1.0
"""Pixels by which boxes may touch: those of letters are rounded."""


def full(host: PlayedHost) -> None:
    """VMs of every kind: in trouble, of one name, with one cache full and nothing on the other. All are counted."""
    troubled(host)
    host.unavailable = ""
    for number in range(2):
        host.add("twin-of-a-long-name", 0, since=1.0 + number)
    uneven = host.vms[0]["uuid"]
    host.held[uneven] = {"0": 3_100_000, "1": 0}


def overlapping(pieces: list[list[Any]]) -> list[tuple[str, str]]:
    """The pairs of pieces that lie over each other."""
    found = []
    for index, (name, left, top, right, bottom, number) in enumerate(pieces):
        for other, left_2, top_2, right_2, bottom_2, number_2 in pieces[index + 1 :]:
            # A word whose end is cut off has a box with it and one without.
            if number == number_2:
                continue
            wide = min(right, right_2) - max(left, left_2)
            high = min(bottom, bottom_2) - max(top, top_2)
            # Letters of two lines may come near each other: their boxes have room for accents.
            if wide > SLACK and high > 4:
                found.append((name, other))
    return found


def outside(pieces: list[list[Any]], width: int) -> list[str]:
    """The pieces that are cut by the edges of the screen."""
    return [name for name, left, _, right, *_ in pieces if left < -SLACK or right > width + SLACK]


def approximately(boxes: list[list[float]]) -> list[list[float]]:
    return [pytest.approx(box, abs=0.51) for box in boxes]


def unfold(browser: Browser, number: int) -> None:
    browser.run("document.querySelectorAll(arguments[0])[arguments[1]].click()", NAMES, number)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("fill", [full, rich])
def test_columns_keep_their_places_when_a_vm_is_unfolded(
    fill: Any, width: int, host: PlayedHost, open_page: OpenPage, pause: Pause
) -> None:
    fill(host)
    browser = open_page("light", (width, 800))
    # What is measured may not change between two looks.
    pause()
    columns, rows = browser.run(COLUMNS), browser.run(ROWS)
    for number in (0, len(host.vms) - 1):
        unfold(browser, number)
        assert browser.run(COLUMNS) == approximately(columns)
        for row, before in zip(browser.run(ROWS), rows, strict=True):
            assert row == approximately(before)
            assert row == approximately(columns)
    details = browser.run("return document.querySelector('.details:not([hidden])').getBoundingClientRect().toJSON()")
    table = browser.run("return document.querySelector('#vms').getBoundingClientRect().toJSON()")
    assert (details["left"], details["width"]) == pytest.approx((table["left"], table["width"]), abs=1)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("fill", [full, rich])
def test_nothing_lies_over_anything_else(
    fill: Any, width: int, host: PlayedHost, open_page: OpenPage, pause: Pause
) -> None:
    fill(host)
    browser = open_page("light", (width, 800))
    pause()
    unfold(browser, 0)
    unfold(browser, len(host.vms) - 1)
    for part in ("body > header", "#attention", "#host", "#vms"):
        pieces = browser.run(PIECES, part)
        assert part == "#attention" or pieces
        assert overlapping(pieces) == []
        assert outside(pieces, width) == []


def test_a_screen_that_is_turned_has_the_details_over_all_columns(host: PlayedHost, open_page: OpenPage) -> None:
    full(host)
    browser = open_page("light", (1400, 800))
    unfold(browser, 0)
    for width, columns in ((1400, 8), (390, 3), (800, 5), (600, 4)):
        browser.emulate("light", (width, 800))
        browser.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        cells = browser.run("return document.querySelector('.details:not([hidden])').cells[0].colSpan")
        assert (len(browser.run(COLUMNS)), cells) == (columns, columns)


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_the_headings_of_the_list_stay_on_the_screen(width: int, host: PlayedHost, open_page: OpenPage) -> None:
    for number in range(60):
        host.add(f"worker-{number:02}")
    browser = open_page("light", (width, 800))
    browser.run("document.querySelectorAll('#vms tbody')[40].scrollIntoView()")
    header, heading, row, on_top = browser.run(
        """
        const box = (selector) => document.querySelector(selector).getBoundingClientRect();
        const cell = box('#vms thead th');
        return [box('body > header').bottom, cell.top, box('#vms tbody:nth-of-type(41)').top,
          document.querySelector('#vms thead').contains(document.elementFromPoint(cell.left + 20, cell.top + 10))];
        """
    )
    assert heading == pytest.approx(header, abs=1)
    assert on_top
    # A jump leads below both.
    assert row >= heading + 20


@pytest.mark.parametrize(
    ("lit", "above"),
    [(".lit.piece", "body > header"), (".key .lit", "body > header"), ("tbody.lit .chip", "#vms thead th")],
)
def test_what_the_pointer_lights_up_stays_below_what_sticks_to_the_top(
    lit: str, above: str, host: PlayedHost, open_page: OpenPage, pause: Pause
) -> None:
    for number in range(4):
        host.add(f"web-{number}", 1)
    for number in range(30):
        host.add(f"worker-{number}")
    browser = open_page("light", (1280, 500))
    pause()
    found = browser.run(
        """
        const row = document.querySelector('#vms tbody[data-group] td');
        row.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
        const [lit, above] = [...arguments].map((one) => document.querySelector(one));
        const middle = (element) => {
          const box = element.getBoundingClientRect();
          return [box.left + box.width / 2, box.top + box.height / 2];
        };
        lit.scrollIntoView({block: 'start'});
        scrollBy(0, middle(lit)[1] - middle(above)[1]);
        const [place, on] = [middle(lit), document.elementFromPoint(...middle(lit))];
        const tops = [...document.querySelectorAll(arguments[1])];
        return [lit.checkVisibility(), Math.abs(place[1] - middle(above)[1]) < 2, tops.some((one) => one.contains(on))];
        """,
        lit,
        above,
    )
    assert found == [True, True, True]
