# SPDX-License-Identifier: Apache-2.0
"""The page in light and dark, on screens of every width."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.page.browser import PHONE
from tests.page.conftest import NAMES, OpenPage
from tests.page.filled import few, rich
from tests.page.played_host import PlayedHost


def wordy(host: PlayedHost) -> None:
    """One of the VMs has long words everywhere."""
    few(host)
    host.add("a-name-without-any-blank-" * 8, 1, state="degraded", reason="x" * 300, flavor="y" * 200)


def many(host: PlayedHost) -> None:
    """A machine with many caches of either level, and VMs that have everything."""
    rich(host)
    host.caches = 16


@pytest.mark.parametrize(("scheme", "darkest", "lightest"), [("light", 0.75, 1.0), ("dark", 0.0, 0.3)])
@pytest.mark.parametrize("size", [(1280, 900), PHONE])
def test_there_is_something_to_see_in_light_and_dark(
    scheme: str, darkest: float, lightest: float, size: tuple[int, int], host: PlayedHost, open_page: OpenPage
) -> None:
    few(host)
    host.add("big-1", ways_requested=6, state="pending", reason="L3 cache 0 has 2 ways to give")
    colours, light = open_page(scheme, size).picture()
    assert colours > 100
    assert darkest < light < lightest


@pytest.mark.parametrize("width", [320, 390, 768, 1024, 1920])
@pytest.mark.parametrize("fill", [wordy, many])
def test_nothing_is_wider_than_the_screen(
    fill: Callable[[PlayedHost], None], width: int, host: PlayedHost, open_page: OpenPage
) -> None:
    fill(host)
    browser = open_page("light", (width, 800))
    browser.all(NAMES)[0].click()
    assert browser.run("return document.documentElement.scrollWidth") <= width
    wide = browser.run("const wide = document.querySelector('.wide'); return [wide.scrollWidth, wide.clientWidth]")
    assert wide[0] <= wide[1]


def test_a_phone_shows_names_numbers_and_lines(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page("light", PHONE)
    shown = [heading.text for heading in browser.all("#vms thead th") if heading.is_displayed()]
    assert shown == ["VM", "Occupancy", "Bandwidth"]
    assert all(spark.is_displayed() for spark in browser.all(".spark"))
    small = browser.run(
        "return [...document.querySelectorAll('button, input')].filter((one) => one.checkVisibility())"
        ".map((one) => [one.textContent, one.getBoundingClientRect().height]).filter(([, height]) => height < 20)"
    )
    assert not small


@pytest.mark.parametrize("width", [390, 820, 1400])
def test_what_can_be_looked_for_is_read_whole(width: int, host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    needed, room = open_page("light", (width, 844)).run(
        """
        const find = document.getElementById('find');
        const [own, hint] = [getComputedStyle(find), getComputedStyle(find, '::placeholder')];
        const text = Object.assign(document.createElement('span'), {textContent: find.placeholder});
        const {fontFamily, fontSize} = hint;
        Object.assign(text.style, {position: 'fixed', whiteSpace: 'pre', fontFamily, fontSize});
        document.body.append(text);
        const width = text.getBoundingClientRect().width;
        text.remove();
        // The browser keeps room for the sign that empties the field.
        const sign = 1.25 * parseFloat(own.fontSize);
        return [width, find.clientWidth - parseFloat(own.paddingLeft) - parseFloat(own.paddingRight) - sign];
        """
    )
    assert needed <= room
