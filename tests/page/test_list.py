# SPDX-License-Identifier: Apache-2.0
"""The list of VMs in use: sorted, searched, unfolded, and quiet while others come and go."""

from __future__ import annotations

import pytest

from tests.functional.conftest import WaitFor
from tests.page.conftest import NAMES, NextLook, OpenPage, unfold
from tests.page.filled import few
from tests.page.played_host import PlayedHost

SEEN = "return [scrollY, document.activeElement.textContent, document.querySelectorAll(':not(.ticks *)').length]"
"""The view, the focus and the number of elements, without the charts' scales, which follow the values."""


def test_a_click_on_a_heading_sorts_and_a_second_one_reverses(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page()
    heading = browser.one("th[data-sort=ways]")
    heading.click()
    assert browser.texts(NAMES)[0] == "database"
    assert heading.get_attribute("aria-sort") == "descending"
    heading.click()
    assert browser.texts(NAMES)[0] == "mail-1"
    assert heading.get_attribute("aria-sort") == "ascending"
    browser.one("th[data-sort=name]").click()
    assert browser.texts(NAMES) == ["batch-1", "database", "mail-1", "web-1"]
    assert len(browser.all("[aria-sort]")) == 1


@pytest.mark.parametrize("key", ["occupancy", "total", "local", "remote"])
def test_vms_without_a_number_come_last_however_it_is_sorted(key: str, host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    silent = host.add("silent", 1)
    host.missing[silent["uuid"]] = dict.fromkeys(("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"), "unassigned")
    browser = open_page()
    for _ in range(2):
        browser.one(f"th[data-sort={key}]").click()
        assert browser.texts(NAMES)[-1] == "silent"


def test_words_find_vms_by_name_uuid_flavor_and_state(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    for number in range(16):
        host.add(f"worker-{number:02}")
    browser = open_page()
    find = browser.one("#find")
    for typed, names in (
        ("WORKER-1", [f"worker-{number}" for number in range(10, 16)]),
        ("worker c2", []),
        ("small worker-07", ["worker-07"]),
        ("c2.cache3", ["database"]),
        ("shared", ["batch-1"]),
        (host.vms[1]["uuid"][:13], ["web-1"]),
    ):
        find.clear()
        find.send_keys(typed)
        assert browser.texts(NAMES) == names
    assert browser.one("#vms-count").text == "1 of 20"
    find.send_keys("x")
    assert browser.one("#no-vms").text == "No VM fits what you look for."


def test_a_name_unfolds_everything_about_the_vm_and_folds_it_again(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    vm = host.vms[1]
    browser = open_page()
    name = unfold(browser, "web-1")
    assert name.get_attribute("aria-expanded") == "true"
    details = browser.one(".details:not([hidden])")
    assert details.get_attribute("id") == name.get_attribute("aria-controls")
    for text in (vm["uuid"], vm["name"], vm["project"], "2 ways, exclusive", "0-1: 18", vm["group"], "9 of 9"):
        assert text in details.text
    charts = browser.run("return [...document.querySelectorAll('.chart')].map((one) => one.getAttribute('aria-label'))")
    assert charts[0].startswith("Cache occupancy, all caches together over the last 10 min. occupancy: now ")
    assert "local: now" in charts[1] and "remote: now" in charts[1]
    name.click()
    assert name.get_attribute("aria-expanded") == "false"
    assert not browser.all(".details:not([hidden])")


@pytest.mark.parametrize("place", ["#attention .link", ".key .link", ".piece[data-vm]"])
def test_a_vm_opens_from_wherever_it_is_named(place: str, host: PlayedHost, open_page: OpenPage) -> None:
    host.add("web-1", 2, state="degraded", reason="1 of 9 tasks is elsewhere")
    host.add("mail-1")
    browser = open_page()
    browser.all(place)[0].click()
    assert host.vms[0]["uuid"] in browser.one(".details:not([hidden])").text
    assert browser.driver.switch_to.active_element.text == "web-1"


def test_what_runs_out_of_the_list_is_found_again_from_the_map(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page()
    browser.one("#find").send_keys("mail")
    browser.all(".key .link")[0].click()
    assert browser.one("#find").get_attribute("value") == ""
    assert browser.driver.switch_to.active_element.text == "web-1"


def test_a_look_changes_numbers_and_nothing_else(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook, wait_for: WaitFor
) -> None:
    few(host)
    for number in range(16):
        host.add(f"worker-{number:02}")
    browser = open_page()
    name = unfold(browser, "worker-07")
    browser.run("scrollTo(0, 900)")
    before = browser.run(SEEN)
    bandwidth = browser.texts("#vms tbody tr:first-child td:nth-of-type(4)")
    browser.run(
        "getSelection().selectAllChildren(document.querySelector('h2')); window.kept = document.querySelector('tbody')"
    )
    next_look()
    # Two looks may find what is rounded to the same figures.
    wait_for(lambda: browser.texts("#vms tbody tr:first-child td:nth-of-type(4)") != bandwidth, "other figures")
    after = browser.run(SEEN)
    assert after == before
    assert name.get_attribute("aria-expanded") == "true"
    assert (
        browser.run("return window.kept === document.querySelector('tbody') && String(getSelection())")
        == "Needs attention"
    )


def test_focus_stays_while_vms_come_and_go(host: PlayedHost, open_page: OpenPage, next_look: NextLook) -> None:
    few(host)
    browser = open_page()
    name = unfold(browser, "mail-1")
    host.remove(host.vms[0])
    host.add("aaa-first", 1)
    next_look()
    assert browser.driver.switch_to.active_element == name
    assert set(browser.texts(NAMES)) == {"web-1", "batch-1", "mail-1", "aaa-first"}
    host.remove(host.named("mail-1"))
    next_look()
    assert browser.driver.switch_to.active_element.get_attribute("id") == "vms-title"


def test_lines_keep_their_places_under_the_pointer(host: PlayedHost, open_page: OpenPage, next_look: NextLook) -> None:
    few(host)
    browser = open_page()
    browser.one("th[data-sort=name]").click()
    browser.all(NAMES)[0].click()
    host.vms[0]["instance_name"] = "zzz"
    next_look()
    assert browser.texts(NAMES) == ["batch-1", "zzz", "mail-1", "web-1"]
    browser.one("#find").click()
    next_look()
    assert browser.texts(NAMES) == ["batch-1", "mail-1", "web-1", "zzz"]
