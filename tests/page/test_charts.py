# SPDX-License-Identifier: Apache-2.0
"""The charts of one VM: their scales, and the values of a moment that a pointer or a key chooses."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Keys

from tests.functional.conftest import WaitFor
from tests.page.browser import Browser
from tests.page.conftest import LOOK, NAMES, NextLook, OpenPage, Pause, beside, details, lengths, plots
from tests.page.filled import few
from tests.page.played_counters import MIB
from tests.page.played_host import PlayedHost

BURST = 40_000 * MIB

OVER, CURSOR = ".u-over", ".u-cursor-x"
"""Where lines are drawn, and what marks the chosen moment there."""

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
    assert [len(lines) for lines in lengths(browser)] == [1, 3, 1, 3]
    assert all(length > 100 for lines in lengths(browser) for length in lines)
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
    none, marks = plots(browser, "places(plot, '--degraded')")
    assert (none, len(marks)) == ([], 1)
    # It moves to the left until the page is paused.
    late = (time.time() - began) / 600
    assert 0.47 - late < marks[0] < 0.54
    assert beside(browser)[1] == ["0 B/s", "100 MiB/s", "200 MiB/s", "300 MiB/s"]
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
    values, rates = beside(browser)
    assert values[:2] == ["0 B", "2 MiB"]
    assert rates and all(re.fullmatch(r"[\d.]+ ([MG]i)?B/s", text) for text in rates)
    shown = plots(browser, "plot.axes[0]._values")[0]
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
    ActionChains(browser.driver).move_to_element(browser.all(OVER)[1]).perform()
    # The middle, up to a few pixels, of the ten minutes before the page was paused.
    moments = range(int(began) - 310, int(paused) - 290)
    assert told.text[:8] in {time.strftime("%H:%M:%S", time.gmtime(moment)) for moment in moments}
    assert [cursor.is_displayed() for cursor in browser.all(CURSOR)] == [False, True]
    shares = plots(browser, "plot.cursor.left / plot.over.clientWidth")
    assert shares[0] < 0 and shares[1] == pytest.approx(0.5, abs=0.01)
    assert len([point for point in browser.all(".u-cursor-pt") if point.is_displayed()]) == 3
    ActionChains(browser.driver).move_to_element(browser.one("#find")).perform()
    assert told.text == last
    assert [cursor.is_displayed() for cursor in browser.all(CURSOR)] == [False, False]


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
    marks = plots(browser, "places(plot, '--pending', 30)")
    assert [len(places) for places in marks] == [1, 1]
    # It moves to the left until the page is paused.
    place, late = marks[0][0], (time.time() - began) / 600
    assert 0.49 - late < place < 0.53
    plot = browser.all(OVER)[0]
    offset = round((place - 0.5) * plot.rect["width"])
    ActionChains(browser.driver).move_to_element_with_offset(plot, offset, 0).perform()
    assert browser.all(".told")[0].text.endswith(
        "\N{BULLET} kept \N{RIGHTWARDS ARROW} degraded: 1 of 9 tasks is elsewhere"
    )
    changes = details(browser)["Last changes, UTC"].split("; ")
    assert len(changes) == 2 and changes[0].endswith("kept \N{RIGHTWARDS ARROW} degraded: 1 of 9 tasks is elsewhere")
    assert changes[1].endswith("degraded \N{RIGHTWARDS ARROW} kept")


def drawn(browser: Browser, expression: str, steps: str = "undefined", **data: Any) -> Any:
    """An expression over what uPlot makes of a chart that has these data and 800 pixels (see LOOK, too)."""
    data = {"interval": 10, "span": 600, "now": 600, "limit": None, "events": [], **data}
    script = f"""
        const [{{ Chart }}, {{ BYTES }}] = [await import('/page/chart.js'), await import('/page/scale.js')];
        const chart = new Chart('x', {json.dumps(data["values"])}.map(String), String, {steps});
        chart.element.style.inlineSize = '800px';
        document.body.replaceChildren(chart.element);
        chart.draw({json.dumps(data)});
        while (!chart.element.querySelector('.chart').plot) await new Promise(requestAnimationFrame);
        {LOOK}{expression})[0];
    """
    return browser.driver.execute_script(f"return (async () => {{{script}}})()")


@pytest.mark.parametrize(
    ("steps", "top", "expected"),
    [
        ("BYTES", 1, [0, 1]),
        ("BYTES", 700, [0, 200, 400, 600]),
        ("BYTES", 1000, [0, 512, 1024]),
        ("BYTES", 1.6 * 2**30, [0, 2**29, 2**30, 1.5 * 2**30]),
        ("undefined", 0.85, [0, 0.2, 0.4, 0.6, 0.8]),
        ("undefined", 43, [0, 10, 20, 30, 40]),
        ("undefined", 7.6e6, [0, 2e6, 4e6, 6e6]),
    ],
)
def test_beside_a_scale_are_round_values_in_its_unit(
    steps: str, top: float, expected: list[float], open_page: OpenPage
) -> None:
    values = drawn(open_page(), "plot.axes[1]._values", steps, times=[500, 510], values=[[top, top]])
    assert [float(value) for value in values] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("span", "now", "expected"),
    [
        (600, 1000, [f"00:{when:02}" for when in range(7, 17)]),
        (60, 1000, [f"00:{when}" for when in ("15:40", "15:50", "16:00", "16:10", "16:20", "16:30", "16:40")]),
        (86400, 100_000, [f"{when % 24:02}:00" for when in range(4, 27, 2)]),
    ],
)
def test_below_a_chart_are_round_times(span: int, now: int, expected: list[str], open_page: OpenPage) -> None:
    data: dict[str, Any] = {"span": span, "now": now, "times": [now - 10, now], "values": [[1, 2]]}
    assert drawn(open_page(), "plot.axes[0]._values", **data) == expected


def test_no_line_goes_where_there_is_no_value_or_no_sample(open_page: OpenPage) -> None:
    times = [0, *range(10, 200, 10), *range(400, 610, 10)]
    values = [9.0] * len(times)
    values[5:7] = values[8:10] = [None, None]  # type: ignore[list-item]
    places = [20, 45, 60, 75, 105, 300, 500]
    pixels = drawn(open_page(), f"{places}.map((time) => pixel(plot, time, 9)[3])", times=times, values=[values])
    # At 70 is a single value between two gaps, which is a dot.
    assert [opacity > 200 for opacity in pixels] == [True, False, False, False, True, False, True]
    assert drawn(open_page(), "pixel(plot, 70, 9)[3]", times=times, values=[values]) > 200
    under = drawn(open_page(), f"{places}.map((time) => pixel(plot, time, 7)[3])", times=times, values=[values])
    assert under == [51, 0, 0, 0, 51, 0, 51]


def test_a_limit_is_a_dashed_line_over_the_whole_width(open_page: OpenPage) -> None:
    data: dict[str, Any] = {"times": [300, 310], "values": [[10, 10]]}
    found = drawn(open_page(), "[inked(plot, '--dim', 'rows'), plot.valToPos(20, 'y')]", limit=20, **data)
    rows, place = found
    (row,) = [number for number, pixels in enumerate(rows) if pixels > 100]
    assert row == pytest.approx(place, abs=1) and rows[row] < 600
    assert max(drawn(open_page(), "inked(plot, '--dim', 'rows')", **data)) < 100


def test_a_chart_that_is_not_drawn_yet_bears_the_pointer_and_keys(open_page: OpenPage) -> None:
    script = """
        const [{ Chart }, faults] = [await import('/page/chart.js'), []];
        window.addEventListener('error', (event) => faults.push(event.message));
        const chart = new Chart('x', ['y'], String);
        document.body.replaceChildren(chart.element);
        for (const kind of ['pointermove', 'pointerleave', 'blur']) chart.moment.dispatchEvent(new PointerEvent(kind));
        chart.moment.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft' }));
        return [faults, chart.at, chart.told.textContent];
    """
    assert open_page().driver.execute_script(f"return (async () => {{{script}}})()") == [[], None, ""]


def test_only_what_is_unfolded_has_canvases(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook, wait_for: WaitFor
) -> None:
    few(host)
    browser = open_page()
    canvases = "return [...document.querySelectorAll('canvas')].map((one) => one.width)"
    assert browser.run(canvases) == []
    for name in browser.all(NAMES)[:2]:
        name.click()
    assert len(browser.run(canvases)) == len(plots(browser, "1")) == 4
    browser.all(NAMES)[0].click()
    wait_for(lambda: len(browser.run(canvases)) == 2, "the folded VM's canvases being gone")
    next_look()
    assert len(browser.run(canvases)) == len(plots(browser, "1")) == 2
    browser.all(NAMES)[0].click()
    assert len(browser.run(canvases)) == 4 and all(length > 100 for lines in lengths(browser) for length in lines)
    host.vms[:] = [vm for vm in host.vms if vm["instance_name"] not in browser.texts(NAMES)[:2]]
    wait_for(lambda: len(browser.texts(NAMES)) == 2, "the VMs being gone")
    wait_for(lambda: browser.run(canvases) == [], "their canvases being gone")


def test_a_chart_is_as_wide_as_its_place_and_as_sharp_as_the_screen(
    host: PlayedHost, open_page: OpenPage, unfold: Unfold, browser: Browser, wait_for: WaitFor
) -> None:
    few(host)
    open_page()
    unfold("database")
    widths = "[plot.width, plot.root.parentNode.clientWidth, plot.ctx.canvas.width]"
    wide = plots(browser, widths)[0]
    assert wide[0] == wide[1] == wide[2] > 500
    browser.emulate("light", (390, 900))
    wait_for(lambda: plots(browser, widths)[0][0] < 350, "the chart being narrow")
    narrow = plots(browser, widths)[0]
    assert narrow[0] == narrow[1] == narrow[2]
    metrics = {"width": 820, "height": 900, "deviceScaleFactor": 2, "mobile": False}
    browser.command("Emulation.setDeviceMetricsOverride", metrics)
    wait_for(lambda: plots(browser, widths)[0][2] > 2 * narrow[0], "as many pixels as the screen has")
    sharp = plots(browser, widths)[0]
    assert 2 * sharp[0] == 2 * sharp[1] == sharp[2]


def test_a_chart_has_the_colours_of_the_scheme_also_when_that_changes(
    host: PlayedHost, open_page: OpenPage, unfold: Unfold, browser: Browser, wait_for: WaitFor
) -> None:
    few(host)
    open_page("light")
    unfold("database")
    spark = "pixel(plot, plot.data[0].at(-9), plot.data[3].at(-9)).slice(0, 3)"
    assert plots(browser, spark)[0] == pytest.approx([0x2B, 0x6C, 0xB0], abs=3)
    browser.emulate("dark")
    wait_for(lambda: plots(browser, spark)[0] == pytest.approx([0x6F, 0xB1, 0xF5], abs=3), "the line being light")
