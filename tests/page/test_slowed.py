# SPDX-License-Identifier: Apache-2.0
"""Which VM slows which: shown only where one does, with the figures and with what ends it."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.functional.conftest import WaitFor
from tests.page.conftest import OpenPage
from tests.page.filled import few
from tests.page.played_host import PlayedHost
from tests.page.test_widths import WIDTHS
from tests.unit.insight import hosts
from vmqos.insight import LimitedIn, judge, plain

PANEL = "#slowed"
ADVICE = "vmqos flavor set m1.batch-NEW --cache-ways 2 --policy shared"


def slowed(host: PlayedHost, counted: bool = True, **changes: Any) -> None:
    """batch-1 slows web-1."""
    uuids = {vm["instance_name"]: vm["uuid"] for vm in host.vms}
    pair = {
        "culprit": uuids["batch-1"],
        "victim": uuids["web-1"],
        "cause": "cache",
        "since": time.time() - 300,
        "until": None,
        "slower": 2.04,
        "taken": 6291456.0,
        "confidence": 0.94,
        "evidence": ["it missed 0.21 times in 1 000 instructions, and now 0.98 times", "it held 6 MiB"],
        "advice": ADVICE,
    }
    host.neighbours = {
        "time": time.time(), "interval": 2.0, "samples": 90, "counted": counted, "vms": [], "pairs": [pair | changes]
    }  # fmt: skip


def test_nothing_is_shown_where_no_vm_slows_another(host: PlayedHost, open_page: OpenPage, wait_for: WaitFor) -> None:
    few(host)
    browser = open_page()
    wait_for(lambda: "/v1/neighbours" in host.asked, "the question")
    assert not browser.one(PANEL).is_displayed()


def test_an_agent_that_does_not_judge_is_no_fault(host: PlayedHost, open_page: OpenPage, wait_for: WaitFor) -> None:
    few(host)
    host.neighbours = None
    browser = open_page()
    wait_for(lambda: "/v1/neighbours" in host.asked, "the question")
    assert not browser.one(PANEL).is_displayed()
    assert browser.one("#calm").text == "Nothing. 3 promises kept."
    # The browser tells of the 404 itself.
    assert all("neighbours" in error for error in browser.leave())


def test_victim_culprit_cause_and_loss_are_told_with_evidence_and_advice(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    slowed(host)
    began = time.time()
    browser = open_page()
    shown = browser.one(PANEL).text
    assert "cache" in shown and "web-1 is slowed by batch-1" in shown
    assert "Its work takes 2.0 times as long." in shown and "94 % sure" in shown
    # That was five minutes ago when the browser was opened, which may take its time.
    latest = int(time.time() - began) // 60
    assert any(f"({5 + late} min" in shown for late in range(latest + 1))
    assert f"What ends it, once the culprit is resized to a copy of its flavor with this:\n{ADVICE}" in shown
    assert "0.98 times" not in shown
    browser.one(f"{PANEL} summary").click()
    assert browser.texts(f"{PANEL} details li") == host.neighbours["pairs"][0]["evidence"]  # type: ignore[index]
    browser.all(f"{PANEL} .link")[1].click()
    assert browser.driver.switch_to.active_element.text == "batch-1"


@pytest.mark.parametrize(
    ("unit", "advice", "evidence"),
    [
        (LimitedIn.PERCENT, "vmqos flavor set m1.batch-NEW --bandwidth-percent 30", "of what memory gives"),
        (LimitedIn.MBPS, "vmqos flavor set m1.batch-NEW --bandwidth-mbps 10750", "of what memory gives"),
        (LimitedIn.NOTHING, "", "this host can't limit memory bandwidth"),
    ],
)
def test_what_is_advised_against_a_culprit_of_the_bandwidth_is_what_its_host_can_do(
    unit: LimitedIn, advice: str, evidence: str, host: PlayedHost, open_page: OpenPage
) -> None:
    few(host)
    uuids = {vm["instance_name"]: vm["uuid"] for vm in host.vms}
    victim, culprit = uuids["web-1"], uuids["batch-1"]
    hungry = hosts.Did(held=2 << 20, moved=5e9, cycles=2000, misses=5)
    moved = {
        victim: hosts.step(hungry, replace(hungry, moved=3e9, cycles=3400), 25),
        culprit: hosts.step(hosts.Did(), hosts.Did(moved=36e9), 25),
    }
    known = replace(hosts.host({victim: 0xFF, culprit: 0xFF00}, flavor="m1.batch"), limited_in=unit)
    found = plain(judge(known, hosts.history(40, **moved)))
    host.neighbours = {"time": time.time(), "interval": 1.0, "samples": 40, "counted": True, **found}
    browser = open_page()
    shown = browser.one(PANEL).text
    assert "web-1 is slowed by batch-1" in shown and "memory bandwidth" in shown
    assert (f"its flavor with this:\n{advice}" in shown) == bool(advice) and ("What ends it" in shown) == bool(advice)
    browser.one(f"{PANEL} summary").click()
    assert evidence in browser.texts(f"{PANEL} details li")[-1]


def test_without_hardware_events_it_is_an_estimate(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    slowed(host, counted=False, cause="memory-bandwidth", advice="")
    shown = open_page().one(PANEL).text
    assert "memory bandwidth" in shown and "takes about 2.0 times as long" in shown
    assert "an estimate: hardware events are not counted here" in shown
    assert "What ends it" not in shown


def test_a_pair_that_is_over_is_told_to_be(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    slowed(host, until=time.time() - 30)
    shown = open_page().one(PANEL).text
    assert "web-1 was slowed by batch-1" in shown and "Its work took 2.0 times as long." in shown
    assert re.search(r"from [\d: UTC-]+ to [\d: UTC-]+: the culprit moves less again", shown)


def test_a_pair_whose_culprit_has_ended_is_not_shown(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    slowed(host, culprit="9b0d7e52-3c1a-4f68-8e4d-2f6a1c9b7d03")
    assert not open_page().one(PANEL).is_displayed()


@pytest.mark.parametrize("text", ["<img src=x onerror=alert(1)>", "a\u202eb"])
def test_what_the_agent_says_is_text_and_nothing_else(text: str, host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    slowed(host, evidence=[text], advice=text)
    browser = open_page()
    browser.one(f"{PANEL} summary").click()
    assert browser.texts(f"{PANEL} details li") == [text.replace("\u202e", "\\u{202e}")]
    assert not browser.all(f"{PANEL} img")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_advised_command_is_read_whole(width: int, host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    slowed(host, advice=ADVICE.replace("m1.batch", "general-purpose.large.with-local-nvme"))
    browser = open_page("light", (width, 900))
    shown, wide = browser.run(
        "const code = document.querySelector('#slowed code'); return [code.clientWidth, code.scrollWidth]"
    )
    assert 0 < wide <= shown
