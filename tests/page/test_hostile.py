# SPDX-License-Identifier: Apache-2.0
"""Names that users chose, and pages elsewhere that would like to read this one."""

from __future__ import annotations

import http.client
from collections.abc import Callable

import pytest

from tests.functional.conftest import WaitFor
from tests.page.conftest import OpenPage
from tests.page.played_host import PlayedHost

HOSTILE = [
    "<img src=x onerror=window.pwned=1>",
    "<script>window.pwned=1</script>",
    "'\"><svg onload=window.pwned=1>",
    "javascript:window.pwned=1",
    "{{constructor.constructor('window.pwned=1')()}}",
    "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe",
    "line\nbreak\ttab\x07bell",
    "</td></tr></table><form action=//evil.example><button>Log in",
    "A" * 4000,
    "__proto__",
    "&lt;b&gt;",
]


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: name[:30])
def test_a_hostile_name_is_text_wherever_it_is_shown(
    name: str, host: PlayedHost, open_page: OpenPage, next_look: Callable[[], None]
) -> None:
    everywhere = {"flavor": name, "project": name, "reason": name, "last_error": name, "unmonitored_reason": name}
    host.add("plain", 1)
    host.happen(host.vms[0], "kept", "pending")
    plain = open_page()
    plain.all("#vms .name")[0].click()
    kinds = set(plain.run("return [...document.querySelectorAll('*')].map((one) => one.tagName)"))
    host.vms.clear()
    host.add(name, 1, **everywhere)
    host.add(name, 0, state="degraded", **everywhere)
    for vm in host.vms:
        host.happen(vm, name, name, reason=name)
        host.happen({"uuid": name, "instance_name": name, "name": name}, name, name, kind=name, reason=name)
    browser = open_page()
    for shown in browser.all("#vms .name"):
        shown.click()
    next_look()
    assert browser.run("return window.pwned") is None
    allowed = kinds | {"STRONG", "LI", "P", "UL"}
    assert set(browser.run("return [...document.querySelectorAll('*')].map((one) => one.tagName)")) <= allowed
    attributes = browser.run(
        "const names = [...document.querySelectorAll('*')].flatMap((one) => one.getAttributeNames());"
        "return names.filter((one) => /^on/.test(one))"
    )
    assert attributes == []
    text = browser.run("return document.querySelector('#vms .name bdi').textContent")
    if name.isprintable():
        assert text == name
    else:
        assert text.isprintable() and "\\u{" in text


def test_a_group_with_a_hostile_name_is_text_too(host: PlayedHost, open_page: OpenPage) -> None:
    host.add("web-1", 1, group=HOSTILE[0])
    browser = open_page()
    assert browser.run("return window.pwned") is None
    assert browser.all("img") == []


def test_what_is_locked_and_in_which_unit_is_text_too(host: PlayedHost, open_page: OpenPage) -> None:
    host.locks, host.bandwidth_unit = {f"vmqos.lock-{HOSTILE[0]}": 2}, HOSTILE[0]
    host.add("web-1", 1, bandwidth={"0": 50}, bandwidth_unit=HOSTILE[0], l2_masks={HOSTILE[0]: "1", "0": "3"})
    browser = open_page()
    browser.all("#vms .name")[0].click()
    assert f"lock {HOSTILE[0]}" in browser.one(".cache:first-child .key").text
    assert f"at most 50 {HOSTILE[0]}" in browser.one(".cache:first-child .key").text
    assert browser.run("return window.pwned") is None
    assert browser.all("img") == []


def test_the_agents_own_words_are_text_too(host: PlayedHost, open_page: OpenPage) -> None:
    for path in ("/v1/caches", "/v1/telemetry", "/v1/capabilities"):
        host.broken[path] = ("503 Service Unavailable", HOSTILE[0])
    browser = open_page()
    assert HOSTILE[0] in browser.one("#attention").text
    assert browser.run("return window.pwned") is None
    assert browser.all("img") == []
    assert all("503" in complaint for complaint in browser.leave())


@pytest.mark.parametrize(
    "attempt",
    [
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.pwned = 1'}))",
        "document.body.append(Object.assign(document.createElement('script'), {src: 'data:,window.pwned=1'}))",
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.pwned=1>')",
        "document.body.insertAdjacentHTML('beforeend', '<iframe srcdoc=\"<script>parent.pwned=1</script>\"></iframe>')",
        "document.body.insertAdjacentHTML('beforeend', '<style>body { --pwned: 1 }</style>')",
        "document.body.insertAdjacentHTML('beforeend', '<form action=/v1/vms><button>x</button></form>');"
        "document.querySelector('form').submit()",
        "fetch('http://127.0.0.2:9/').catch(() => {})",
        "document.body.insertAdjacentHTML('beforeend', '<a href=\"javascript:window.pwned=1\">x</a>');"
        "document.body.lastChild.click()",
    ],
)
def test_what_the_page_does_not_do_the_browser_would_not_let_it_do(
    attempt: str, open_page: OpenPage, wait_for: WaitFor
) -> None:
    browser = open_page()
    browser.run(attempt)
    complaints: list[str] = []

    def is_blocked() -> bool:
        complaints.extend(browser.errors())
        return any("Content Security Policy" in complaint for complaint in complaints)

    def is_over() -> bool:
        browser.run("return new Promise((done) => setTimeout(done, 300))")
        return not browser.errors()

    wait_for(is_blocked, "the browser refusing it")
    wait_for(is_over, "its last complaint")
    assert browser.run("return window.pwned") is None
    assert browser.run("return getComputedStyle(document.body).getPropertyValue('--pwned')") == ""
    # On a slow machine another complaint about the same may come later, and before the page is left.
    browser.leave()


def test_a_page_elsewhere_can_not_put_this_one_into_a_frame(host: PlayedHost, open_page: OpenPage, port: int) -> None:
    browser = open_page()
    browser.open(f"data:text/html,<iframe src='http://127.0.0.1:{port}/'></iframe>")
    browser.driver.switch_to.frame(0)
    assert browser.run("return document.URL") == "chrome-error://chromewebdata/"
    browser.driver.switch_to.default_content()


def test_a_name_that_somebody_else_points_here_gets_nothing(port: int) -> None:
    for path in ("/", "/v1/vms", "/page/main.js", "/metrics"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", path, headers={"Host": f"rebound.example:{port}"})
        answer = connection.getresponse()
        assert answer.status == 421
        assert b"uuid" not in answer.read()
        connection.close()
