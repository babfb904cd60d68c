# SPDX-License-Identifier: Apache-2.0
"""The charts of one VM: their scales, and the values of a moment that a pointer or a key chooses."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Keys

from tests.page.browser import Browser
from tests.page.conftest import NAMES, NextLook, OpenPage, Pause, details
from tests.page.filled import few
from tests.page.played_counters import MIB
from tests.page.played_host import PlayedHost

BURST = 40_000 * MIB

Unfold = Callable[[str], None]
"""Pause the page, and unfold the VM of that name."""


@pytest.fixture
def bursting(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A VM with 200 MiB/s to 300 MiB/s and a burst of three seconds five minutes ago; another one with 1 GiB/s."""
    vm, other = host.add("web-1", 2), host.add("other")
    began: list[int] = []

    def play(asked: dict[str, Any], when: float) -> tuple[int, float, float]:
        if asked is other:
            return MIB, 1024.0 * MIB, 1024.0 * MIB
        # Five minutes before the page asks first, however long a browser takes to start.
        began[:] = began or [int(time.time())]
        total = float(BURST) if began[0] - 303 <= when < began[0] - 300 else (200.0 + int(when) % 100) * MIB
        return 4 * MIB, total, total / 2

    monkeypatch.setattr(host, "_played", play)
    return vm


@pytest.fixture
def unfold(browser: Browser, pause: Pause) -> Unfold:
    """See :data:`Unfold`."""

    def unfold_it(text: str) -> None:
        pause()
        next(one for one in browser.all(NAMES) if one.text == text).click()

    return unfold_it


def test_all_series_are_asked_for_of_unfolded_vms_alone_and_once(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook
) -> None:
    few(host)
    browser = open_page()
    asked = (
        "return performance.getEntriesByType('resource').map((one) => new URL(one.name))"
        ".filter((one) => one.pathname === '/v1/telemetry/history').map((one) => one.search)"
    )
    of_rows = "?seconds=600&series=llc_occupancy&series=total"
    assert browser.run(asked) == [of_rows]
    names = browser.all(NAMES)
    names[1].click()
    names[0].click()
    unfolded = browser.run(
        "return [...document.querySelectorAll('.details:not([hidden])')].map((one) => one.parentNode.dataset.uuid)"
    )
    of_vms = [f"?seconds=600&vm={uuid}" for uuid in reversed(unfolded)]
    assert browser.run(asked) == [of_rows, *of_vms] and len(of_vms) == 2
    lines = browser.run("return [...document.querySelectorAll('.chart .line')].map((one) => one.getAttribute('d'))")
    long = [line for line in lines if line.count("L") > 100]
    assert len(long) == 8, "occupancy, and the bandwidths: total, local and remote"
    names[0].click()
    names[0].click()
    next_look()
    assert browser.run(asked) == [of_rows, *of_vms]


def test_a_burst_goes_beyond_the_scale_and_is_told(
    bursting: dict[str, Any], open_page: OpenPage, unfold: Unfold
) -> None:
    began = time.time()
    browser = open_page()
    unfold("web-1")
    assert browser.texts(".scale")[1] == "\N{BLACK UP-POINTING TRIANGLE} 1 burst beyond the scale, up to 39.1 GiB/s"
    marks = browser.run("return document.querySelectorAll('.chart .beyond')[1].getAttribute('d')")
    assert marks.count("M") == 1
    # It moves to the left until the page is paused: by 0.8 a second.
    late = 0.8 * (time.time() - began)
    assert 230 - late < float(marks[1:].split()[0]) < 260
    assert browser.texts(".values")[1].split("\n") == ["0 B/s", "100 MiB/s", "200 MiB/s", "300 MiB/s"]
    label = str(browser.all(".chart")[1].get_attribute("aria-label"))
    assert "and 39.1 GiB/s" in label
    # The lines of the list share a scale, which is for the usual values, too.
    heights = browser.run(
        "return [...document.querySelectorAll('#vms tbody')].map((body) => "
        "body.querySelectorAll('.spark .area')[1].getBBox().height)"
    )
    assert sorted(heights)[1] == pytest.approx(23, abs=1)
    beyond = browser.run(
        "return [...document.querySelectorAll('.spark')].map((one) => one.querySelector('.beyond').getAttribute('d'))"
    )
    assert [bool(path) for path in beyond].count(True) == 1


def test_axes_have_units_and_times_in_utc(host: PlayedHost, open_page: OpenPage, unfold: Unfold) -> None:
    few(host)
    began = time.time()
    browser = open_page()
    unfold("database")
    values, rates = browser.texts(".values")
    assert values.split("\n")[:2] == ["0 B", "2 MiB"]
    assert all(re.fullmatch(r"[\d.]+ ([MG]i)?B/s", text) for text in rates.split("\n"))
    shown = browser.texts(".times")[0].split("\n")
    assert 4 <= len(shown) <= 5
    moments = range(int(began) - 660, int(time.time()) + 1)
    assert set(shown) <= {time.strftime("%H:%M", time.gmtime(moment)) for moment in moments}


def test_the_pointer_tells_the_values_of_its_moment(host: PlayedHost, open_page: OpenPage, unfold: Unfold) -> None:
    few(host)
    began = time.time()
    browser = open_page()
    unfold("database")
    paused = time.time()
    told = browser.all(".told")[1]
    assert re.fullmatch(r"\d\d:\d\d:\d\d UTC: total [\d.]+ .iB/s, local [\d.]+ .iB/s, remote [\d.]+ .iB/s", told.text)
    last = told.text
    plot = browser.all(".moment")[1]
    ActionChains(browser.driver).move_to_element(plot).perform()
    # The middle, up to a few pixels, of the ten minutes before the page was paused.
    moments = range(int(began) - 310, int(paused) - 290)
    assert told.text[:8] in {time.strftime("%H:%M:%S", time.gmtime(moment)) for moment in moments}
    assert browser.run("return document.querySelectorAll('.cursor')[1].getAttribute('d')").startswith("M")
    ActionChains(browser.driver).move_to_element(browser.one("#find")).perform()
    assert told.text == last


def test_the_arrow_keys_walk_through_the_moments(host: PlayedHost, open_page: OpenPage, unfold: Unfold) -> None:
    few(host)
    browser = open_page()
    unfold("database")
    plot = browser.all(".moment")[0]
    assert plot.get_attribute("role") == "slider"
    browser.run("arguments[0].focus()", plot)
    seen = [int(str(plot.get_attribute("aria-valuenow")))]
    for key in (Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.HOME, Keys.ARROW_RIGHT, Keys.END):
        ActionChains(browser.driver).send_keys(key).perform()
        seen.append(int(str(plot.get_attribute("aria-valuenow"))))
        assert plot.get_attribute("aria-valuetext") == browser.all(".told")[0].text
    assert seen == [600, 590, 580, 1, 10, 600] or seen == [600, 590, 580, 0, 10, 600]


def test_what_happened_to_a_vm_is_marked_at_its_time(host: PlayedHost, open_page: OpenPage, unfold: Unfold) -> None:
    few(host)
    vm, other = host.vms[:2]
    host.happen(vm, "kept", "degraded", 7000.0)
    host.happen(vm, "degraded", "kept", 300.0, reason="1 of 9 tasks is elsewhere")
    host.happen(other, "kept", "", 100.0)
    began = time.time()
    browser = open_page()
    unfold("database")
    marks = browser.run("return [...document.querySelectorAll('.event')].map((one) => one.getAttribute('d'))")
    assert [mark.count("M") for mark in marks] == [1, 1]
    # It moves to the left until the page is paused: by 0.8 a second.
    place, late = float(marks[0][1:].split()[0]), 0.8 * (time.time() - began)
    assert 238 - late < place < 252
    plot = browser.all(".moment")[0]
    beside = round((place / 480 - 0.5) * plot.rect["width"])
    ActionChains(browser.driver).move_to_element_with_offset(plot, beside, 0).perform()
    assert browser.all(".told")[0].text.endswith(
        "\N{BULLET} kept \N{RIGHTWARDS ARROW} degraded: 1 of 9 tasks is elsewhere"
    )
    changes = details(browser)["Last changes, UTC"].split("; ")
    assert len(changes) == 2 and changes[0].endswith("kept \N{RIGHTWARDS ARROW} degraded: 1 of 9 tasks is elsewhere")
    assert changes[1].endswith("degraded \N{RIGHTWARDS ARROW} kept")
