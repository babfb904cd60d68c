# SPDX-License-Identifier: Apache-2.0
"""The page of a real agent, with real VMs on the simulator."""

from __future__ import annotations

import socket
import time

import pytest

from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.page.browser import Browser
from tests.page.conftest import NAMES, lengths, unfold
from tools.lab.agent import Agent


def with_page(make_agent: MakeAgent, port: int) -> tuple[Agent, str]:
    """A running agent that has looked at its host, and where its page is."""
    agent = make_agent({"http": {"port": port}})
    agent.start()
    return agent, f"http://127.0.0.1:{port}/"


def leave(browser: Browser) -> None:
    """Leave the page, of which the browser has complained about nothing but what the agent could not tell in time."""
    browser.driver.get("about:blank")
    assert [complaint for complaint in browser.errors() if "503" not in complaint] == []


def facts(browser: Browser) -> dict[str, str]:
    """What is told of the host, by its title."""
    return browser.pairs("#host dt", "#host dd")


def test_a_browser_sees_the_vms_of_a_host_live(
    browser: Browser, make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor, free_port: int
) -> None:
    agent, page = with_page(make_agent, free_port)
    web = make_vm({"hw:cache_ways": "2"}, display_name="web-1")
    browser.open(page)
    wait_for(lambda: browser.texts(NAMES) == ["web-1"], "the first VM being shown")
    hostile = "<img src=x onerror=window.pwned=1>"
    make_vm({"hw:cache_ways": "20"}, display_name=hostile)
    # The other one may need attention too, up to the pass that has seen all of its tasks.
    expected = [f"pending {hostile}"]
    wait_for(lambda: browser.one("#attention").text.splitlines()[:1] == expected, "the pending VM being shown")
    assert "are asked for" in browser.one("#attention").text
    assert browser.run("return window.pwned") is None

    unfold(browser, "web-1")
    details = browser.one(".details:not([hidden])").text
    assert web.uuid in details and "2 ways, exclusive" in details
    wait_for(
        lambda: lengths(browser)[0][0] > 2,
        "occupancy being drawn",
    )
    wait_for(lambda: agent.get(f"/v1/vms/{web.uuid}")["state"] == "kept", "the promise being kept")

    def told() -> list[str]:
        """What the agent tells, in the page's words: a VM may come in one state, and be in another a pass later."""
        events = agent.get("/v1/events")["events"]
        came = (f"{one['before']} \N{RIGHTWARDS ARROW}" if one["before"] else "came" for one in events)
        return [f"{one['name']} {how} {one['state']}" for one, how in zip(events, came, strict=True)]

    def are_shown() -> bool:
        # On a slow machine there are more of them than are shown at first.
        more = browser.one("#more")
        if more.is_displayed() and more.get_attribute("aria-expanded") == "false":
            more.click()
        shown = [line.partition(" ")[2] for line in map(" ".join, map(str.split, browser.texts("#changes li")))]
        expected = told()
        return len(shown) == len(expected) and all(any(one.startswith(line) for one in shown) for line in expected)

    assert {"web-1 came", f"{hostile} came"} <= {line.rpartition(" ")[0] for line in told()}
    wait_for(are_shown, "all changes being shown")
    assert browser.texts(".cache h3") == ["L3 cache 0", "L3 cache 1"]
    wait_for(lambda: "web-1" in "".join(browser.texts(".cache:first-child .key")), "its ways being drawn")

    def is_told() -> bool:
        # What the agent could not tell in time comes with another look.
        found = facts(browser)
        return found.get("CLOSIDs", "").endswith("in use") and "in use" in found.get("RMIDs", "")

    wait_for(is_told, "the host's figures")
    assert facts(browser)["resctrl"] == "simulated"
    assert "queue depth" not in agent.log.read_text()
    leave(browser)


@pytest.mark.parametrize("simulator", [("sapphire-rapids", "cdp")], indirect=True)
def test_a_browser_sees_code_and_data_l2_and_limits(
    browser: Browser, make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor, free_port: int
) -> None:
    agent, page = with_page(make_agent, free_port)
    both = {"hw:cache_code_ways": "1", "hw:cache_data_ways": "3", "hw:l2_cache_ways": "4"}
    vm = make_vm(both | {"hw:mem_bandwidth_percent": "55"}, cpuset="0", display_name="rich")
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the promise being kept")
    ((core, _),) = agent.get(f"/v1/vms/{vm.uuid}")["l2_masks"].items()
    browser.open(page)
    wait_for(lambda: browser.texts(NAMES) == ["rich"], "the VM being shown")
    figures = {title.text: title for title in browser.all(".cache h3")}
    assert [title.partition(" cache")[0] for title in figures] == ["L3", "L3", "L2", "L2"]
    # Behind the letter, which follows from the VM's UUID.
    drawn = [" ".join(line.split()[1:]) for line in browser.texts(".cache:first-child .key li")]
    assert drawn[0].startswith("rich, data 3 ways") and drawn[0].endswith("mask e, at most 60 %")
    assert drawn[1].startswith("rich, code 1 way,") and drawn[1].endswith("mask 1, at most 60 %")
    number = list(figures).index(f"L2 cache {core}") + 1
    assert "rich" in browser.one(f".cache:nth-child({number}) .key").text
    assert (
        "code 1, data 3; L2: 4" in browser.one("#vms tbody").text and "at most 60 %" in browser.one("#vms tbody").text
    )
    expected = ("simulated, cdp", "in steps of 10 %")
    wait_for(
        lambda: tuple(map(facts(browser).get, ("resctrl", "Bandwidth limits"))) == expected, "the host's abilities"
    )
    leave(browser)


def test_an_agent_ends_at_once_though_a_browser_looks_and_the_page_says_that_it_is_gone(
    browser: Browser, make_agent: MakeAgent, wait_for: WaitFor, free_port: int
) -> None:
    agent, page = with_page(make_agent, free_port)
    browser.open(page)
    wait_for(lambda: bool(browser.texts(".cache h3")), "the page being shown")
    began = time.monotonic()
    assert agent.stop() == 0
    # On a machine that is busy; a connection that is left alone would be kept for a minute.
    assert time.monotonic() - began < 45.0
    wait_for(browser.one("#silence").is_displayed, "the silence being told")
    assert "The agent does not answer" in browser.one("#silence").text
    browser.driver.get("about:blank")
    complaints = [complaint for complaint in browser.errors() if "net::ERR_" not in complaint]
    assert [complaint for complaint in complaints if "503" not in complaint] == []


def test_the_page_can_be_had_over_the_unix_socket(agent: Agent) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(agent.metrics))
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost:9190\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"content-security-policy: default-src 'none'" in answer.lower()
    assert answer.rstrip().endswith(b"</html>")
