# SPDX-License-Identifier: Apache-2.0
"""The page without a pointer, without eyes, and for eyes that see little contrast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Keys

from tests.functional.conftest import WaitFor
from tests.page.browser import PHONE, Browser
from tests.page.conftest import OpenPage, is_quiet
from tests.page.filled import few, rich, troubled
from tests.page.played_host import PlayedHost

FOCUSED = "return document.activeElement.textContent.trim() || document.activeElement.id"

MOST = "Who moves most mean of the last minute, share of all VMs'"

REGIONS = {"Needs attention", "Last changes UTC", MOST, "Host", "Cache ways", "VMs 9"}

CONTRASTS = """
const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = ([red, green, blue]) => [red, green, blue].map((value) => value / 255)
  .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
  .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
const contrast = (one, other) => {
  const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
};
function ground(element) {
  for (let at = element; at; at = at.parentElement) {
    const style = getComputedStyle(at);
    const colour = channels(style.backgroundColor);
    if ((colour[3] ?? 1) === 0) continue;
    // The darkest that a pattern's stripes make of it.
    return style.backgroundImage === 'none' ? colour : colour.map((value) => value * (1 - 0x29 / 255));
  }
  return [255, 255, 255];
}
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
  if (element.closest('.unseen, noscript')) continue;
  const ratio = contrast(channels(getComputedStyle(element).color), ground(element));
  found.push([Math.round(100 * ratio) / 100, element.className, walker.currentNode.textContent]);
}
return found;
"""


def press(browser: Browser, *keys: str) -> None:
    ActionChains(browser.driver).send_keys(*keys).perform()


def pause_without_focus(browser: Browser, host: PlayedHost, wait_for: WaitFor) -> None:
    """Pause the page by a click of nobody: the next look would order anew who moves most."""
    browser.run("document.getElementById('pause').click()")
    wait_for(lambda: is_quiet(browser, host), "the end of the look under way")


def tree(browser: Browser) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What a screen reader is told: role, name and properties of each thing."""
    for node in browser.command("Accessibility.getFullAXTree")["nodes"]:
        if not node.get("ignored"):
            properties = {one["name"]: one["value"].get("value") for one in node.get("properties", ())}
            yield node["role"]["value"], node.get("name", {}).get("value", ""), properties


def test_everything_can_be_reached_and_used_with_the_keyboard_alone(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    troubled(host)
    browser = open_page()
    pause_without_focus(browser, host, wait_for)
    walked = []
    for _ in range(80):
        press(browser, Keys.TAB)
        walked.append(browser.run(FOCUSED))
        if walked[-1] == "metrics":
            break
    controls = browser.run(
        "return [...document.querySelectorAll('a, button, input')].filter((one) => one.checkVisibility())"
        ".map((one) => one.textContent.trim() || one.id)"
    )
    assert walked == controls
    assert walked[:4] == ["Skip to the VMs", "Pause", "typo-1", "big-1"]


def test_the_first_stop_leads_past_everything_to_the_vms(host: PlayedHost, open_page: OpenPage) -> None:
    troubled(host)
    browser = open_page()
    press(browser, Keys.TAB, Keys.ENTER)
    assert browser.run("return document.activeElement.id") == "vms-title"
    press(browser, Keys.TAB)
    assert browser.run(FOCUSED) == "find"
    press(browser, Keys.TAB, Keys.TAB, Keys.TAB, Keys.ENTER)
    assert browser.one("[aria-sort]").get_attribute("data-sort") == "ways"
    for _ in range(6):
        press(browser, Keys.TAB)
    assert browser.run(FOCUSED) == "batch-1"
    press(browser, Keys.SPACE)
    assert browser.run("return document.activeElement.getAttribute('aria-expanded')") == "true"


def test_whoever_has_the_focus_is_seen_to_have_it(host: PlayedHost, open_page: OpenPage, wait_for: WaitFor) -> None:
    troubled(host)
    browser = open_page()
    pause_without_focus(browser, host, wait_for)
    for _ in range(30):
        press(browser, Keys.TAB)
        style, width, visible = browser.run(
            "const {outlineStyle, outlineWidth} = getComputedStyle(document.activeElement);"
            "const box = document.activeElement.getBoundingClientRect();"
            "const on = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);"
            "return [outlineStyle, parseFloat(outlineWidth), document.activeElement.contains(on)]"
        )
        assert style == "solid" and width >= 2
        assert visible, f"{browser.run(FOCUSED)} is covered by something"


def test_a_screen_reader_finds_landmarks_headings_and_named_controls(host: PlayedHost, open_page: OpenPage) -> None:
    troubled(host)
    browser = open_page()
    told = list(tree(browser))
    roles = [role for role, _, _ in told]
    assert [roles.count(role) for role in ("banner", "main", "contentinfo", "table")] == [1, 1, 1, 1]
    assert {name for role, name, _ in told if role == "region"} == REGIONS
    headings = [(3, "L3 cache 0"), (3, "L3 cache 1"), *((2, name) for name in REGIONS), (1, "vmqos compute-7")]
    found = [(properties["level"], name) for role, name, properties in told if role == "heading"]
    assert sorted(found) == sorted(headings)
    levels = browser.run("return [...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
    assert levels == [1, 2, 2, 2, 2, 2, 2, 3, 3, 2]
    assert all(name for role, name, _ in told if role in ("button", "link", "searchbox", "image"))


def test_the_table_has_headings_for_its_columns_and_for_its_lines(host: PlayedHost, open_page: OpenPage) -> None:
    troubled(host)
    browser = open_page()
    told = list(tree(browser))
    columns = [name for role, name, _ in told if role == "columnheader"]
    assert columns == ["VM", "State", "Ways", "Occupancy", "Bandwidth", "Local", "Remote", "Flavor"]
    lines = [name for role, name, _ in told if role == "rowheader"]
    assert len(lines) == 9 and lines[0] == "typo-1"
    assert all(heading.get_attribute("scope") in ("col", "row") for heading in browser.all("th"))


def test_a_state_is_a_word_and_never_a_colour_alone(host: PlayedHost, open_page: OpenPage) -> None:
    troubled(host)
    browser = open_page()
    assert browser.texts("#vms .badge") == ["degraded", "pending", *["kept"] * 5, "none", "none"]
    assert len(set(browser.texts("#vms .glyph"))) == 4
    letters = browser.run("return [...document.querySelectorAll('.picture .piece')].map((one) => one.textContent[0])")
    assert all(letters)
    pictures = browser.run(
        "return [...document.querySelector('.picture').querySelectorAll('.vm')].map((one) => "
        "getComputedStyle(one).backgroundColor + getComputedStyle(one).backgroundImage)"
    )
    assert len(set(pictures)) == 4


def test_a_change_is_announced_and_the_first_sight_is_not(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    troubled(host)
    browser = open_page()
    news = browser.one("#news")
    assert news.get_attribute("aria-live") == "polite"
    assert news.get_attribute("textContent") == ""
    host.vms[0].update(state="degraded", reason="1 of 9 tasks is elsewhere")
    wait_for(
        lambda: news.get_attribute("textContent") == "web-0 is degraded now: 1 of 9 tasks is elsewhere.",
        "the change being announced",
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 900), PHONE])
def test_every_text_has_contrast_enough(
    scheme: str, size: tuple[int, int], host: PlayedHost, open_page: OpenPage, next_look: Callable[[], None]
) -> None:
    troubled(host)
    browser = open_page(scheme, size)
    for name in browser.all("#vms .name")[:2]:
        name.click()
    browser.run(
        "document.getElementById('silence').textContent = 'x'; document.getElementById('silence').hidden = false"
    )
    found = browser.run(CONTRASTS)
    assert len(found) > 80
    assert not [one for one in found if one[0] < 4.5]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_enough_where_a_machine_has_everything(
    scheme: str, host: PlayedHost, open_page: OpenPage
) -> None:
    rich(host)
    found = open_page(scheme).run(CONTRASTS)
    assert len(found) > 80
    assert not [one for one in found if one[0] < 4.5]


def test_bars_are_seen_where_the_user_forces_colours(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page()
    browser.command("Emulation.setEmulatedMedia", {"features": [{"name": "forced-colors", "value": "active"}]})
    bars, text = browser.run(
        "return [[...document.querySelectorAll('.meter span')].map((one) => getComputedStyle(one).backgroundColor),"
        " getComputedStyle(document.body).color]"
    )
    assert len(bars) > 4 and set(bars) == {text}
