# SPDX-License-Identifier: Apache-2.0
"""The page as people use it: by eye and pointer, in Chromium."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.functional.conftest import WaitFor
from tests.functional.page.browser import PHONE, Browser
from tests.functional.page.conftest import OpenPage
from tests.functional.page.played_host import PlayedHost, serving

NAMES = "#vms .name"
NONE = "\N{EN DASH}"
NextLook = Callable[[], None]


def few(host: PlayedHost) -> None:
    host.add("database", 3)
    host.add("web-1", 2)
    host.add("batch-1", 2, "shared")
    host.add("mail-1")


def test_vms_in_trouble_come_first_and_with_their_reasons(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    host.add("big-1", ways_requested=6, state="pending", reason="L3 cache 0 has 2 ways to give", retry_in=12.0)
    host.add("typo-1", state="degraded", reason="hw:cache_ways='two'", last_error="write failed with EINVAL")
    browser = open_page()
    first, second = browser.texts("#attention li")
    assert first.splitlines()[:3] == ["degraded typo-1", "hw:cache_ways='two'", "write failed with EINVAL"]
    assert second.splitlines()[:2] == ["pending big-1", "L3 cache 0 has 2 ways to give"]
    assert "asks for 6 ways, exclusive" in second and "next try in 12 s" in second
    tops = browser.run("return ['attention', 'host', 'ways', 'vms'].map((id) => document.getElementById(id).offsetTop)")
    assert tops == sorted(tops)
    assert browser.texts(NAMES)[:2] == ["typo-1", "big-1"]
    assert browser.driver.title == "(2) compute-7 · vmqos"
    assert not browser.one("#calm").is_displayed()


def test_a_host_without_trouble_says_so(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page()
    assert browser.one("#calm").text == "Nothing. 3 promises kept."
    assert browser.texts("#attention li") == []
    assert browser.driver.title == "compute-7 · vmqos"


def test_a_host_without_vms_is_shown_as_what_it_is(open_page: OpenPage) -> None:
    browser = open_page()
    assert browser.one("#no-vms").text == "No VM runs on this host."
    assert not browser.one("#vms").is_displayed()
    assert browser.texts(".cache h3") == ["L3 cache 0", "L3 cache 1"]


def test_the_line_of_the_host_tells_its_health_caches_closids_and_rmids(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page()
    titles, texts = browser.texts("#host dt"), browser.texts("#host dd")
    assert dict(zip(titles, texts, strict=True)) == {
        "Agent": "1.4.0, up 1 d 2 h",
        "Last pass": "4.2 ms",
        "resctrl": "the kernel's",
        "libvirt": "connected",
        "Caches": "2 \N{MULTIPLICATION SIGN} L3, 11 ways, 16.5 MiB each",
        "CLOSIDs": "4 of 16 in use",
        "RMIDs": "6 of 224 in use",
    }
    assert (browser.one("#host-name").text, browser.one("#health").text) == ("compute-7", "ok")


def test_the_map_shows_every_group_where_its_ways_are(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page()
    placed = browser.run(
        """
        const lanes = [...document.querySelector('.picture').querySelectorAll('.lane:not(.axis)')];
        return lanes.map((lane) => [...lane.querySelectorAll('.piece')].map((piece) => {
          const [box, all] = [piece.getBoundingClientRect(), lane.getBoundingClientRect()];
          const column = all.width / 11;
          const first = 10 - Math.round((box.left - all.left) / column);
          return [piece.firstChild.textContent, first, Math.round(box.width / column)];
        }));
        """
    )
    placed = [sorted(lane, key=lambda piece: -piece[1]) for lane in placed]
    assert placed == [[["=", 10, 6], ["B", 4, 2], ["A", 2, 3]], [["1", 9, 2]]]
    assert [" ".join(line.split()) for line in browser.texts(".cache:first-child .key li")] == [
        "B web-1 2 ways, 3 MiB, mask 18",
        "A database 3 ways, 4.5 MiB, mask 7",
        "1 class ways2, 1 VM 2 ways, 3 MiB, mask 300",
        "= default group 6 ways, 9 MiB, mask 7e0",
        "~ filled by I/O devices, too 2 ways, 3 MiB",
    ]
    assert browser.texts(".cache:first-child .io")[:2] == ["10", "9"]
    colours = browser.run(
        "return ['A', 'B'].map((letter) => { const piece = [...document.querySelectorAll('.piece')].find((one) => "
        "one.firstChild.textContent === letter); const {backgroundColor, backgroundImage} = getComputedStyle(piece); "
        "return [backgroundColor, backgroundImage]; })"
    )
    assert colours[0][0] != colours[1][0] and colours[0][1] != colours[1][1]


def test_a_vm_keeps_its_letter_when_others_come(host: PlayedHost, open_page: OpenPage, next_look: NextLook) -> None:
    few(host)
    browser = open_page()
    host.add("aardvark", 1)
    next_look()
    letters = {line.split()[1]: line.split()[0] for line in browser.texts(".cache:first-child .key li")}
    assert (letters["database"], letters["web-1"], letters["aardvark"]) == ("A", "B", "C")


def test_a_group_in_the_ways_of_an_exclusive_vm_is_told(host: PlayedHost, open_page: OpenPage) -> None:
    host.add("web-1", 2)
    host.add("intruder", 1, masks={"0": "2", "1": "2"})
    browser = open_page()
    warnings = browser.texts(".cache:first-child .warnings li")
    assert len(warnings) == 1 and "is not alone" in warnings[0]


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


def test_a_counter_without_a_number_is_a_word_and_never_a_zero(host: PlayedHost, open_page: OpenPage) -> None:
    silent = host.add("silent", 1)
    host.missing[silent["uuid"]] = dict.fromkeys(("mbm_total_bytes", "mbm_local_bytes"), "unassigned")
    browser = open_page()
    _, _, _, bandwidth, local, remote, _ = browser.texts("#vms tbody tr:first-child td")
    assert (bandwidth, local, remote) == ("unassigned", NONE, NONE)
    lines = browser.run("return [...document.querySelectorAll('.spark .line')].map((line) => line.getAttribute('d'))")
    assert lines[0] and not lines[1]
    browser.one(NAMES).click()
    assert "no hardware counter is assigned to the VM" in browser.one(".detail").text


def test_lines_span_what_is_remembered_while_that_is_less_than_ten_minutes(
    host: PlayedHost, open_page: OpenPage
) -> None:
    few(host)
    host.remembers = 120
    browser = open_page()
    browser.all(NAMES)[0].click()
    assert browser.texts(".ends span")[0] in ("2 min ago", "2 min 10 s ago")
    boxes = browser.run("return [...document.querySelectorAll('.spark .line')].map((line) => line.getBBox().width)")
    assert all(105 < width <= 120 for width in boxes)


def test_sparklines_span_ten_minutes(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page()
    boxes = browser.run("return [...document.querySelectorAll('.spark .line')].map((line) => line.getBBox().width)")
    assert len(boxes) == 8
    assert all(110 < width <= 120 for width in boxes)


def test_a_name_unfolds_everything_about_the_vm_and_folds_it_again(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    vm = host.vms[1]
    browser = open_page()
    (name,) = [one for one in browser.all(NAMES) if one.text == "web-1"]
    name.click()
    assert name.get_attribute("aria-expanded") == "true"
    details = browser.one(".details:not([hidden])")
    assert details.get_attribute("id") == name.get_attribute("aria-controls")
    for text in (vm["uuid"], vm["name"], vm["project"], "2 ways, exclusive", "0: 18, 1: 18", vm["group"], "9 of 9"):
        assert text in details.text
    charts = browser.run("return [...document.querySelectorAll('.chart')].map((one) => one.getAttribute('aria-label'))")
    assert charts[0].startswith("Cache occupancy over the last 10 min. occupancy: now ")
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


def test_what_runs_out_of_the_list_is_found_again_from_the_map(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page()
    browser.one("#find").send_keys("mail")
    browser.all(".key .link")[0].click()
    assert browser.one("#find").get_attribute("value") == ""
    assert browser.driver.switch_to.active_element.text == "web-1"


def test_a_look_changes_numbers_and_nothing_else(host: PlayedHost, open_page: OpenPage, next_look: NextLook) -> None:
    few(host)
    for number in range(16):
        host.add(f"worker-{number:02}")
    browser = open_page()
    (name,) = [one for one in browser.all(NAMES) if one.text == "worker-07"]
    name.click()
    browser.run("scrollTo(0, 900)")
    before = browser.run("return [scrollY, document.activeElement.textContent, document.querySelectorAll('*').length]")
    bandwidth = browser.texts("#vms tbody tr:first-child td:nth-of-type(4)")
    browser.run(
        "getSelection().selectAllChildren(document.querySelector('h2')); window.kept = document.querySelector('tbody')"
    )
    next_look()
    assert browser.texts("#vms tbody tr:first-child td:nth-of-type(4)") != bandwidth
    after = browser.run("return [scrollY, document.activeElement.textContent, document.querySelectorAll('*').length]")
    assert after == before
    assert name.get_attribute("aria-expanded") == "true"
    assert (
        browser.run("return window.kept === document.querySelector('tbody') && String(getSelection())")
        == "Needs attention"
    )


def test_focus_stays_while_vms_come_and_go(host: PlayedHost, open_page: OpenPage, next_look: NextLook) -> None:
    few(host)
    browser = open_page()
    (name,) = [one for one in browser.all(NAMES) if one.text == "mail-1"]
    name.click()
    host.remove(host.vms[0])
    host.add("aaa-first", 1)
    next_look()
    assert browser.driver.switch_to.active_element == name
    assert set(browser.texts(NAMES)) == {"web-1", "batch-1", "mail-1", "aaa-first"}
    host.remove(next(vm for vm in host.vms if vm["instance_name"] == "mail-1"))
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


def test_an_agent_that_falls_silent_is_told_and_so_is_its_return(
    host: PlayedHost, browser: Browser, wait_for: WaitFor
) -> None:
    few(host)
    with serving(host) as other:
        browser.emulate()
        browser.open(f"http://127.0.0.1:{other}/")
        wait_for(lambda: browser.texts(NAMES) != [], "the VMs being shown", 30)
    silence = browser.one("#silence")
    wait_for(silence.is_displayed, "the silence being told", 30)
    assert silence.text.startswith("The agent does not answer (no connection). What you see is of ")
    assert silence.get_attribute("role") == "alert"
    assert browser.one("#health").text == "no answer"
    assert "does not answer" in browser.driver.title
    assert len(browser.texts(NAMES)) == 4
    with serving(host, other):
        wait_for(lambda: not silence.is_displayed(), "the agent's return being told", 30)
        assert browser.one("#health").text == "ok"
        assert browser.one("#news").get_attribute("textContent") == "The agent answers again."
        browser.leave()
    assert all("ERR_CONNECTION_REFUSED" in complaint for complaint in browser.errors())


def test_pause_stops_the_asking(host: PlayedHost, open_page: OpenPage, next_look: NextLook) -> None:
    browser = open_page()
    pause = browser.one("#pause")
    pause.click()
    assert pause.get_attribute("aria-pressed") == "true"
    browser.run("return new Promise((done) => setTimeout(done, 500))")
    asked = len(host.asked)
    browser.run("return new Promise((done) => setTimeout(done, 4500))")
    assert len(host.asked) == asked
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


def test_a_lost_resctrl_needs_attention(host: PlayedHost, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {"path": "/sys/fs/resctrl", "mounted": False, "error": "resctrl is not mounted", "simulated": False}
    healthy = host._health()
    monkeypatch.setattr(host, "_health", lambda: healthy | {"resctrl": lost, "status": "failing"})
    browser = open_page()
    assert browser.texts("#attention li") == ["failing resctrl\nresctrl is not mounted"]
    assert browser.one("#health").text == "failing"


@pytest.mark.parametrize(("scheme", "darkest", "lightest"), [("light", 0.75, 1.0), ("dark", 0.0, 0.3)])
@pytest.mark.parametrize("size", [(1280, 900), PHONE])
def test_there_is_something_to_see_in_light_and_dark(
    scheme: str, darkest: float, lightest: float, size: tuple[int, int], host: PlayedHost, open_page: OpenPage
) -> None:
    few(host)
    host.add("big-1", ways_requested=6, state="pending", reason="L3 cache 0 has 2 ways to give")
    colours, light = open_page(scheme, size).picture()
    assert colours > 100
    assert darkest < light < lightest


@pytest.mark.parametrize("width", [320, 390, 768, 1024, 1920])
def test_nothing_is_wider_than_the_screen(width: int, host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    host.add("a-name-without-any-blank-" * 8, 1, state="degraded", reason="x" * 300, flavor="y" * 200)
    browser = open_page("light", (width, 800))
    browser.all(NAMES)[0].click()
    assert browser.run("return document.documentElement.scrollWidth") <= width
    wide = browser.run("const wide = document.querySelector('.wide'); return [wide.scrollWidth, wide.clientWidth]")
    assert wide[0] <= wide[1]


def test_a_phone_shows_names_numbers_and_lines(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page("light", PHONE)
    shown = [heading.text for heading in browser.all("#vms thead th") if heading.is_displayed()]
    assert shown == ["VM", "Occupancy", "Bandwidth"]
    assert all(spark.is_displayed() for spark in browser.all(".spark"))
    small = browser.run(
        "return [...document.querySelectorAll('button, input')].filter((one) => one.checkVisibility())"
        ".map((one) => [one.textContent, one.getBoundingClientRect().height]).filter(([, height]) => height < 20)"
    )
    assert not small
