# SPDX-License-Identifier: Apache-2.0
"""The map of the ways: whose they are, cache by cache."""

from __future__ import annotations

from selenium.webdriver import Keys

from tests.functional.conftest import WaitFor
from tests.page.browser import Browser
from tests.page.conftest import NextLook, OpenPage, heard
from tests.page.filled import few, rich
from tests.page.played_counters import WAY
from tests.page.played_host import PlayedHost
from vmqos.cli.show import map_rows


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
          return [piece.querySelector('.label span').textContent, first, Math.round(box.width / column)];
        }));
        """
    )
    placed = [sorted(lane, key=lambda piece: -piece[1]) for lane in placed]
    assert placed == [[["=", 10, 6], ["F", 4, 2], ["H", 2, 3]], [["7", 9, 2]]]
    assert keys(browser, 1) == [
        "F web-1 2 ways, 3 MiB, mask 18",
        "H database 3 ways, 4.5 MiB, mask 7",
        "7 class ways2, 1 VM 2 ways, 3 MiB, mask 300",
        "= default group 6 ways, 9 MiB, mask 7e0",
        "~ filled by I/O devices, too 2 ways, 3 MiB",
    ]
    assert browser.texts(".cache:first-child .io")[:2] == ["10", "9"]
    colours = browser.run(
        """
        return ['H', 'F'].map((letter) => {
          const pieces = [...document.querySelectorAll('.piece')];
          const piece = pieces.find((one) => one.querySelector('.label span').textContent === letter);
          const {backgroundColor, backgroundImage} = getComputedStyle(piece.querySelector('.fill'));
          return [backgroundColor, backgroundImage];
        });
        """
    )
    assert colours[0][0] != colours[1][0] and colours[0][1] != colours[1][1]


LOOKS = """
const lines = [...document.querySelectorAll('.cache:first-child .key li')];
return Object.fromEntries(lines.map((line) => [line.children[1].textContent,
  [line.firstChild.textContent, line.firstChild.className]]));
"""
"""The symbol and the classes of each group, by its label."""


def test_a_vm_keeps_its_letter_and_colour_when_others_come_and_go(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook
) -> None:
    host.ways = 32
    few(host)
    browser = open_page()
    before = browser.run(LOOKS)
    for number in range(20):
        host.add(f"aardvark-{number}", 1)
    host.remove(host.vms[1])
    next_look()
    after = browser.run(LOOKS)
    assert len(after) == len(before) + 19
    for label in ("database", "class ways2, 1 VM"):
        assert after[label] == before[label]
    browser.driver.refresh()
    next_look()
    # One who comes later sees the same, but for those who had to give way to the VM that went.
    assert browser.run(LOOKS)["database"] == before["database"]


def test_the_letters_are_those_of_the_command(host: PlayedHost, open_page: OpenPage) -> None:
    host.ways = 32
    for number in range(20):
        host.add(f"vm-{number}", 1)
    host.add("batch-1", 2, "shared")
    browser = open_page()
    (drawn, _) = map_rows.build([host._cache(0), host._cache(1)], host.vms)
    shown = browser.run(LOOKS)
    for row in drawn.rows:
        if row.kind is map_rows.Kind.VM:
            symbol, style = shown[row.label]
            assert symbol == row.symbol
            assert f"colour-{row.colour}" in style.split()
        elif row.kind is map_rows.Kind.CLASS:
            assert shown[row.label][0] == row.symbol


def test_a_group_in_the_ways_of_an_exclusive_vm_is_told(host: PlayedHost, open_page: OpenPage) -> None:
    host.add("web-1", 2)
    host.add("intruder", 1, masks={"0": "2", "1": "2"})
    browser = open_page()
    warnings = browser.texts(".cache:first-child .warnings li")
    assert len(warnings) == 1 and "is not alone" in warnings[0]


def keys(browser: Browser, number: int) -> list[str]:
    """The lines below the picture of one cache, or of those that look like it, without how full the ways are."""
    lines = browser.run(
        "return [...document.querySelectorAll(arguments[0])].map((line) => [...line.children]"
        ".filter((one) => one.className !== 'full').map((one) => one.textContent).join(' '))",
        f".cache:nth-child({number}) .key li",
    )
    return [" ".join(line.split()) for line in lines]


def fills(browser: Browser, number: int) -> dict[str, float]:
    """How much of its blocks is filled, 0 to 1, on one cache, by the label or the symbol of the group."""
    found = browser.run(
        "return [...document.querySelectorAll(arguments[0])].map((one) => [one.querySelector('.label').textContent, "
        "one.querySelector('.fill').getBoundingClientRect().width / "
        "one.querySelector('.tank').getBoundingClientRect().width])",
        f".cache:nth-child({number}) .piece",
    )
    return {label: round(share, 2) for label, share in found}


def test_blocks_are_filled_as_far_as_the_ways_are_full_on_that_cache(host: PlayedHost, open_page: OpenPage) -> None:
    uneven, over = host.add("uneven", 4), host.add("over", 2)
    first, second = host.add("one", 2, "shared"), host.add("two", 2, "shared")
    host.held = {
        uneven["uuid"]: {"0": 4 * WAY * 3 // 4, "1": 0},
        over["uuid"]: {"0": 3 * WAY, "1": WAY},
        first["uuid"]: {"0": WAY // 2, "1": WAY},
        second["uuid"]: {"0": WAY // 2, "1": WAY},
    }
    browser = open_page()
    (left, right) = (
        {label: one for label, one in fills(browser, number).items() if "default" not in label} for number in (1, 2)
    )
    letter = "".join(label for label in left if len(label) == 1 and not label.isdigit())
    digit = next(label for label in left if label.isdigit())
    (label,) = (label for label in left if label.endswith("uneven"))
    assert left == {label: 0.75, letter: 1.0, digit: 0.5}
    assert right == {label: 0.0, letter: 0.5, digit: 1.0}
    full = browser.texts(".cache:first-child .full")
    assert [text for text in full if text] == ["150 % full", "75 % full", "50 % full", "20 % full"]
    titles = {one.get_attribute("title") for one in browser.all(".cache:first-child .piece")}
    assert "uneven: 4 ways, 75 % full" in titles


def test_a_group_without_a_counter_is_not_told_as_full_or_empty(host: PlayedHost, open_page: OpenPage) -> None:
    for vm in (host.add("silent", 3), host.add("one", 2, "shared")):
        host.missing[vm["uuid"]] = {"llc_occupancy": "unavailable"}
    host.add("two", 2, "shared")
    browser = open_page()
    assert [text for text in browser.texts(".cache:first-child .full") if text] == ["13 % full"]
    unknown = browser.run("return document.querySelectorAll('.cache:first-child .fill.unknown').length")
    assert unknown == 2


def test_caches_that_are_drawn_once_are_filled_as_the_fullest(host: PlayedHost, open_page: OpenPage) -> None:
    host.caches = 8
    vm = host.add("web-1", 3)
    host.held[vm["uuid"]] = {str(cache): WAY for cache in range(8)} | {"5": 3 * WAY - 1}
    browser = open_page()
    assert browser.texts(".cache h3") == ["L3 caches 0-7"]
    assert browser.texts(".cache .full")[0] == "99 % full on cache 5"


def test_code_and_data_limits_and_locked_ways_are_told_where_they_are(host: PlayedHost, open_page: OpenPage) -> None:
    rich(host)
    browser = open_page()
    assert keys(browser, 1) == [
        "H database, data 4 ways, 6 MiB, mask 3c, at most 60 %",
        "H database, code 2 ways, 3 MiB, mask 3, at most 60 %",
        "x lock table 1 way, 1.5 MiB, mask 80",
        "= default group 4 ways, 6 MiB, mask 740",
        "~ filled by I/O devices, too 2 ways, 3 MiB",
    ]
    assert browser.texts(".cache:first-child .inside") == ["In the default group's ways: radio, half (at most 50 %)"]
    assert browser.texts(".warnings li") == []
    pieces = browser.run(
        "return [...document.querySelectorAll('.cache:first-child .piece')].map((one) => "
        "[one.querySelector('.label span').textContent, one.querySelector('.fill').classList.contains('code'), "
        "one.style.gridColumn])"
    )
    assert sorted(piece for piece in pieces if piece[0] == "H") == [
        ["H", False, "6 / span 4"],
        ["H", True, "10 / span 2"],
    ]
    facts = browser.pairs("#host dt", "#host dd")
    assert (facts["resctrl"], facts["Bandwidth limits"]) == ("the kernel's, cdp", "in steps of 10 %")
    assert "64 \N{MULTIPLICATION SIGN} L2, 8 ways, 12 MiB each" in facts["Caches"]


def test_many_caches_that_look_the_same_are_one_picture(host: PlayedHost, open_page: OpenPage) -> None:
    rich(host)
    host.caches = 16
    browser = open_page()
    assert browser.texts(".cache h3") == ["L3 caches 0-1", "L3 caches 2-15", "L2 caches 0-4, 7-63", "L2 caches 5-6"]
    assert "CPUs 10-13" in browser.texts(".cache header p")[6]
    assert browser.texts(".room")[2:] == ["4 ways left to promise in each", "1 way left to promise in each"]
    assert keys(browser, 3) == ["= default group 8 ways, 12 MiB, mask ff"]
    assert [line.split(",")[0] for line in keys(browser, 4)] == ["A radio 3 ways", "= default group 5 ways"]


def test_equal_caches_are_told_as_ranges_and_can_be_unfolded(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook, wait_for: WaitFor
) -> None:
    host.caches = 24
    one = host.add("everywhere", 2)
    other = host.add("on-one", 1)
    other["masks"] = {"12": other["masks"]["12"]}
    browser = open_page()
    assert browser.texts(".cache h3") == ["L3 caches 0-11, 13-23", "L3 cache 12"]
    (button,) = browser.all("#levels button")
    assert (button.text, button.get_attribute("aria-expanded")) == ("Each L3 cache", "false")
    browser.run("arguments[0].focus()", button)
    button.send_keys(Keys.ENTER)
    assert browser.texts(".cache h3") == [f"L3 cache {cache}" for cache in range(24)]
    assert (button.text, button.get_attribute("aria-expanded")) == ("Equal L3 caches once", "true")
    assert browser.driver.switch_to.active_element == button
    assert browser.driver.current_url.endswith("?each=L3")
    # It stays so, each with its own fill, and a link has it.
    host.held[one["uuid"]] = {str(cache): 2 * WAY * cache // 23 for cache in range(24)}
    next_look()
    full = browser.run(
        "return [...document.querySelectorAll('.cache')]"
        ".map((one) => one.querySelector('[data-group^=vmqos] .full').textContent)"
    )
    assert (full[0], full[23]) == ("0 % full", "100 % full")
    link = browser.driver.current_url
    browser.driver.get("about:blank")
    browser.open(link)
    wait_for(lambda: heard(browser), "the page having heard from the agent")
    assert len(browser.all(".cache")) == 24
    browser.one("#levels button").click()
    assert browser.texts(".cache h3") == ["L3 caches 0-11, 13-23", "L3 cache 12"]
    assert "?" not in browser.driver.current_url
    browser.driver.back()
    wait_for(lambda: len(browser.all(".cache")) == 24, "the step being undone")


def test_a_machine_of_few_caches_has_nothing_to_unfold(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    host.caches = 4
    assert open_page().all("#levels button") == []


def test_levels_are_unfolded_one_by_one(host: PlayedHost, open_page: OpenPage) -> None:
    rich(host)
    host.caches = 16
    browser = open_page()
    assert browser.texts("#levels button") == ["Each L3 cache", "Each L2 cache"]
    browser.all("#levels button")[0].click()
    assert browser.texts(".cache h3")[-3:] == ["L3 cache 15", "L2 caches 0-4, 7-63", "L2 caches 5-6"]
    assert browser.texts("#levels button") == ["Equal L3 caches once", "Each L2 cache"]
