# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a browser, and a host that the test makes up behind the page's real application.

Every test fails at its end if the browser complained about anything, a violation of the security policy above all. A
test that provokes complaints takes them from ``browser.leave()`` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

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


LOOK = """
const known = (values) => values.filter((value) => value !== null);
// What a plot's canvas shows. A copy, for browsers complain about canvases that are read often.
function read(plot, ...box) {
  const {canvas} = plot.ctx;
  const size = {width: canvas.width, height: canvas.height};
  const copy = Object.assign(document.createElement('canvas'), size).getContext('2d', {willReadFrequently: true});
  copy.drawImage(canvas, 0, 0);
  return copy.getImageData(...box).data;
}
// The strongest pixel of the canvas near a time and a value, as red, green, blue and opacity.
function pixel(plot, time, value) {
  const [x, y] = [plot.valToPos(time, 'x', true), plot.valToPos(value, 'y', true)].map(Math.round);
  const near = [-1, 0, 1].map((more) => [...read(plot, x, y + more, 1, 1)]);
  return near.reduce((most, one) => one[3] > most[3] ? one : most);
}
// For each column or row of the plot, how many pixels have a colour of the page; any colour without a name.
function inked(plot, name, way) {
  const {left, top, width, height} = plot.bbox;
  const data = read(plot, left, top, width, height);
  const hex = name && getComputedStyle(plot.root).getPropertyValue(name);
  const colour = hex && [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const found = new Array(way === 'columns' ? width : height).fill(0);
  for (let at = 0; at < data.length; at += 4) {
    const near = !colour || data[at + 3] > 200 && colour.every((part, one) => Math.abs(part - data[at + one]) < 6);
    if (near && data[at + 3]) found[way === 'columns' ? at / 4 % width : Math.floor(at / 4 / width)] += 1;
  }
  return found;
}
// The places, 0 to 1, of the columns that have more than so many pixels of a colour: neighbours are one place.
function places(plot, name, more = 0) {
  const columns = inked(plot, name, 'columns');
  return columns.flatMap((pixels, at) => pixels > more && !(columns[at - 1] > more) ? [at / columns.length] : []);
}
return [...document.querySelectorAll('.chart')].map((chart) => chart.plot).filter(Boolean).map((plot) => """
"""What tells of the canvas of a chart; an expression over it follows."""


def plots(browser: Browser, expression: str) -> list[Any]:
    """An expression over each chart that is drawn: ``plot`` is what uPlot makes of it, see LOOK, too."""
    return list(browser.run(f"{LOOK}{expression})"))


def beside(browser: Browser) -> list[list[str]]:
    """What stands beside the scale of each chart."""
    return plots(browser, "plot.axes[1]._show ? plot.axes[1]._values : []")


def banded(browser: Browser) -> list[bool]:
    """Whether each chart has a band from the least to the greatest values, rather than from 0 to the line."""
    return plots(
        browser, "plot.data[2].some((least) => least > 0) || plot.data[1].some((most, at) => most !== plot.data[3][at])"
    )


def lengths(browser: Browser) -> list[list[int]]:
    """How many points each line of each chart has."""
    return plots(browser, "plot.data.slice(3).map((line) => known(line).length)")


def show_the_day(browser: Browser, wait_for: WaitFor, *, charts: int) -> None:
    """Have the charts show the day, and wait until each of so many is drawn with its least and greatest values."""
    browser.all("[data-charts=day]")[0].click()
    wait_for(lambda: all(banded(browser)), "the day being drawn")
    bands = plots(browser, "known(plot.data[1]).length")
    assert len(bands) == charts and min(bands) > 200


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
