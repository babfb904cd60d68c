# SPDX-License-Identifier: Apache-2.0
"""What the page tells of a host and of its VMs."""

from __future__ import annotations

import re

import pytest

from tests.page.conftest import NAMES, NextLook, OpenPage, Pause, beside, charts, details, unfold
from tests.page.filled import few, rich
from tests.page.played_host import PlayedHost

NONE = "\N{EN DASH}"


def test_vms_in_trouble_come_first_and_with_their_reasons(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    host.add("big-1", ways_requested=6, state="pending", reason="L3 cache 0 has 2 ways to give", retry_in=12.0)
    host.add("typo-1", state="degraded", reason="hw:cache_ways='two'", last_error="write failed with EINVAL")
    browser = open_page()
    first, second = browser.texts("#attention li")
    assert first.splitlines()[:3] == ["degraded typo-1", "hw:cache_ways='two'", "write failed with EINVAL"]
    assert second.splitlines()[:2] == ["pending big-1", "L3 cache 0 has 2 ways to give"]
    assert "asks for 6 ways, exclusive" in second
    # It counts down.
    assert 0 < int(re.search(r"next try in (\d+) s", second)[1]) <= 12  # type: ignore[index]
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
    facts = browser.pairs("#host dt", "#host dd")
    assert re.fullmatch(r"[\d.]+ [MG]iB/s, [\d.]+ [MG]iB/s remote", facts.pop("All VMs' bandwidth"))
    assert facts == {
        "VMs": "4",
        "Promises": "3 of 3 kept",
        "L3 ways": "5 of 11 promised, 2 free",
        "Agent": "1.4.0, up 1 d 2 h",
        "Last pass": "4.2 ms",
        "Last looks": "VMs 0 s ago, counters 0 s ago",
        "resctrl": "the kernel's",
        "libvirt": "connected",
        "Caches": "2 \N{MULTIPLICATION SIGN} L3, 11 ways, 16.5 MiB each",
        "CLOSIDs": "4 of 16 in use",
        "RMIDs": "6 of 224 in use",
    }
    assert (browser.one("#host-name").text, browser.one("#health").text) == ("compute-7", "agent ok")


def test_the_line_of_the_host_tells_that_starts_are_not_watched(
    host: PlayedHost, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = host._health()
    unwatched = health["libvirt"] | {"starts_watched": False, "watch_error": "/run can't be watched: No such file"}
    monkeypatch.setattr(host, "_health", lambda: health | {"libvirt": unwatched})
    browser = open_page()
    facts = browser.pairs("#host dt", "#host dd")
    assert facts["libvirt"] == "connected, starts of VMs are not watched"


def test_a_line_tells_what_a_vm_has_beside_l3_ways(host: PlayedHost, open_page: OpenPage) -> None:
    rich(host)
    host.add("late", state="pending", reason="no L2 way is left", l2_ways_requested=8, vcpus_requested="3")
    browser = open_page()
    names = browser.texts(NAMES)
    cells = {
        name: browser.run(
            "const row = document.querySelectorAll('#vms tbody')[arguments[0]].rows[0];"
            "return [row.cells[2].innerText.split('\\n').map((one) => one.trim()).filter(Boolean), "
            "row.cells[4].querySelector('.under').textContent]",
            number,
        )
        for number, name in enumerate(names)
    }
    assert cells["database"] == [["6", "code 2, data 4"], "at most 60 %"]
    assert cells["radio"][0][1:] == ["L2: 3"] and cells["half"][1] == "at most 50 %"
    assert cells["late"] == [[NONE, "L2: 0 of 8"], ""] and cells["mail-1"] == [[NONE], ""]
    assert "asks for 8 L2 ways, for vCPUs 3 alone" in browser.one("#attention").text
    unfold(browser, "database")
    fields = details(browser)
    assert fields["Asks for"] == "2 ways for code and 4 for data, exclusive, at most 55 % of memory bandwidth"
    assert (fields["Masks for code"], fields["Masks for data"]) == ("0-1: 3", "0-1: 3c")
    assert fields["Memory bandwidth"] == "at most 60 %"


def test_how_long_a_vm_ran_outside_of_its_group_is_told_as_far_as_it_is_known(
    host: PlayedHost, open_page: OpenPage
) -> None:
    host.add("early", 1)
    host.add("found", 1, outside_at_start=None, outside_later=0.0021)
    host.add("plain", outside_at_start=None, outside_later=None)
    browser = open_page()
    for name, told in [
        ("early", "0.4 ms at its start, 0.0 ms since"),
        ("found", "not known of its start, 2.1 ms since the agent found it"),
        ("plain", None),
    ]:
        unfold(browser, name)
        assert details(browser).get("CPU outside of group") == told
        unfold(browser, name)


def test_an_occupancy_without_a_number_is_not_one_of_what_was_promised(host: PlayedHost, open_page: OpenPage) -> None:
    vm = host.add("web-1", 2)
    host.missing[vm["uuid"]] = {"llc_occupancy": "unassigned"}
    assert open_page().texts("#vms .limited .figures") == ["unassigned"]


def test_a_counter_without_a_number_is_a_word_and_never_a_zero(host: PlayedHost, open_page: OpenPage) -> None:
    silent = host.add("silent", 1)
    host.missing[silent["uuid"]] = dict.fromkeys(("mbm_total_bytes", "mbm_local_bytes"), "unassigned")
    browser = open_page()
    _, _, _, bandwidth, local, remote, *_ = browser.texts("#vms tbody tr:first-child td")
    assert (bandwidth, local, remote) == ("unassigned", NONE, NONE)
    lines = browser.run("return [...document.querySelectorAll('.spark .line')].map((line) => line.getAttribute('d'))")
    assert lines[0] and not lines[1]
    browser.one(NAMES).click()
    why = "no hardware counter is assigned to the VM now: there are too few for all VMs"
    assert details(browser)["No value: bandwidth, local bandwidth"] == why
    assert [text for text in browser.texts(".empty") if text] == [why]
    # A scale of nothing has no values beside it.
    assert [bool(texts) for texts in beside(browser)] == [True, False]
    assert browser.texts(".told")[1].endswith(" UTC: no value")
    assert charts(browser)[1] == "Memory bandwidth" and why in str(browser.all(".chart")[1].get_attribute("aria-label"))


def test_a_vm_that_no_group_counts_is_told_in_the_agents_words(host: PlayedHost, open_page: OpenPage) -> None:
    why = "no RMID is left: the machine has 8, and 2 are kept for VMs with a promise"
    vm = host.add("plain", monitoring_group=None, unmonitored_reason=why)
    host.unmonitored.add(vm["uuid"])
    host.remembers = 0
    browser = open_page()
    assert browser.texts("#vms tbody .value, #vms tbody .figures > .dim:first-child") == ["no group"] * 2
    titles = browser.run("return [...document.querySelectorAll('#vms .figures > [title]')].map((one) => one.title)")
    assert titles == [why] * 2
    browser.one(NAMES).click()
    assert browser.texts(".empty") == [why] * 2


def test_an_agent_that_has_no_counters_is_not_taken_for_a_vm_without_a_group(
    host: PlayedHost, open_page: OpenPage
) -> None:
    host.add("web-1", 2)
    host.remembers = 0
    host.broken["/v1/telemetry"] = ("503 Service Unavailable", "resctrl is not mounted")
    browser = open_page()
    assert browser.texts("#vms .figures") == ["no value"] * 2
    browser.one(NAMES).click()
    assert browser.texts(".empty") == ["the agent tells no counters"] * 2
    browser.leave()


def test_the_last_bandwidth_of_a_vm_that_waits_for_counters_has_its_age_beside_it(
    host: PlayedHost, open_page: OpenPage
) -> None:
    waits = host.add("waits", 1)
    host.missing[waits["uuid"]] = dict.fromkeys(("mbm_total_bytes", "mbm_local_bytes"), "unassigned")
    rates = {"total": 3 << 19, "local": 1 << 20, "remote": 1 << 19}
    host.measured[waits["uuid"]] = {"rates": rates, "age_seconds": 23.5}
    browser = open_page()
    bandwidth, local = browser.texts("#vms tbody tr:first-child td")[3:5]
    assert bandwidth.split("\n") == ["unassigned", "1.5 MiB/s 23 s ago"] and local == NONE
    browser.one(NAMES).click()
    fields = details(browser)
    assert fields["Bandwidth before"] == "1.5 MiB/s 23 s ago"
    assert "Bandwidth now" not in fields


def test_lines_span_what_is_remembered_while_that_is_less_than_ten_minutes(
    host: PlayedHost, open_page: OpenPage
) -> None:
    few(host)
    host.remembers = 120
    browser = open_page()
    browser.all(NAMES)[0].click()
    label = browser.all(".chart")[0].get_attribute("aria-label")
    assert re.search(r"over the last 2 min( 10 s)?\. occupancy: now ", str(label))
    boxes = browser.run("return [...document.querySelectorAll('.spark .line')].map((line) => line.getBBox().width)")
    assert all(105 < width <= 120 for width in boxes)


def test_sparklines_span_ten_minutes(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    browser = open_page()
    boxes = browser.run("return [...document.querySelectorAll('.spark .line')].map((line) => line.getBBox().width)")
    assert len(boxes) == 8
    assert all(110 < width <= 120 for width in boxes)


def test_one_full_cache_is_told_as_full_whatever_is_on_the_other(host: PlayedHost, open_page: OpenPage) -> None:
    uneven = host.add("uneven", 4)
    host.held[uneven["uuid"]] = {"0": 6_186_598, "1": 0}
    host.add("mail-1")
    browser = open_page()
    figures = {name: text for name, text in zip(browser.texts(NAMES), browser.texts(".limited .figures"), strict=True)}
    assert figures["uneven"].split("\n") == ["5.9 MiB of 12 MiB", "cache 0: 98 %"]
    assert "%" not in figures["mail-1"]
    bars = browser.run(
        "return [...document.querySelectorAll('.limited')].map((one) => [...one.querySelectorAll('.meter')].map("
        "(bar) => bar.firstChild.getBoundingClientRect().width / bar.getBoundingClientRect().width))"
    )
    assert bars == [[pytest.approx(0.983, abs=0.01), 0], []]
    browser.all(NAMES)[0].click()
    assert details(browser)["Occupancy by cache"] == "0: 5.9 MiB of 6 MiB (98 %), 1: 0 B of 6 MiB (0 %)"
    assert "Occupancies are sums over all caches" in browser.one("#counters").text


def test_a_vm_on_one_cache_tells_how_full_that_one_is(host: PlayedHost, open_page: OpenPage) -> None:
    vm = host.add("web-1", 2)
    vm["masks"] = {"0": "3"}
    host.held[vm["uuid"]] = {"0": 3_145_728, "1": 100_000}
    browser = open_page()
    assert browser.texts(".limited .under") == ["100 %"]
    assert len(browser.all(".limited .meter")) == 1


def test_the_agents_health_and_its_vms_states_are_two_things(host: PlayedHost, open_page: OpenPage) -> None:
    few(host)
    host.add("big-1", ways_requested=6, state="pending", reason="L3 cache 0 has 2 ways to give")
    browser = open_page()
    health = browser.one("#health")
    assert (health.text, health.get_attribute("data-level")) == ("agent ok", "ok")
    badges = [(one.text, one.get_attribute("data-level")) for one in browser.all("#states li")]
    assert badges == [("1 pending", "pending"), ("3 kept", "kept")]


def test_vms_of_one_name_are_told_apart_everywhere(host: PlayedHost, open_page: OpenPage) -> None:
    twins = [
        host.add("web", 1),
        host.add("web", ways_requested=6, state="pending", reason="no way"),
        host.add("web", 1),
    ]
    called = [f"web ({vm['uuid'][:8]})" for vm in twins]
    host.add("mail-1")
    browser = open_page()
    assert {" ".join(text.split()) for text in browser.texts(NAMES)} == {*called, "mail-1"}
    assert browser.texts("#attention .link") == [called[1]]
    assert set(browser.texts(".cache:first-child .key .link")) == {called[0], called[2]}


def test_the_totals_of_the_host_are_those_of_its_vms(host: PlayedHost, open_page: OpenPage, pause: Pause) -> None:
    host.add("web-1", 2)
    host.add("late", state="pending", reason="no way is left")
    half = host.add("half", 3)
    half["masks"] = {"1": "1c"}
    silent = host.add("silent")
    host.missing[silent["uuid"]] = {"mbm_total_bytes": "unassigned"}
    browser = open_page()
    pause()
    facts = browser.pairs("#host dt", "#host dd")
    assert (facts["VMs"], facts["Promises"]) == ("4", "2 of 3 kept")
    assert facts["L3 ways"].startswith("0: 2 of 11 promised, ") and ", 1: 5 of 11 promised, " in facts["L3 ways"]
    assert " of 3 of them, " in facts["All VMs' bandwidth"]
    numbers = browser.value(
        "host.js",
        "[['a', 'b', 'c'], ['a', 'b'], ['a', 'd'], ['d'], ['a', 'in no group'], ['c']].map((uuids) => it.factsOf({"
        "vms: uuids.map((uuid) => ({uuid})), caches: [], telemetry: {vms: {a: {rates: {total: 3e9, remote: 1e9}},"
        " b: {rates: {total: 1e9, remote: 5e8}}, c: {rates: {total: null, remote: null}},"
        " d: {rates: {total: 1e9, remote: null}}}, host: {}}}).at(-1)[1])",
    )
    assert numbers == [
        "3.7 GiB/s of 2 of them, 1.4 GiB/s remote",
        "3.7 GiB/s, 1.4 GiB/s remote",
        # What a machine does not count is not told as 0.
        "3.7 GiB/s",
        "954 MiB/s",
        "2.8 GiB/s of 1 of them, 954 MiB/s remote",
        "no values",
    ]


def test_of_many_vms_in_trouble_the_most_urgent_are_shown_and_the_others_at_a_click(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook
) -> None:
    for number in range(9):
        host.add(f"big-{number}", ways_requested=6, state="pending", reason="no ways", since=1000.0 + number)
    host.add("typo-1", state="degraded", reason="hw:cache_ways='two'")
    browser = open_page()
    shown = ["typo-1", "big-0", "big-1", "big-2", "big-3", "big-4"]
    assert browser.texts("#attention .link") == shown
    assert browser.driver.title.startswith("(10) ")
    more = browser.one("#all-problems")
    assert (more.text, more.get_attribute("aria-expanded")) == ("All 10", "false")
    more.click()
    assert browser.texts("#attention .link") == [*shown, "big-5", "big-6", "big-7", "big-8"]
    assert (more.text, more.get_attribute("aria-expanded")) == ("Only the first 6", "true")
    more.click()
    assert browser.texts("#attention .link") == shown
    for vm in host.vms[:4]:
        vm.update(state="kept", reason="")
    next_look()
    assert browser.texts("#attention .link") == ["typo-1", "big-4", "big-5", "big-6", "big-7", "big-8"]
    assert not more.is_displayed()
