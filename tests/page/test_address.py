# SPDX-License-Identifier: Apache-2.0
"""The view is in the page's address: a link opens what its sender saw, its order, VMs and charts."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from selenium.webdriver import Keys

from tests.functional.conftest import WaitFor
from tests.page.browser import Browser
from tests.page.conftest import NAMES, NextLook, OpenPage, Pause, heard, unfold
from tests.page.filled import crowded, few
from tests.page.played_host import PlayedHost


def fields(browser: Browser) -> list[tuple[str, str]]:
    """What the address says of the view."""
    return parse_qsl(urlsplit(browser.driver.current_url).query)


def unfolded(browser: Browser) -> list[str]:
    return [one.text for one in browser.all(f"{NAMES}[aria-expanded=true]")]


def test_a_link_opens_the_view_of_the_one_who_sent_it(host: PlayedHost, open_page: OpenPage, wait_for: WaitFor) -> None:
    few(host)
    for number in range(30):
        host.add(f"worker-{number:02}")
    browser = open_page()
    assert fields(browser) == []
    browser.one("th[data-sort=name]").click()
    browser.one("th[data-sort=name]").click()
    browser.one("#find").send_keys("small WORKER")
    unfold(browser, "worker-03")
    vm = host.named("worker-03")
    assert fields(browser) == [
        ("find", "small WORKER"), ("sort", "name"), ("order", "descending"), ("vm", vm["uuid"]),
    ]  # fmt: skip
    link = browser.driver.current_url
    browser.driver.get("about:blank")
    browser.open(link)
    wait_for(lambda: heard(browser), "the page having heard from the agent")
    assert browser.one("#find").get_attribute("value") == "small WORKER"
    assert browser.texts(NAMES) == [f"worker-{number:02}" for number in range(29, -1, -1)]
    assert browser.one("th[data-sort=name]").get_attribute("aria-sort") == "descending"
    assert unfolded(browser) == ["worker-03"]
    assert browser.driver.switch_to.active_element.text == "worker-03"
    assert vm["uuid"] in browser.one(".details:not([hidden])").text
    box = browser.run("return document.activeElement.getBoundingClientRect().toJSON()")
    assert 0 < box["top"] < 900


def test_the_back_button_undoes_a_step_and_the_forward_button_does_it_again(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    few(host)
    browser = open_page()
    browser.one("#find").send_keys("web")
    unfold(browser, "web-1")
    browser.all(".key .link")[0].click()
    assert unfolded(browser) == ["web-1"]
    browser.one("th[data-sort=ways]").click()
    assert browser.one("[aria-sort]").get_attribute("data-sort") == "ways"
    browser.driver.back()
    wait_for(lambda: ("sort", "ways") not in fields(browser), "the order having gone back")
    # The page hears of it a moment later.
    wait_for(lambda: browser.one("[aria-sort]").get_attribute("data-sort") == "state", "the list being in that order")
    assert unfolded(browser) == ["web-1"]
    browser.driver.back()
    wait_for(lambda: unfolded(browser) == [], "the VM being folded")
    # What was typed is no step of its own: it stays with the step before.
    assert browser.one("#find").get_attribute("value") == "web"
    browser.driver.forward()
    wait_for(lambda: unfolded(browser) == ["web-1"], "the VM being unfolded again")


def test_what_is_filtered_out_comes_back_as_it_was(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page()
    unfold(browser, "web-1")
    browser.one("#find").send_keys("mail")
    assert browser.texts(NAMES) == ["mail-1"]
    browser.one("#find").clear()
    browser.run("document.getElementById('find').dispatchEvent(new Event('input'))")
    assert unfolded(browser) == ["web-1"]


def test_a_vm_of_a_link_that_does_not_run_here_is_told(
    host: PlayedHost, browser: Browser, port: int, open_page: OpenPage, next_look: NextLook, wait_for: WaitFor
) -> None:
    few(host)
    hostile = "%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D1%3E"
    browser.emulate()
    browser.open(f"http://127.0.0.1:{port}/?vm={hostile}&sort=__proto__&order=sideways&find={'x' * 1000}")
    wait_for(lambda: heard(browser), "the page having heard from the agent")
    away = browser.one("#away")
    assert away.text == "VM <img src=x onerror=window.pwned=1> does not run on this host, or no more. Forget"
    assert (browser.all("img"), browser.run("return window.pwned")) == ([], None)
    assert browser.one("[aria-sort]").get_attribute("data-sort") == "state"
    assert browser.one("#find").get_attribute("value") == "x" * 200
    away.find_element("tag name", "button").click()
    assert not away.is_displayed()
    assert "vm" not in dict(fields(browser))

    browser = open_page()
    unfold(browser, "mail-1")
    mail = host.named("mail-1")
    host.remove(mail)
    next_look()
    assert browser.one("#away").text.startswith(f"VM {mail['uuid']} does not run on this host")


def test_who_goes_back_has_the_focus_where_it_was(
    host: PlayedHost, open_page: OpenPage, pause: Pause, wait_for: WaitFor
) -> None:
    crowded(host, 60)
    browser = open_page()
    pause()
    # Who is ranked changes from second to second. The first VMs of the list are on the screen with the ranks.
    first = browser.texts(NAMES)[:4]
    rank = next(one for one in browser.all("#ranking .link") if one.text not in first)
    rank.send_keys(Keys.ENTER)
    is_seen = "const box = arguments[0].getBoundingClientRect(); return box.top > 0 && box.bottom < innerHeight"
    wait_for(lambda: not browser.run(is_seen, rank), "the VM being on the screen instead")
    assert browser.driver.switch_to.active_element.get_attribute("aria-expanded") == "true"
    browser.driver.back()
    wait_for(lambda: unfolded(browser) == [], "the VM being folded")
    assert browser.driver.switch_to.active_element == rank
    wait_for(lambda: browser.run(is_seen, rank), "the list of those who move most being on the screen")


def test_escape_folds_the_vm_that_has_the_focus(host: PlayedHost, open_page: OpenPage, wait_for: WaitFor) -> None:
    few(host)
    browser = open_page()
    for name in ("mail-1", "web-1"):
        unfold(browser, name)
    browser.all(".moment")[0].send_keys(Keys.ESCAPE)
    assert browser.driver.switch_to.active_element.text == "web-1"
    assert unfolded(browser) == ["mail-1"]
    assert fields(browser) == [("vm", host.named("mail-1")["uuid"])]
    browser.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert unfolded(browser) == ["mail-1"]
    browser.driver.back()
    wait_for(lambda: unfolded(browser) == ["web-1", "mail-1"], "the VM being unfolded again")
