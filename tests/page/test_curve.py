# SPDX-License-Identifier: Apache-2.0
"""How many ways a VM needs, as ``vmqos size`` found it: a small picture in the VM's unfolded row."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.functional.conftest import WaitFor
from tests.page.browser import Browser
from tests.page.conftest import NAMES, NextLook, OpenPage, unfold
from tests.page.filled import few
from tests.page.played_host import PlayedHost
from tests.page.test_hostile import HOSTILE
from tests.page.test_widths import CUT, OUTSIDE, WIDTHS

PATH = "/v1/sizes"
FALLS = {2: 0.9, 3: 0.5, 4: 0.2, 5: 0.18}
CURVE = "#vms .curve"
SIGN = "\N{BLACK LEFT-POINTING TRIANGLE}"


def is_shown(browser: Browser) -> bool:
    return any(curve.is_displayed() for curve in browser.all(CURVE))


def bars(browser: Browser) -> list[list[str]]:
    """For each bar the number of ways, the value, the factor and the mark."""
    found = browser.run(
        "return [...document.querySelectorAll('#vms .curve li')].map((line) => [0, 2, 3, 4].map((at) => "
        "line.children[at].checkVisibility() ? line.children[at].textContent : ''))"
    )
    return [list(map(str, texts)) for texts in found]


def lengths(browser: Browser) -> list[float]:
    """How long the bars are, of the longest that could be."""
    return [
        float(length)
        for length in browser.run(
            "return [...document.querySelectorAll('#vms .curve .bar')]"
            ".map((bar) => bar.firstChild.getBoundingClientRect().width / bar.getBoundingClientRect().width)"
        )
    ]


def test_a_vm_that_was_sized_has_bars_the_knee_and_the_commands_words(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    few(host)
    host.size(host.named("web-1"), FALLS, 4, ago=3700.0)
    browser = open_page()
    unfold(browser, "web-1")
    wait_for(lambda: is_shown(browser), "the curve")
    assert bars(browser) == [
        ["2 ways", "90.0 %", "1.61 x", ""],
        ["3 ways", "50.0 %", "1.27 x", ""],
        ["4 ways", "20.0 %", "1.02 x", f"{SIGN} enough"],
        ["5 ways", "18.0 %", "1.00 x", ""],
    ]
    assert lengths(browser) == pytest.approx([1.0, 5 / 9, 2 / 9, 0.2], abs=0.01)
    needs, missed, when = browser.texts(f"{CURVE} p")
    assert needs == "It needs 4 ways."
    assert missed == "With 4 ways it misses 20.0 % of its references, and 18.0 % with 5."
    assert re.fullmatch(r"Found by vmqos size at [\d: -]+ UTC, 1 h [1-9] min ago\.", when)
    title, factors = browser.texts(f"{CURVE} figcaption span")
    assert (title, factors) == ("Misses by ways", "x: how many times as long its work took as with 5 ways")


@pytest.mark.parametrize(
    ("curve", "ways", "changes", "said"),
    [
        (
            {2: 0.9, 3: 0.5},
            3,
            {"at_least": True},
            ["It needs 3 ways at least.", f"{SIGN} at least", "The last way spared it much"],
        ),
        ({2: 0.97, 3: 0.97}, 2, {}, ["It needs no more than the 2 ways that it began with.", "and 97.0 % with 3."]),
        (
            {1: 0.02},
            1,
            {},
            ["no more than the 1 way that it began with.", "With 1 way it misses 2.0 % of its references.\n"],
        ),
        (
            {2: 0.4, 3: 0.0},
            3,
            {"part": "data"},
            ["It needs 3 ways for data.", "With 3 ways for data it misses 0.0 %", "took as with 3 ways for data"],
        ),
        ({2: 0.4, 3: 0.0}, 3, {"steady": False}, ["Do not trust this: the VM did other work meanwhile."]),
        (
            {2: 1.0, 3: 0.2},
            3,
            {"counted": False},
            [
                "Traffic with memory by ways",
                "A guess: it needs 3 ways.",
                "Nothing counts its misses of the L3 here, so its traffic with memory stands for them.",
                "With 3 ways it moves 20.0 % of its traffic with 2 ways.",
            ],
        ),
    ],
)
def test_what_is_not_sure_is_told_as_the_command_told_it(
    curve: dict[int, float],
    ways: int,
    changes: dict[str, Any],
    said: list[str],
    host: PlayedHost,
    open_page: OpenPage,
    wait_for: WaitFor,
) -> None:
    few(host)
    host.size(host.named("web-1"), curve, ways, **changes)
    browser = open_page()
    unfold(browser, "web-1")
    wait_for(lambda: is_shown(browser), "the curve")
    shown = browser.one(CURVE).text
    assert all(text in shown for text in said), shown
    assert ("Do not trust" in shown) == ("steady" in changes) and ("guess" in shown) == ("counted" in changes)


def test_a_vm_that_was_not_sized_has_none(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor, next_look: NextLook
) -> None:
    few(host)
    host.size(host.named("web-1"), FALLS, 4)
    browser = open_page()
    unfold(browser, "database")
    wait_for(lambda: PATH in host.asked, "the question")
    next_look()
    assert not is_shown(browser) and not bars(browser)
    unfold(browser, "web-1")
    wait_for(lambda: is_shown(browser), "the curve of the one that was")
    assert len(bars(browser)) == len(FALLS)


def test_an_agent_that_remembers_none_is_no_fault(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor, next_look: NextLook
) -> None:
    few(host)
    host.sizes = None
    browser = open_page()
    unfold(browser, "web-1")
    wait_for(lambda: PATH in host.asked, "the question")
    next_look()
    assert not is_shown(browser)
    assert browser.one("#calm").text == "Nothing. 3 promises kept."
    # The browser tells of the 404 itself.
    assert all("sizes" in error for error in browser.leave())


def test_the_agent_is_asked_when_a_vm_is_unfolded_and_then_once_a_minute_at_most(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor, next_look: NextLook
) -> None:
    few(host)
    browser = open_page()
    next_look()
    assert PATH not in host.asked, "no VM is unfolded"
    began = time.time()
    unfold(browser, "web-1")
    wait_for(lambda: PATH in host.asked, "the question")
    next_look()
    next_look()
    assert host.asked.count(PATH) <= 1 + (time.time() - began) // 60
    host.size(host.named("database"), FALLS, 4)
    unfold(browser, "database")
    wait_for(lambda: is_shown(browser), "the curve that was found meanwhile")


def test_a_curve_that_the_agent_forgot_is_shown_no_more(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    few(host)
    host.size(host.named("web-1"), FALLS, 4)
    browser = open_page()
    unfold(browser, "web-1")
    wait_for(lambda: is_shown(browser), "the curve")
    host.sizes = []
    unfold(browser, "web-1")
    unfold(browser, "web-1")
    wait_for(lambda: not is_shown(browser), "its end")


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:30])
def test_what_the_agent_says_is_text_and_nothing_else(
    text: str, host: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    host.add(text, 2)
    host.size(host.vms[0], FALLS, 4)
    first = {"ways": text, "missed": text, "traffic_part": text, "slower": None}
    assert host.sizes is not None
    host.sizes[0] |= {"ways": text, "curve": [first, *host.sizes[0]["curve"]], text: text}
    browser = open_page()
    browser.all(NAMES)[0].click()
    wait_for(lambda: is_shown(browser), "the curve")
    assert browser.run("return window.pwned") is None
    curve = browser.one(CURVE)
    inside = browser.run("return [...arguments[0].querySelectorAll('*')].map((one) => one.tagName)", curve)
    assert set(inside) == {"FIGCAPTION", "OL", "LI", "SPAN", "DIV", "P"}
    shown = browser.run("return arguments[0].textContent", curve)
    assert shown.isprintable() and (text in shown if text.isprintable() else "\\u{" in shown)


@pytest.mark.parametrize("width", WIDTHS)
def test_it_has_room_on_screens_of_every_width(
    width: int, host: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    few(host)
    curve = {ways: 1 / ways for ways in range(1, 21)}
    host.size(host.named("web-1"), curve, 13, steady=False, at_least=True)
    browser = open_page("light", (width, 900))
    unfold(browser, "web-1")
    wait_for(lambda: is_shown(browser), "the curve")
    assert browser.run(OUTSIDE) == []
    assert not [text for text, _ in browser.run(CUT) if "ways" in text]
    assert browser.run("return document.documentElement.scrollWidth") <= width
    widest = browser.run("return document.querySelector('#vms .curve .bar').getBoundingClientRect().width")
    assert widest > 40, "a bar is long enough to be compared"
