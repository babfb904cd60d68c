# SPDX-License-Identifier: Apache-2.0
"""Who moves most to and from memory, and what part of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.page.conftest import NAMES, OpenPage
from tests.page.played_counters import MIB
from tests.page.played_host import PlayedHost


@pytest.fixture
def played(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven VMs: the n-th moves n times 100 MiB/s; the first one moved 100 times as much until two minutes ago."""
    for number in range(1, 8):
        host.add(f"vm-{number}")
    until = time.time() - 120.0

    def play(vm: dict[str, Any], when: float) -> tuple[int, float, float]:
        number = host.vms.index(vm) + 1
        total = 100.0 * MIB * (100 if number == 1 and when < until else number)
        return MIB, total, total

    monkeypatch.setattr(host, "_played", play)


@pytest.mark.usefixtures("played")
def test_the_vms_that_moved_most_in_the_last_minute_are_ranked_with_their_shares(
    host: PlayedHost, open_page: OpenPage
) -> None:
    silent = host.add("silent")
    host.missing[silent["uuid"]] = {"mbm_total_bytes": "unassigned"}
    browser = open_page()
    assert [" ".join(text.split()) for text in browser.texts("#ranking li")] == [
        "vm-7 700 MiB/s 25 %",
        "vm-6 600 MiB/s 21 %",
        "vm-5 500 MiB/s 18 %",
        "vm-4 400 MiB/s 14 %",
        "vm-3 300 MiB/s 11 %",
    ]
    widths = browser.run(
        "return [...document.querySelectorAll('#ranking .meter')].map((one) => "
        "one.firstChild.getBoundingClientRect().width / one.getBoundingClientRect().width)"
    )
    assert widths == [pytest.approx(number / 28, abs=0.01) for number in (7, 6, 5, 4, 3)]


@pytest.mark.usefixtures("played")
def test_a_rank_leads_to_its_vm_and_its_heading_to_the_sorted_list(host: PlayedHost, open_page: OpenPage) -> None:
    browser = open_page()
    browser.all("#ranking .link")[0].click()
    assert browser.driver.switch_to.active_element.text == "vm-7"
    assert host.vms[6]["uuid"] in browser.one(".details:not([hidden])").text
    browser.run("scrollTo(0, 0)")
    browser.one("#by-bandwidth").click()
    assert browser.texts(NAMES) == [f"vm-{number}" for number in (7, 6, 5, 4, 3, 2, 1)]
    assert browser.one("[aria-sort]").get_attribute("data-sort") == "total"
    assert browser.run("return document.activeElement.id") == "vms-title"
    assert "sort=total" in browser.driver.current_url


def test_a_host_that_counts_no_bandwidth_has_no_ranking(host: PlayedHost, open_page: OpenPage) -> None:
    vm = host.add("silent")
    host.missing[vm["uuid"]] = {"mbm_total_bytes": "no-counter"}
    browser = open_page()
    assert not browser.one("#moved").is_displayed()


def test_the_mean_of_a_vm_that_was_not_counted_all_the_time_says_so(open_page: OpenPage) -> None:
    told = open_page().value(
        "ranking.js",
        """((list) => {
          const history = { mean: () => 1048576, known: (uuid) => ({ a: 1, b: 0.9, c: 0.5 })[uuid] };
          const vms = ['a', 'b', 'c'].map((uuid) => ({ uuid, name: uuid, group: '' }));
          new it.Ranking(document.createElement('section'), list).update(vms, history);
          return [...list.querySelectorAll('.value')].map((value) => [value.textContent, value.title]);
        })(document.createElement('ol'))""",
    )
    assert told == [["1 MiB/s", ""], ["1 MiB/s", ""], ["~1 MiB/s", "counted for 50 % of the last minute"]]
