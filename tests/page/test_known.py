# SPDX-License-Identifier: Apache-2.0
"""What stays from look to look is asked for once, and again when the agent's health names another revision."""

from __future__ import annotations

import pytest

from tests.page.conftest import NextLook, OpenPage, Pause, WaitFor
from tests.page.filled import few
from tests.page.played_host import COLUMNS, PlayedHost

STAYING = ("/v1/vms", "/v1/caches", "/v1/capabilities", "/v1/events")


def counts(host: PlayedHost) -> list[int]:
    return [host.asked.count(path) for path in STAYING]


def test_what_has_not_changed_is_not_asked_for_again(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook
) -> None:
    few(host)
    open_page()
    next_look()
    next_look()
    assert counts(host) == [1, 1, 1, 1]
    assert host.asked.count(COLUMNS) >= 4


def test_what_has_changed_is_shown_at_the_next_look(host: PlayedHost, open_page: OpenPage, next_look: NextLook) -> None:
    few(host)
    browser = open_page()
    host.add("late-1")
    next_look()
    assert "late-1" in browser.one("#vms").text
    assert counts(host) == [2, 2, 2, 1]
    host.happen(host.vms[0], "kept", "")
    next_look()
    assert counts(host) == [2, 2, 2, 2]


def test_an_agent_that_names_no_revision_is_asked_at_each_look(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook, pause: Pause
) -> None:
    host.names_revisions = False
    few(host)
    browser = open_page()
    host.add("late-1")
    next_look()
    # In the middle of a look one thing has been asked for once more than another.
    pause()
    assert "late-1" in browser.one("#vms").text
    assert len(set(counts(host))) == 1 and counts(host)[0] >= 3


def test_what_the_agent_did_not_tell_is_asked_for_at_the_next_look(
    host: PlayedHost, open_page: OpenPage, next_look: NextLook
) -> None:
    few(host)
    host.broken["/v1/caches"] = ("503 Service Unavailable", "resctrl is gone")
    browser = open_page()
    assert "resctrl is gone" in browser.one("main").text
    del host.broken["/v1/caches"]
    next_look()
    assert "resctrl is gone" not in browser.one("main").text
    assert all("503" in complaint for complaint in browser.leave())


def test_the_time_until_the_next_try_goes_on_though_nothing_is_asked(
    host: PlayedHost, open_page: OpenPage, wait_for: WaitFor
) -> None:
    few(host)
    host.vms[0].update(state="pending", reason="no way is left", reason_code="no-room", retry_in=50.0)
    browser = open_page()
    assert "next try in " in browser.one("#attention").text
    wait_for(lambda: "next try in 4" in browser.one("#attention").text, "the time to go on")
    assert counts(host)[0] == 1


@pytest.mark.parametrize("broken", [False, True])
def test_a_page_whose_agent_has_no_health_shows_the_rest(host: PlayedHost, open_page: OpenPage, broken: bool) -> None:
    few(host)
    if broken:
        host.broken["/v1/health"] = ("500 Internal Server Error", "no idea")
    browser = open_page()
    assert "database" in browser.one("#vms").text
    assert not broken or all("500" in complaint for complaint in browser.leave())
