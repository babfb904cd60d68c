# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a browser, and a host that the test makes up behind the page's real application.

Every test fails at its end if the browser complained about anything, a violation of the security policy above all. A
test that provokes complaints takes them from ``browser.leave()`` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.remote.webelement import WebElement

from tests.functional.conftest import (
    Pace,
    WaitFor,
    _session_libvirt,
    agent,
    free_port,
    libvirt_host,
    made_agents,
    make_agent,
    make_vm,
    pace,
    resctrl,
    simulator,
    virt_type,
    waiting,
    workspace,
)
from tests.page.browser import Browser, running
from tests.page.played_host import COLUMNS, PlayedHost, serving
from tools.lab.workspace import Workspace

NAMES = "#vms .name"
"""Where the page has the names of the VMs."""

NextLook = Callable[[], None]
"""Wait until the page has asked anew and shown the answer."""

Pause = Callable[[], None]
"""Have the page ask no more, and wait until it has shown the answers to what it was asking."""


class OpenPage(Protocol):
    """Show the page of the test's host, and wait until it has heard from it.

    :param scheme: ``light`` or ``dark``.
    :param size: the screen's.
    """

    def __call__(self, scheme: str = ..., size: tuple[int, int] = ...) -> Browser: ...


@pytest.fixture(scope="session")
def _session_browser(workspace: Workspace) -> Iterator[Browser]:
    try:
        with running(workspace) as browser:
            yield browser
    except FileNotFoundError as error:
        pytest.fail(f"the tests of the page need {error}; tools/test installs packages.", pytrace=False)


@pytest.fixture
def browser(_session_browser: Browser) -> Iterator[Browser]:
    """A browser with nothing in it."""
    _session_browser.leave()
    yield _session_browser
    assert not _session_browser.leave()


@pytest.fixture
def host() -> PlayedHost:
    """A host without VMs."""
    return PlayedHost()


@pytest.fixture
def port(host: PlayedHost) -> Iterator[int]:
    """Where the host's page is served on loopback."""
    with serving(host) as number:
        yield number


@pytest.fixture
def wait_for(pace: Pace) -> WaitFor:
    """As everywhere; an element that a look of the page's took away meanwhile counts as not true."""
    wait_for_anything = waiting(pace)

    def wait(condition: Callable[[], bool], what: str, timeout: float | None = None) -> None:
        def steadily() -> bool:
            try:
                return condition()
            except StaleElementReferenceException:
                return False

        wait_for_anything(steadily, what, timeout)

    return wait


@pytest.fixture
def open_page(browser: Browser, port: int, wait_for: WaitFor) -> Iterator[OpenPage]:
    """See :class:`OpenPage`."""

    def open_it(scheme: str = "light", size: tuple[int, int] = (1280, 900)) -> Browser:
        browser.emulate(scheme, size)
        browser.open(f"http://127.0.0.1:{port}/")
        wait_for(lambda: heard(browser), "the page having heard from the agent")
        # The browser remembers 250 questions otherwise, see HEARD.
        browser.run("performance.setResourceTimingBufferSize(100000)")
        return browser

    yield open_it
    # Before its server ends, which it would complain about.
    browser.driver.get("about:blank")


@pytest.fixture
def next_look(browser: Browser, host: PlayedHost, wait_for: WaitFor) -> NextLook:
    """See :data:`NextLook`."""

    def wait() -> None:
        asked = host.asked.count("/v1/health")
        # The second one is not sent before the first one's answer is shown.
        wait_for(lambda: host.asked.count("/v1/health") >= asked + 2, "the page asking the agent anew")

    return wait


@pytest.fixture
def pause(browser: Browser, host: PlayedHost, wait_for: WaitFor) -> Pause:
    """See :data:`Pause`."""

    def stop_asking() -> None:
        browser.one("#pause").click()
        wait_for(lambda: is_quiet(browser, host), "the end of the look under way")

    return stop_asking


def heard(browser: Browser) -> bool:
    """Whether the page shows what an agent said."""
    return bool(browser.run("return !document.getElementById('freshness').hidden"))


def unfold(browser: Browser, text: str) -> WebElement:
    """Unfold the row of the VM that has this name, or fold it; the name."""
    name = next(one for one in browser.all(NAMES) if one.text == text)
    name.click()
    return name


def details(browser: Browser) -> dict[str, str]:
    """What unfolded rows tell."""
    return browser.pairs(".detail dt", ".detail dd")


def charts(browser: Browser) -> list[str]:
    """What each chart tells in words."""
    return [str(one.get_attribute("aria-label")).split(" over the last ")[0] for one in browser.all(".chart")]


def show_the_day(browser: Browser, wait_for: WaitFor, *, charts: int) -> None:
    """Have the charts show the day, and wait until each of so many is drawn with its least and greatest values."""
    browser.all("[data-charts=day]")[0].click()
    wait_for(lambda: browser.all(".band")[-1].get_attribute("d"), "the day being drawn")
    bands = browser.run("return [...document.querySelectorAll('.band')].map((one) => one.getAttribute('d').length)")
    assert len(bands) == charts and min(bands) > 1000


HEARD = """
const numbers = ['/v1/telemetry', '/v1/telemetry/columns'];
const asked = performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname);
const last = asked.findLast((path) => path === '/v1/health' || numbers.includes(path));
return new Promise((done) => setTimeout(() => done(numbers.includes(last)), 300));
"""
"""Whether the page had the answer about numbers after that about health: it has the time to show it, too."""


def is_quiet(browser: Browser, host: PlayedHost) -> bool:
    """Whether a page that is paused has shown the answers to all that it asked."""
    asked = host.asked[:]
    has_heard = browser.run(HEARD)
    # A look begins with the one question and ends with the other, unless the page gives it up.
    look = asked[len(asked) - asked[::-1].index("/v1/health") :]
    is_whole = bool({"/v1/telemetry", COLUMNS} & set(look)) and has_heard
    return host.asked == asked and (is_whole or browser.one("#silence").is_displayed())


__all__ = [
    "_session_libvirt",
    "agent",
    "free_port",
    "libvirt_host",
    "made_agents",
    "make_agent",
    "make_vm",
    "pace",
    "resctrl",
    "simulator",
    "virt_type",
    "workspace",
]
