# SPDX-License-Identifier: Apache-2.0
"""What the page makes of an agent that tells less than everything, or nothing."""

from __future__ import annotations

import pytest

from tests.functional.conftest import WaitFor
from tests.functional.page.browser import Browser
from tests.functional.page.conftest import NAMES, NextLook, OpenPage
from tests.functional.page.filled import few
from tests.functional.page.played_host import PlayedHost, serving


def test_an_agent_that_falls_silent_is_told_and_so_is_its_return(
    host: PlayedHost, browser: Browser, wait_for: WaitFor, free_port: int
) -> None:
    few(host)
    with serving(host, free_port):
        browser.emulate()
        browser.open(f"http://127.0.0.1:{free_port}/")
        wait_for(lambda: browser.texts(NAMES) != [], "the VMs being shown", 30)
    silence = browser.one("#silence")
    wait_for(silence.is_displayed, "the silence being told", 30)
    assert silence.text.startswith("The agent does not answer (no connection). What you see is of ")
    assert silence.get_attribute("role") == "alert"
    assert browser.one("#health").text == "no answer"
    assert "does not answer" in browser.driver.title
    assert len(browser.texts(NAMES)) == 4
    with serving(host, free_port):
        wait_for(lambda: not silence.is_displayed(), "the agent's return being told", 30)
        assert browser.one("#health").text == "ok"
        assert browser.one("#news").get_attribute("textContent") == "The agent answers again."
        browser.leave()
    # Which of them it is depends on what was under way when the server ended.
    assert all("net::ERR_" in complaint for complaint in browser.errors())


def questions_within(milliseconds: int, browser: Browser, host: PlayedHost) -> int:
    """How many questions the page asks in that time."""
    before = len(host.asked)
    browser.run("return new Promise((done) => setTimeout(done, arguments[0]))", milliseconds)
    return len(host.asked) - before


def test_pause_stops_the_asking(host: PlayedHost, open_page: OpenPage, next_look: NextLook, wait_for: WaitFor) -> None:
    browser = open_page()
    pause = browser.one("#pause")
    pause.click()
    assert pause.get_attribute("aria-pressed") == "true"
    # The look under way goes on.
    wait_for(lambda: not questions_within(1000, browser, host), "a second without a question")
    assert questions_within(4500, browser, host) == 0
    pause.click()
    next_look()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/telemetry", "No counters: there is no monitoring here."),
        ("/v1/caches", "there is no monitoring here."),
        ("/v1/capabilities", "there is no monitoring here."),
    ],
)
def test_what_the_agent_can_not_tell_is_told_and_the_rest_is_shown(
    path: str, told: str, host: PlayedHost, open_page: OpenPage
) -> None:
    few(host)
    host.broken[path] = ("503 Service Unavailable", "there is no monitoring here")
    browser = open_page()
    assert told.rstrip(".") in browser.one("body").text
    assert len(browser.texts(NAMES)) == 4
    assert all("503" in complaint for complaint in browser.errors())


def test_an_agent_that_has_only_started_needs_no_attention(
    host: PlayedHost, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = host._health()
    unknown = {
        "status": "starting",
        "resctrl": health["resctrl"] | {"mounted": None},
        "libvirt": health["libvirt"] | {"connected": False},
    }
    monkeypatch.setattr(host, "_health", lambda: health | unknown)
    browser = open_page()
    assert browser.texts("#attention li") == []
    assert browser.one("#health").text == "starting"
    assert browser.one("#host").text.count("first look under way") == 2
    assert browser.one("#no-vms").text == "libvirt does not say which VMs run."


def test_a_lost_resctrl_needs_attention(host: PlayedHost, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {"path": "/sys/fs/resctrl", "mounted": False, "error": "resctrl is not mounted", "simulated": False}
    healthy = host._health()
    monkeypatch.setattr(host, "_health", lambda: healthy | {"resctrl": lost, "status": "failing"})
    browser = open_page()
    assert browser.texts("#attention li") == ["failing resctrl\nresctrl is not mounted"]
    assert browser.one("#health").text == "failing"
