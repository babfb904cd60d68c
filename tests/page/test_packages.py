# SPDX-License-Identifier: Apache-2.0
"""What the processor's packages count of VMs, where they do; and that nothing is said of it where they do not."""

from __future__ import annotations

import re

import pytest

from tests.functional.conftest import WaitFor
from tests.page.conftest import NAMES, NextLook, OpenPage, charts, details, lengths, show_the_day, unfold
from tests.page.filled import few
from tests.page.played_host import PlayedHost

LARGE = (1920, 900)
OF_CACHES = ["Cache occupancy, all caches together", "Memory bandwidth"]
OF_TASKS = ["Instructions per cycle", "Instructions", "Cache misses"]
OF_PACKAGES = ["Power of the cores", "Micro-operations per cycle", "Cycles stalled on loads"]


@pytest.fixture
def counting(host: PlayedHost) -> PlayedHost:
    few(host)
    host.packages = True
    return host


def test_what_packages_count_has_figures_and_charts(counting: PlayedHost, open_page: OpenPage) -> None:
    browser = open_page()
    unfold(browser, "database")
    found = details(browser)
    assert re.fullmatch(r"[12](\.\d)? W", found["Power of the cores now"])
    assert re.fullmatch(r"[01]\.\d\d", found["Micro-operations per cycle now"])
    assert re.fullmatch(r"[\d.]+ % on L3 misses, 5 % on L3 hits", found["Cycles stalled on loads now"])
    assert charts(browser) == OF_CACHES + OF_PACKAGES
    assert re.fullmatch(r"\d\d:\d\d:\d\d UTC: [\d.]+ W", browser.texts(".told")[2])
    assert re.search(r"L3 misses [\d.]+ %, L3 hits 5 %$", browser.texts(".told")[4])
    # Some 200 points: one more or less, as the seconds fall.
    assert min(min(lines) for lines in lengths(browser)) >= 190


def test_the_last_figures_are_in_the_charts_too_and_a_vm_that_does_not_run_has_no_shares(
    counting: PlayedHost, open_page: OpenPage, next_look: NextLook, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = open_page()
    unfold(browser, "database")
    now: dict[str, float | None] = {"core_energy": 123.4, "unhalted_core_cycles": 4e9, "stalls_llc_miss": 1e9}
    monkeypatch.setattr(counting, "_in_packages", lambda vm, when: now)
    next_look()
    told = [one.split(": ")[1] for one in browser.texts(".told")[2:]]
    assert told == ["123 W", "no value", "L3 misses 25 %, L3 hits no value"]
    now |= {"core_energy": 0.0, "unhalted_core_cycles": 0.0}
    next_look()
    assert [one.split(": ")[1] for one in browser.texts(".told")[2:4]] == ["0 W", "no value"]
    assert "Cycles stalled on loads now" not in details(browser)


def test_the_day_has_them_beside_what_tasks_execute(
    counting: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    counting.unavailable = ""
    browser = open_page()
    unfold(browser, "database")
    assert charts(browser) == OF_CACHES + OF_TASKS + OF_PACKAGES
    show_the_day(browser, wait_for, charts=8)
    told = re.fullmatch(r"\d\d:\d\d UTC: ([\d.]+) W \(([\d.]+) W \u2013 ([\d.]+) W\)", browser.texts(".told")[5])
    assert told is not None
    mean, least, greatest = map(float, told.groups())
    assert least < mean < greatest


def test_charts_that_come_later_stand_where_they_would_have_stood(
    counting: PlayedHost, open_page: OpenPage, next_look: NextLook
) -> None:
    browser = open_page()
    unfold(browser, "database")
    assert charts(browser) == OF_CACHES + OF_PACKAGES
    counting.unavailable = ""
    # An agent that counted nothing is asked again after a minute; here, at once.
    browser.run("const now = Date.now; Date.now = () => now() + 61000")
    next_look()
    next_look()
    assert charts(browser) == OF_CACHES + OF_TASKS + OF_PACKAGES


def test_a_large_screen_has_the_power_in_the_list_which_sorts_by_it(
    counting: PlayedHost, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {vm["uuid"]: number for number, vm in enumerate(counting.vms)}
    idle = {"unhalted_core_cycles": 0.0}
    monkeypatch.setattr(counting, "_in_packages", lambda vm, when: idle | {"core_energy": 1.5 + places[vm["uuid"]]})
    browser = open_page("light", LARGE)
    headings = [heading.text for heading in browser.all("#vms thead th") if heading.is_displayed()]
    assert headings[-2:] == ["Power", "Flavor"]
    browser.one("th[data-sort=power] button").click()
    assert browser.texts(NAMES) == ["mail-1", "batch-1", "web-1", "database"]
    assert browser.texts("#vms tbody tr:first-child .powered") == ["4.5 W", "3.5 W", "2.5 W", "1.5 W"]
    assert browser.driver.current_url.endswith("?sort=power")


def test_where_packages_count_nothing_nothing_is_said_of_them(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page("light", LARGE)
    unfold(browser, "database")
    assert charts(browser) == OF_CACHES
    assert not browser.one("th[data-sort=power]").is_displayed()
    assert not {title for title in details(browser) if "Power" in title or "stalled" in title or "Micro" in title}
