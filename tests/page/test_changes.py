# SPDX-License-Identifier: Apache-2.0
"""The last changes: what happened to which VM, and when."""

from __future__ import annotations

import datetime

from tests.page.conftest import NextLook, OpenPage, plots
from tests.page.filled import changed, few
from tests.page.played_host import PlayedHost


def lines(texts: list[str]) -> list[str]:
    """Each line without its time, which is a word, or two for another day."""
    return [" ".join(word for word in text.split() if not word[0].isdigit() or word.isdigit()) for text in texts]


def test_the_last_changes_are_told_the_newest_first(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    changed(host)
    browser = open_page()
    shown = browser.texts("#changes li")
    assert lines(shown) == [
        "resctrl works",
        "resctrl fails resctrl is not mounted",
        "mail-1 still none",
        "database degraded \N{RIGHTWARDS ARROW} kept",
        "database kept \N{RIGHTWARDS ARROW} degraded 1 of 9 tasks is elsewhere",
    ]
    more = browser.one("#more")
    assert (more.text, more.get_attribute("aria-expanded")) == ("All 7", "false")
    more.click()
    assert lines(browser.texts("#changes li"))[5:] == ["gone-1 was kept ended", "4 VMs came none"]
    assert more.get_attribute("aria-expanded") == "true"
    assert host.events is not None
    times = [one.get_attribute("datetime") for one in browser.all("#changes time")]
    for event, told in zip(host.events[::-1], times, strict=False):
        when = datetime.datetime.fromtimestamp(event["time"], datetime.UTC)
        assert told == when.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert browser.texts("#changes time")[-1].startswith(times[-1][:10])


def test_a_change_leads_to_its_vm_if_that_runs(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    changed(host)
    browser = open_page()
    browser.one("#more").click()
    assert browser.texts("#changes .link:not([hidden])") == ["mail-1", "database", "database"]
    browser.all("#changes .link:not([hidden])")[1].click()
    assert host.vms[0]["uuid"] in browser.one(".details:not([hidden])").text
    assert browser.driver.switch_to.active_element.text == "database"


def test_only_what_is_new_is_asked_for_and_a_new_run_of_the_agent_is_understood(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook
) -> None:
    few(host)
    browser = open_page()
    assert browser.one("#no-changes").text == "None since the agent started."
    host.happen(host.vms[1], "pending", "kept", reason="no way is left")
    next_look()
    assert lines(browser.texts("#changes li")) == ["web-1 kept \N{RIGHTWARDS ARROW} pending no way is left"]
    next_look()
    assert len(browser.all("#changes li")) == 1
    assert not browser.one("#no-changes").is_displayed()
    host.epoch, host.events = "second", []
    host.happen(host.vms[0], "kept", "")
    next_look()
    assert [line.partition(" ")[0] for line in lines(browser.texts("#changes li"))] == ["database", "web-1"]


def test_an_older_agent_that_tells_no_changes_has_no_list_of_them(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    host.events = None
    browser = open_page()
    assert not browser.one("#changed").is_displayed()
    assert browser.texts("#attention li") == []
    assert all("404" in complaint for complaint in browser.leave())


def test_a_vm_that_is_slowed_and_is_no_more_is_told_with_its_neighbour(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    victim, culprit = host.vms[0], host.vms[3]
    about = {"kind": "neighbour", "culprit": culprit["uuid"], "reason_code": "cache"}
    host.happen(victim, "slowed", "undisturbed", 300.0, reason="mail-1 takes cache from it", **about)
    host.happen(victim, "unknown", "slowed", 200.0, reason="it began too long ago to tell", **about)
    host.happen(victim, "undisturbed", "slowed", 100.0, reason="mail-1 has ended", **about)
    browser = open_page()
    assert lines(browser.texts("#changes li")) == [
        "database undisturbed mail-1 has ended",
        "database unknown it began too long ago to tell",
        "database slowed mail-1 takes cache from it",
    ]
    levels = [one.get_attribute("data-level") for one in browser.all("#changes .badge")]
    assert levels == ["ok", "none", "pending"]
    browser.all("#changes .link:not([hidden])")[0].click()
    assert [len(places) for places in plots(browser, "places(plot, '--pending', 30)")] == [3, 3]


def test_few_vms_that_come_at_a_time_are_told_one_by_one(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    for number, vm in enumerate(host.vms):
        host.happen(vm, "kept" if number else "none", "", time=1e9)
    browser = open_page()
    assert lines(browser.texts("#changes li")) == [
        "mail-1 came kept", "batch-1 came kept", "web-1 came kept", "database came none",
    ]  # fmt: skip
