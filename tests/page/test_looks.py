# SPDX-License-Identifier: Apache-2.0
"""What the page asks for with each look: numbers alone, of which it makes what the agent tells VM by VM."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.page.conftest import NAMES, NextLook, OpenPage, Pause, details, unfold
from tests.page.filled import few
from tests.page.played_host import COLUMNS, PlayedHost

WHOLE = ["/v1/telemetry", "/v1/telemetry/hardware-events"]
SHOWN = "caches", "group", "policy", "ways", "allocated_bytes", "missing", "rates_missing"


@pytest.fixture
def counted(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> PlayedHost:
    """A host whose figures stay as they are."""
    few(host)
    host.unavailable = ""
    monkeypatch.setattr(host, "_played", lambda vm, when: (4 << 20, 3e8 + vm["pid"], 2e8))
    monkeypatch.setattr(
        host,
        "_executed",
        lambda vm, when: {"cycles": 4e9, "instructions": 3e9, "cache_references": 2e7, "cache_misses": 1e6},
    )
    return host


def test_what_is_made_of_columns_is_what_the_agent_tells_vm_by_vm(counted: PlayedHost, open_page: OpenPage) -> None:
    waits = counted.vms[1]["uuid"]
    counted.missing[waits] = {"llc_occupancy": "error"}
    counted.uncounted[counted.vms[2]["uuid"]] = "it has 2000 tasks"
    browser = open_page()
    first, second = browser.run(
        "const looks = new (await import('/page/looks.js')).Looks(); return [await looks.ask(0), await looks.ask(1)]"
    )
    whole, executed = (json.loads(json.dumps(counted._answer(path, {}))) for path in WHOLE)
    for found in (first, second):
        readings: dict[str, Any] = found["telemetry"]["value"]["vms"]
        assert readings.keys() == whole["vms"].keys()
        for uuid, vm in whole["vms"].items():
            expected = {name: vm[name] for name in SHOWN}
            if uuid != waits:
                expected["caches"] = {
                    cache: {"llc_occupancy": counts["llc_occupancy"]} for cache, counts in vm["caches"].items()
                }
            assert {name: readings[uuid][name] for name in SHOWN} == expected
            assert readings[uuid]["rates"] == vm["rates"]
            assert readings[uuid]["totals"]["llc_occupancy"] == vm["totals"]["llc_occupancy"]
        assert found["telemetry"]["value"]["host"] == whole["host"]
        events = found["executed"]["value"]["vms"]
        assert {uuid: (vm["rates"], vm["share"], vm["reason"]) for uuid, vm in events.items()} == {
            uuid: (vm["rates"], vm["share"], vm["reason"]) for uuid, vm in executed["vms"].items()
        }


def test_with_each_look_the_agent_is_asked_for_what_the_page_does_not_know(
    counted: PlayedHost, open_page: OpenPage, next_look: NextLook
) -> None:
    browser = open_page()
    next_look()
    bases = browser.run(
        "return performance.getEntriesByType('resource').map((one) => new URL(one.name))"
        f".filter((one) => one.pathname === {COLUMNS!r}).map((one) => one.searchParams.get('basis'))"
    )
    assert bases[0] == "" and len(set(bases[1:])) == 1 and bases[1]
    assert not {*WHOLE} & {*counted.asked}


def test_a_vm_that_comes_later_has_its_figures(counted: PlayedHost, open_page: OpenPage, next_look: NextLook) -> None:
    browser = open_page()
    counted.add("late-1", 1)
    counted.remove(counted.vms[0])
    next_look()
    unfold(browser, "late-1")
    found = details(browser)
    assert found["Bandwidth now"] == "191 MiB/s local, 95.4 MiB/s remote"
    assert found["Instructions per cycle now"] == "0.75"
    assert "database" not in browser.texts(NAMES)


def test_an_agent_before_columns_is_asked_for_the_whole(
    counted: PlayedHost, open_page: OpenPage, next_look: NextLook, pause: Pause
) -> None:
    counted.tells_columns = False
    browser = open_page()
    next_look()
    pause()
    unfold(browser, "database")
    assert details(browser)["Instructions per cycle now"] == "0.75"
    assert counted.asked.count(COLUMNS) == 1
    assert min(map(counted.asked.count, WHOLE)) >= 3
    assert all("404" in complaint for complaint in browser.leave())
