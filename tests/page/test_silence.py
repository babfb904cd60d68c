# SPDX-License-Identifier: Apache-2.0
"""What the page makes of an agent that tells less than everything, or nothing."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.functional.conftest import WaitFor
from tests.page.browser import Browser
from tests.page.conftest import NAMES, NextLook, OpenPage, Pause
from tests.page.filled import few
from tests.page.played_host import PlayedHost, serving
from vmqos.daemon.bounded_server import BoundedServer
from vmqos.daemon.unix_server import UnixServer
from vmqos.gateway.metrics.text import Metrics
from vmqos.gateway.page import Site
from vmqos.gateway.relay import Relay
from vmqos.local_api.client import AgentClient


def test_an_agent_that_falls_silent_is_told_and_so_is_its_return(
    host: PlayedHost, browser: Browser, wait_for: WaitFor, free_port: int
) -> None:
    few(host)
    with serving(host, free_port):
        browser.emulate()
        browser.open(f"http://127.0.0.1:{free_port}/")
        wait_for(lambda: browser.texts(NAMES) != [], "the VMs being shown")
    silence = browser.one("#silence")
    wait_for(silence.is_displayed, "the silence being told")
    # A question that was under way may have had no answer; the next one has no connection.
    wait_for(
        lambda: silence.text.startswith("The agent does not answer (no connection). What you see is of "), "the reason"
    )
    assert silence.get_attribute("role") == "alert"
    assert browser.one("#health").text == "agent silent"
    assert "does not answer" in browser.driver.title
    assert len(browser.texts(NAMES)) == 4
    # What was some seconds old when the agent answered last grows older, and that stands beside the figures.
    young = [f"counters {seconds} s ago" for seconds in range(4)]
    wait_for(lambda: browser.texts("[data-ages]")[0] not in ("", *young), "the figures growing older")
    assert all(" s ago" in text for text in browser.texts("[data-ages]"))
    # Of one moment: the page goes on to try, and the figures grow older.
    last, ages = browser.run(
        "return [[...document.querySelectorAll('#host dt')].find((one) => one.textContent === 'Last looks')"
        ".nextElementSibling.textContent, [...document.querySelectorAll('[data-ages]')].at(-1).textContent]"
    )
    assert last == ages != "VMs 0 s ago, counters 0 s ago"
    with serving(host, free_port):
        wait_for(lambda: not silence.is_displayed(), "the agent's return being told")
        assert browser.one("#health").text == "agent ok"
        assert not any(browser.texts("[data-ages]"))
        assert browser.one("#news").get_attribute("textContent") == "The agent answers again."
        complaints = browser.leave()
    # Which of them it is depends on what was under way when the server ended.
    assert complaints and all("net::ERR_" in complaint for complaint in complaints)


def test_an_agent_that_goes_while_its_gateway_stays_is_told_and_so_is_its_return(
    host: PlayedHost, browser: Browser, wait_for: WaitFor, free_port: int, tmp_path: Path
) -> None:
    few(host)
    socket = str(tmp_path / "agent.sock")
    agent = AgentClient(socket)
    openstack = SimpleNamespace(placement=lambda: None, nova=lambda: None, notifications=lambda: None)
    relay = Relay(agent, openstack, Metrics(agent, openstack))
    gateway = BoundedServer(Site(relay), "gateway", host="127.0.0.1", port=free_port)
    gateway.start()
    try:
        server = UnixServer(host.serve, "[gateway] agent_socket", socket, mode="600")
        server.start()
        browser.emulate()
        browser.open(f"http://127.0.0.1:{free_port}/")
        wait_for(lambda: browser.texts(NAMES) != [], "the VMs being shown")
        server.stop()
        silence = browser.one("#silence")
        wait_for(silence.is_displayed, "the silence being told")
        reason = "The agent does not answer (vmqos-agent does not run, or does not answer on "
        wait_for(lambda: silence.text.startswith(reason), "the reason")
        assert " What you see is of " in silence.text
        assert browser.one("#health").text == "agent silent"
        assert len(browser.texts(NAMES)) == 4
        server = UnixServer(host.serve, "[gateway] agent_socket", socket, mode="600")
        server.start()
        wait_for(lambda: not silence.is_displayed(), "the agent's return being told")
        assert browser.one("#health").text == "agent ok"
        complaints = browser.leave()
        server.stop()
    finally:
        gateway.stop()
    assert complaints and all("503" in complaint for complaint in complaints)


def boxes(browser: Browser) -> list[tuple[str, str]]:
    """Each part of the page that is drawn as a box or says something where there is nothing, with its text."""
    parts = "#host, #calm, #no-ways, #no-vms, .wide"
    return [(one.get_attribute("id") or "", one.text) for one in browser.all(parts) if one.is_displayed()]


def test_a_page_that_is_opened_while_the_agent_is_silent_says_so_in_each_part(
    host: PlayedHost, browser: Browser, wait_for: WaitFor, free_port: int, tmp_path: Path
) -> None:
    few(host)
    socket = str(tmp_path / "agent.sock")
    agent = AgentClient(socket)
    openstack = SimpleNamespace(placement=lambda: None, nova=lambda: None, notifications=lambda: None)
    gateway = BoundedServer(
        Site(Relay(agent, openstack, Metrics(agent, openstack))), "gateway", host="127.0.0.1", port=free_port
    )
    gateway.start()
    try:
        browser.emulate()
        browser.open(f"http://127.0.0.1:{free_port}/")
        wait_for(browser.one("#silence").is_displayed, "the silence being told")
        unknown = "Not known: the agent has not answered yet."
        assert boxes(browser) == [
            ("calm", unknown),
            ("host", "Agent\nhas not answered yet"),
            ("no-ways", unknown),
            ("no-vms", unknown),
        ]
        assert not browser.one("#finder").is_displayed()
        server = UnixServer(host.serve, "[gateway] agent_socket", socket, mode="600")
        server.start()
        wait_for(lambda: len(browser.texts(NAMES)) == 4, "the VMs being shown")
        assert unknown not in browser.one("body").text
        assert browser.one("#finder").is_displayed()
        complaints = browser.leave()
        server.stop()
    finally:
        gateway.stop()
    assert complaints and all("503" in complaint for complaint in complaints)


def questions_within(milliseconds: int, browser: Browser, host: PlayedHost) -> int:
    """How many questions the page asks in that time."""
    before = len(host.asked)
    browser.run("return new Promise((done) => setTimeout(done, arguments[0]))", milliseconds)
    return len(host.asked) - before


def test_pause_stops_the_asking(host: PlayedHost, open_page: OpenPage, next_look: NextLook, pause: Pause) -> None:
    browser = open_page()
    # The look under way goes on.
    pause()
    assert browser.one("#pause").get_attribute("aria-pressed") == "true"
    assert questions_within(4500, browser, host) == 0
    browser.one("#pause").click()
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
    assert all("503" in complaint for complaint in browser.leave())


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
    assert browser.one("#health").text == "agent starting"
    assert browser.one("#host").text.count("first look under way") == 2
    assert browser.one("#no-vms").text == "libvirt does not say which VMs run."


def test_a_lost_resctrl_needs_attention(host: PlayedHost, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {"path": "/sys/fs/resctrl", "mounted": False, "error": "resctrl is not mounted", "simulated": False}
    healthy = host._health()
    monkeypatch.setattr(host, "_health", lambda: healthy | {"resctrl": lost, "status": "failing"})
    browser = open_page()
    assert browser.texts("#attention li") == ["failing resctrl\nresctrl is not mounted"]
    assert browser.one("#health").text == "agent failing"


def test_figures_that_are_old_are_told_with_their_age_though_the_agent_answers(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook
) -> None:
    few(host)
    browser = open_page()
    old = browser.one("#old")
    assert not old.is_displayed()
    host.ages, host.stale = {"vms": 200.0, "pass": None, "counters": 40.0}, ["vms", "pass", "counters"]
    next_look()
    assert old.get_attribute("role") == "alert"
    assert old.text == (
        "What you see is old, although the agent answers: it last looked at all VMs 3 min 20 s ago, has not ended a "
        "pass without an error yet and last read the counters 40 s ago."
    )
    assert browser.run("return document.body.classList.contains('stale')")
    assert browser.one("#health").text == "agent degraded"
    facts = browser.pairs("#host dt", "#host dd")
    assert facts["Last looks"] == "VMs 3 min 20 s ago, counters 40 s ago"
    assert [text for text in browser.texts("[data-ages]") if text] == [
        "counters 40 s ago",
        "groups not seen yet, counters 40 s ago",
        "VMs 3 min 20 s ago, counters 40 s ago",
    ]
    host.ages, host.stale = {"vms": 0.3, "pass": 0.3, "counters": 0.8}, []
    next_look()
    assert not old.is_displayed()
    assert not any(browser.texts("[data-ages]"))
    assert not browser.run("return document.body.classList.contains('stale')")


def test_the_time_of_the_page_is_that_of_the_last_look_at_the_vms(host: PlayedHost, open_page: OpenPage) -> None:
    host.ages["vms"] = 3600.0
    began = int(time.time())
    browser = open_page()
    shown = browser.run("return document.getElementById('time').textContent")
    told = browser.run(
        "const {moment} = await import('/page/format.js');return arguments[0].map((now) => moment(now - 3600))",
        list(range(began, int(time.time()) + 1)),
    )
    assert shown in told


def test_an_older_agent_that_tells_no_ages_is_no_reason_to_complain(
    host: PlayedHost, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(host)
    before = {name: value for name, value in host._health().items() if name not in ("ages", "stale", "unserved")}
    monkeypatch.setattr(host, "_health", lambda: before)
    browser = open_page()
    assert not browser.one("#old").is_displayed()
    assert browser.texts(NAMES) != []
    assert "Last looks" not in browser.texts("#host dt")


def test_where_no_vm_is_served_the_page_does_not_say_that_none_runs(host: PlayedHost, open_page: OpenPage) -> None:
    host.unserved["4f2c1a9e-0f0b-4a55-9c1e-2b6d7a90c3aa"] = "its process can't be read within 1 s"
    assert open_page().one("#no-vms").text == "No VM is known."


def test_a_vm_that_is_not_served_needs_attention(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    identity = "4f2c1a9e-0f0b-4a55-9c1e-2b6d7a90c3aa"
    host.unserved[identity] = "its process can't be read within 1 s"
    browser = open_page()
    assert browser.texts("#attention li") == [f"unserved VM {identity}\nits process can't be read within 1 s"]
