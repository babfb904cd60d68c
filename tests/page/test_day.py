# SPDX-License-Identifier: Apache-2.0
"""The charts of a VM's last day: minutes of the agent's, each with its least, mean and greatest value."""

from __future__ import annotations

import json
import re
import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from selenium.webdriver import ActionChains, Keys

from tests.functional.conftest import WaitFor
from tests.page.browser import PHONE, Browser
from tests.page.conftest import NextLook, OpenPage, Pause, banded, beside, heard, plots, unfold
from tests.page.filled import few
from tests.page.played_counters import MIB
from tests.page.played_host import PlayedHost


def show_day(browser: Browser, wait_for: WaitFor) -> None:
    browser.all("[data-charts=day]")[0].click()
    wait_for(lambda: banded(browser)[0], "the day being drawn")


def times(browser: Browser) -> list[list[str]]:
    """What stands below each chart."""
    return plots(browser, "plot.axes[0]._values")


@pytest.fixture
def steady(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A VM with 200, 300 or 400 MiB/s, a third of each minute each."""
    vm = host.add("web-1", 2)

    def play(_vm: dict[str, Any], when: float) -> tuple[int, float, float]:
        total = (200.0 + 100 * (int(when) % 60 // 20)) * MIB
        return 2 * MIB, total, total / 2

    monkeypatch.setattr(host, "_played", play)
    return vm


def test_the_day_is_a_band_from_least_to_greatest_with_the_mean_as_a_line(
    steady: dict[str, Any], open_page: OpenPage, wait_for: WaitFor
) -> None:
    browser = open_page()
    unfold(browser, "web-1")
    assert banded(browser) == [False, False]
    show_day(browser, wait_for)
    assert beside(browser)[1] == ["0 B/s", "100 MiB/s", "200 MiB/s", "300 MiB/s", "400 MiB/s"]
    greatest, least, mean = plots(browser, f"[1, 2, 3].map((one) => plot.data[one].map((value) => value / {MIB}))")[1]
    assert (set(greatest), set(least)) == ({400}, {200}) and mean == pytest.approx([300] * len(mean), abs=0.01)
    values = [300, 350, 250, 175, 410]
    spark, *faint, below, above = plots(
        browser, f"{values}.map((one) => pixel(plot, plot.data[0].at(-40), one * {MIB}))"
    )[1]
    assert spark == [0x2B, 0x6C, 0xB0, 255]
    assert [opacity for *_, opacity in (*faint, below, above)] == [51, 51, 0, 0]
    assert browser.texts(".legend-band") == ["least\N{EN DASH}greatest"] * 2
    told = browser.texts(".told")
    assert re.fullmatch(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d UTC: 2 MiB \(2 MiB . 2 MiB\)", told[0])
    assert told[1].endswith(
        ": total 300 MiB/s (200 MiB/s \N{EN DASH} 400 MiB/s), local 150 MiB/s (100 MiB/s \N{EN DASH} 200 MiB/s),"
        " remote 150 MiB/s (100 MiB/s \N{EN DASH} 200 MiB/s)"
    )
    label = str(browser.all(".chart")[1].get_attribute("aria-label"))
    assert "over the last 1 d. total: now 300 MiB/s, between 200 MiB/s and 400 MiB/s" in label


def test_the_days_axis_has_hours_in_utc_and_the_pointer_tells_its_minute(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor, pause: Pause
) -> None:
    few(host)
    browser = open_page()
    pause()
    unfold(browser, "database")
    show_day(browser, wait_for)
    assert set(times(browser)[0]) <= {"00:00", "06:00", "12:00", "18:00"} and len(times(browser)[0]) >= 3
    ActionChains(browser.driver).move_to_element(browser.all(".u-over")[0]).perform()
    told = browser.all(".told")[0].text
    expected = {time.strftime("%H:%M UTC", time.gmtime(time.time() - 43200 + 60 * late)) for late in range(-4, 5)}
    assert re.sub(r"^\d{4}-\d\d-\d\d ", "", told.split(": ")[0]) in expected
    browser.all("[data-charts=minutes]")[0].click()
    assert banded(browser) == [False, False]
    assert not [texts for texts in times(browser) if "06:00" in texts and "12:00" in texts]


def test_minutes_of_which_nothing_is_known_are_a_gap(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor, pause: Pause
) -> None:
    few(host)
    host.away = range(700, 740)
    silent = host.add("silent")
    host.missing[silent["uuid"]] = {"mbm_total_bytes": "unassigned"}
    browser = open_page()
    pause()
    unfold(browser, "database")
    show_day(browser, wait_for)
    inked = plots(browser, "inked(plot, null, 'columns')")[0]
    # Where nothing is drawn but the limit and the grid.
    gap = [at / len(inked) for at, pixels in enumerate(inked) if pixels <= 1 + len(beside(browser)[0])]
    gap = [place for place in gap if place > 0.01]
    assert gap == pytest.approx([gap[0] + number / len(inked) for number in range(len(gap))]), "it is one gap"
    assert gap[0] == pytest.approx(1 - 740 / 1440, abs=3 / 480)
    assert gap[-1] == pytest.approx(1 - 700 / 1440, abs=3 / 480)
    ActionChains(browser.driver).move_to_element(browser.all(".u-over")[0]).perform()
    assert browser.all(".told")[0].text.endswith("UTC: no value")
    unfold(browser, "silent")
    wait_for(lambda: len([text for text in browser.texts(".empty") if text]) == 1, "the VM without a counter")
    why = "no hardware counter is assigned to the VM now: there are too few for all VMs"
    assert [text for text in browser.texts(".empty") if text] == [why]


def test_the_day_is_asked_for_only_when_it_is_shown_and_then_once_a_minute(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(host)
    browser = open_page()
    unfold(browser, "database")
    next_look()
    assert host.minutes_asked == []
    show_day(browser, wait_for)
    uuid = host.vms[0]["uuid"]
    assert host.minutes_asked[0] == (86400.0, [uuid])
    # Time goes on in the host: a minute, and a second one.
    real, late = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: real() + late)
    for number in (1, 2):
        known, late = len(host.minutes_asked), 60.0 * number
        wait_for(lambda known=known: len(host.minutes_asked) > known, "the page asking for the new minute", 30)  # type: ignore[misc]
        seconds, uuids = host.minutes_asked[-1]
        assert (120 <= seconds <= 300, uuids) == (True, [uuid])
        known = len(host.minutes_asked)
        next_look()
        assert len(host.minutes_asked) <= known + 1
    unfold(browser, "database")
    known, late = len(host.minutes_asked), 240.0
    next_look()
    assert len(host.minutes_asked) == known


def test_the_day_is_in_the_address_and_chosen_with_the_keyboard(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    few(host)
    browser = open_page()
    unfold(browser, "database")
    ActionChains(browser.driver).send_keys(Keys.TAB, Keys.TAB, Keys.SPACE).perform()
    assert browser.driver.switch_to.active_element.text == "1 day"
    pressed = "return [...document.querySelectorAll('.choice [aria-pressed=true]')].map((one) => one.textContent)"
    assert browser.run(pressed) == ["1 day"]
    assert ("charts", "day") in parse_qsl(urlsplit(browser.driver.current_url).query)
    wait_for(lambda: banded(browser)[0], "the day being drawn")
    unfold(browser, "web-1")
    assert browser.run(pressed) == ["1 day", "1 day"]
    link = browser.driver.current_url
    browser.driver.get("about:blank")
    browser.open(link)
    wait_for(lambda: heard(browser), "the page having heard from the agent")
    wait_for(lambda: all(banded(browser)), "both VMs' days being drawn")
    assert len(banded(browser)) == 4
    browser.all("[data-charts=minutes]")[1].click()
    assert browser.run(pressed) == ["10 minutes"] * 2
    assert "charts" not in dict(parse_qsl(urlsplit(browser.driver.current_url).query))
    browser.driver.back()
    wait_for(lambda: browser.run(pressed) == ["1 day"] * 2, "the step being undone")


@pytest.mark.parametrize("minutes", [None, 0])
def test_an_agent_without_minutes_is_told_so(
    minutes: int | None, host: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    few(host)
    host.minutes = minutes
    browser = open_page()
    unfold(browser, "database")
    browser.all("[data-charts=day]")[0].click()
    expected = "this agent remembers ten minutes only" if minutes is None else "no minute is known yet"
    wait_for(lambda: browser.texts(".empty") == [expected] * 2, "the page telling that there is no day")
    assert browser.texts(".told") == ["no values", "no values"]


def test_a_refusal_of_the_agent_is_told_in_its_words(host: PlayedHost, open_page: OpenPage, wait_for: WaitFor) -> None:
    few(host)
    browser = open_page()
    unfold(browser, "database")
    host.broken["/v1/telemetry/history"] = ("400 Bad Request", "too much")
    browser.all("[data-charts=day]")[0].click()
    wait_for(lambda: browser.texts(".empty") == ["too much"] * 2, "the page telling the refusal")
    assert any("400" in error for error in browser.leave())


@pytest.mark.parametrize("size", [(1280, 900), PHONE])
def test_the_day_of_a_burst_is_not_flat(
    size: tuple[int, int], steady: dict[str, Any], host: PlayedHost, open_page: OpenPage, wait_for: WaitFor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    began, calm = int(time.time()), host._played
    monkeypatch.setattr(
        host, "_played",
        lambda vm, when: (MIB, 4e10, 2e10) if began - 40_000 <= when < began - 39_800 else calm(vm, when),
    )  # fmt: skip
    browser = open_page("light", size)
    unfold(browser, "web-1")
    show_day(browser, wait_for)
    assert browser.texts(".scale")[1] == "\N{BLACK UP-POINTING TRIANGLE} 1 burst beyond the scale, up to 37.3 GiB/s"
    assert beside(browser)[1][-1] == "400 MiB/s"


def day(browser: Browser, answers: list[dict[str, Any]], now: float) -> Any:
    """The series of a VM ``u`` after these answers."""
    return browser.value(
        "day.js",
        f"(() => {{ let rows = new Map(); for (const answer of {json.dumps(answers)}) "
        f"rows = it.added(rows, answer, 'u', {now}); return it.seriesOf(rows, {now}); }})()",
    )


def minutes(times: list[int], values: list[float | None]) -> dict[str, Any]:
    numbers = {"least": values, "mean": values, "greatest": values}
    return {"resolution": 60, "times": times, "vms": {"u": {"llc_occupancy": numbers}}}


def test_answers_add_up_to_a_day_whose_gaps_are_filled_with_nothing(open_page: OpenPage) -> None:
    browser = open_page()
    first, second = minutes([0, 60, 120], [None, 1, 2]), minutes([120, 300], [3, 4])
    found = day(browser, [first, second], 400.0)
    assert found["times"] == [60, 120, 180, 240, 300]
    assert found["llc_occupancy"]["mean"] == [1, 3, None, None, 4]
    assert found["total"]["least"] == [None] * 5
    assert (found["span"], found["problem"]) == (3600, "")


def test_a_day_forgets_and_survives_a_clock_that_was_set_back(open_page: OpenPage) -> None:
    browser = open_page()
    found = day(browser, [minutes([60, 120, 86_400, 86_520, 86_460], [1, 2, 3, 4, 5])], 86_500.0)
    assert (found["times"][0], found["times"][-1], len(found["times"])) == (120, 86_460, 1440)
    assert [one for one in found["llc_occupancy"]["mean"] if one is not None] == [2, 3, 5]
    assert found["span"] == 86_400
    nothing = day(browser, [minutes([60], [None])], 100.0)
    assert (nothing["times"], nothing["problem"]) == ([], "no minute is known yet")
