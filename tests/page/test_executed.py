# SPDX-License-Identifier: Apache-2.0
"""What the VMs' tasks execute, where the agent counts it; and why there is nothing of it, where it does not."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional.conftest import WaitFor
from tests.page.conftest import (
    NAMES,
    NextLook,
    OpenPage,
    banded,
    beside,
    charts,
    details,
    lengths,
    show_the_day,
    unfold,
)
from tests.page.filled import few
from tests.page.played_host import PlayedHost
from tests.unit.agent.serve.test_counters import as_told
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.sample.hardware_counts import HardwareCounts
from vmqos.agent.sample.history import EXECUTED, SERIES, History, executed_of
from vmqos.agent.sample.minutes import MinuteHistory
from vmqos.agent.serve import counters, hardware_report
from vmqos.agent.vm_record import VmRecord
from vmqos.hypervisor import processes
from vmqos.hypervisor.model import VirtualMachine

PATH = "/v1/telemetry/hardware-events"


@pytest.fixture
def counted(host: PlayedHost) -> PlayedHost:
    few(host)
    host.unavailable = ""
    return host


def test_a_vm_that_is_counted_has_its_figures_and_their_charts(counted: PlayedHost, open_page: OpenPage) -> None:
    browser = open_page()
    unfold(browser, "database")
    found = details(browser)
    assert re.fullmatch(r"0\.\d\d", found["Instructions per cycle now"])
    assert re.fullmatch(r"[\d.]+ G/s", found["Instructions now"])
    assert re.fullmatch(r"[\d.]+ M/s", found["Cache misses now"])
    assert "Hardware counts" not in found
    assert charts(browser)[2:] == ["Instructions per cycle", "Instructions", "Cache misses"]
    assert re.fullmatch(r"\d\d:\d\d:\d\d UTC: 0\.\d\d", browser.texts(".told")[2])
    assert beside(browser)[2][0] == "0.00"
    # The curve has some 200 points: one more or less, as the seconds fall.
    assert min(min(lines) for lines in lengths(browser)) >= 190, lengths(browser)


def test_the_last_figures_are_in_the_charts_too(
    counted: PlayedHost, open_page: OpenPage, next_look: NextLook, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = open_page()
    unfold(browser, "database")
    now = {"cycles": 4e9, "instructions": 8e9, "cache_references": 1.0, "cache_misses": 5e9}
    monkeypatch.setattr(counted, "_executed", lambda vm, when: now)
    next_look()
    assert [one.split(": ")[1] for one in browser.texts(".told")[2:]] == ["2.00", "8 G/s", "5 G/s"]
    assert "2.00" in details(browser)["Instructions per cycle now"]


def test_the_day_has_them_with_their_least_and_greatest(
    counted: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    browser = open_page()
    unfold(browser, "database")
    show_the_day(browser, wait_for, charts=5)
    told = re.fullmatch(r"\d\d:\d\d UTC: (0\.\d\d) \((0\.\d\d) \u2013 (0\.\d\d)\)", browser.texts(".told")[2])
    assert told is not None
    mean, least, greatest = map(float, told.groups())
    assert least < mean < greatest


def test_where_nothing_is_counted_the_agents_reason_is_told_and_no_chart_is_drawn(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook, wait_for: WaitFor
) -> None:
    few(host)
    host.unavailable = "the agent lacks CAP_PERFMON: a drop-in gives it\u202e"
    browser = open_page("light", (1920, 900))
    unfold(browser, "database")
    assert details(browser)["Hardware counts"] == "none: the agent lacks CAP_PERFMON: a drop-in gives it\\u{202e}"
    assert charts(browser) == ["Cache occupancy, all caches together", "Memory bandwidth"]
    browser.all("[data-charts=day]")[0].click()
    wait_for(lambda: banded(browser)[0], "the day being drawn")
    assert len(browser.all(".chart")) == 2
    assert not browser.one("th[data-sort=ipc]").is_displayed()
    next_look()
    assert not browser.one("th[data-sort=ipc]").is_displayed()


def test_a_vm_that_alone_is_not_counted_has_its_own_reason(counted: PlayedHost, open_page: OpenPage) -> None:
    counted.uncounted[counted.vms[0]["uuid"]] = "it has more than 1024 tasks"
    browser = open_page("light", (1920, 900))
    unfold(browser, "database")
    assert details(browser)["Hardware counts"] == "none: it has more than 1024 tasks"
    assert len(browser.all(".chart")) == 2
    cells = browser.all("#vms tbody[data-level=kept] .counted")
    assert {cell.get_attribute("title") for cell in cells if cell.text == "\N{EN DASH}"} == {
        "it has more than 1024 tasks"
    }
    unfold(browser, "web-1")
    assert len(browser.all(".chart")) == 7


def test_a_vm_that_is_no_more_counted_keeps_its_past_and_has_a_reason(
    counted: PlayedHost, open_page: OpenPage, next_look: NextLook
) -> None:
    browser = open_page()
    unfold(browser, "database")
    counted.uncounted[counted.vms[0]["uuid"]] = "no more files may be open"
    next_look()
    assert details(browser)["Hardware counts"] == "none: no more files may be open"
    assert len(browser.all(".chart")) == 5
    assert browser.texts(".told")[2].endswith("no value")


def test_figures_that_are_estimates_are_told_as_such_now_and_in_the_charts(
    counted: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    counted.counter_share = 0.625
    browser = open_page()
    unfold(browser, "database")
    expected = "estimates: the VM had the processor's counters for 62 % of its time"
    assert details(browser)["Hardware counts"] == expected
    for told, caption in list(zip(browser.texts(".told"), browser.texts(".charts figcaption"), strict=True))[2:]:
        assert told.endswith(", an estimate from 62 % of its time") and caption.endswith("estimates in part")
    show_the_day(browser, wait_for, charts=5)
    assert [text.endswith(", an estimate from 62 % of its time") for text in browser.texts(".told")] == [False] * 2 + [
        True
    ] * 3


def test_a_large_screen_has_them_in_the_list_which_sorts_by_them(
    counted: PlayedHost, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {vm["uuid"]: number for number, vm in enumerate(counted.vms)}

    def executed(vm: dict[str, str], when: float) -> dict[str, float]:
        number = places[vm["uuid"]] + 1
        return {"cycles": 1e9, "instructions": number * 1e8, "cache_references": 0.0, "cache_misses": 1e6 / number}

    monkeypatch.setattr(counted, "_executed", executed)
    browser = open_page("light", (1920, 900))
    headings = [heading.text for heading in browser.all("#vms thead th") if heading.is_displayed()]
    assert headings[-3:] == ["IPC", "Misses", "Flavor"]
    browser.one("th[data-sort=ipc] button").click()
    assert browser.texts(NAMES) == ["database", "web-1", "batch-1", "mail-1"]
    assert browser.texts("#vms tbody tr:first-child .counted")[:4] == ["0.10", "1 M/s", "0.20", "500 k/s"]
    browser.one("th[data-sort=misses] button").click()
    assert browser.texts(NAMES) == ["database", "web-1", "batch-1", "mail-1"]
    assert browser.one("th[data-sort=misses]").get_attribute("aria-sort") == "descending"
    assert browser.driver.current_url.endswith("?sort=misses")
    browser.emulate("light", (1400, 900))
    assert not browser.one("th[data-sort=ipc]").is_displayed()


def test_an_agent_that_does_not_know_the_question_is_told(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    host.broken[PATH] = ("404 Not Found", "there is nothing here")
    browser = open_page()
    unfold(browser, "database")
    assert details(browser)["Hardware counts"] == "none: the agent does not tell: there is nothing here"
    assert all("404" in complaint for complaint in browser.leave())


CLOCKS = (1, 1), (1, 0), (1, 3), (1, 2)
"""PERF_TYPE_SOFTWARE: the task's clock, the CPU's clock, context switches, page faults. Every kernel has them, and the
two clocks go alike, so there is an instruction for each cycle."""

BUSY = "while True: bytearray(1 << 20)"
"""It faults on new pages all the time."""


@pytest.fixture
def counting() -> Iterator[tuple[str, HardwareCounts]]:
    """A process that the agent counts as that of a VM; the VM's UUID, and what the agent counts."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    uuid = "7b1d3c52-0c8e-4d5f-9a6b-1e2f3a4b5c6d"
    vm = VirtualMachine(uuid, "vm", 1, processes.of_pid(process.pid), None, False, None)
    hardware = HardwareCounts(lambda: {uuid: VmRecord(ObservedVm(vm, frozenset({0})))}, 0.2, events=CLOCKS)
    hardware.start()
    yield uuid, hardware
    hardware.stop()
    process.kill()
    process.wait()


def test_what_the_agent_counts_of_a_real_process_and_remembers_of_it_is_what_the_page_shows(
    counting: tuple[str, HardwareCounts],
    host: PlayedHost,
    open_page: OpenPage,
    wait_for: WaitFor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uuid, hardware = counting

    # What is shown and what is expected are of the same look: on a busy machine the next one differs.
    report: dict[str, Any] = {}
    executed: list[float | None] = []

    def is_counted() -> bool:
        report.clear()
        report.update(hardware_report.report(hardware))
        rates = list(report["vms"].get(uuid, {"rates": {"": None}})["rates"].values())
        executed[:] = [None] if None in rates else executed_of(rates, 1.0)
        return 0.9 < (executed[0] or 0) < 1.1

    # The process may have run for no time yet when it is first looked at.
    wait_for(is_counted, "the process being counted by two clocks that go alike")
    per_cycle = executed[0]
    history, minutes = History(100, SERIES + EXECUTED), MinuteHistory(100, SERIES + EXECUTED)
    unread: tuple[float | None, ...] = (None,) * len(SERIES)
    now = time.time()
    for ago in range(1200, 0, -20):
        sample = {uuid: (*unread, *executed)}
        history.add(now - ago, sample)
        minutes.add(now - ago, sample)

    def tell_minutes(seconds: float, uuids: list[str]) -> Any:
        return as_told(counters.minutes(minutes.copy(now - seconds, uuids)))

    # As it was told then: counts that grow old are not shown, and a browser may take seconds.
    monkeypatch.setattr(host, "_hardware_events", lambda: report)
    monkeypatch.setattr(
        host,
        "_history",
        lambda seconds, *wanted: as_told(counters.history(history.columns(now - seconds, *wanted), 1.0)),
    )
    monkeypatch.setattr(host, "_minutes", tell_minutes)
    host.add("busy", 2, uuid=uuid)
    browser = open_page()
    unfold(browser, "busy")
    found = details(browser)
    assert float(found["Instructions per cycle now"]) == pytest.approx(per_cycle, abs=0.006)
    assert re.fullmatch(r"[\d.]+ [MG]/s", found["Instructions now"])
    assert re.fullmatch(r"[\d.]+( k)?/s", found["Cache misses now"])
    assert len(browser.all(".chart")) == 5
    assert all(all(lines) for lines in lengths(browser)[2:])
    browser.all("[data-charts=day]")[0].click()
    wait_for(lambda: banded(browser)[2], "the day being drawn")
    told = re.match(r"\d\d:\d\d UTC: (\d\.\d\d) ", browser.texts(".told")[2])
    assert told is not None and float(told[1]) == pytest.approx(per_cycle, abs=0.006)
