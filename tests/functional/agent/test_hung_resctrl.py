# SPDX-License-Identifier: Apache-2.0
"""A resctrl that does not answer: the agent says so at once, whatever is asked, and goes on when it answers again.

The simulator is stopped (SIGSTOP): every access to its filesystem then hangs in the kernel.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_starts import cpu_waits, longest_wait
from tests.functional.conftest import MakeAgent, MakeVm, Pace, WaitFor
from tests.functional.telemetry.scraped import Scrape, scrape, scrape_with, text_of
from tools.lab import unix_http
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from tools.lab.stalls import Stalls

EXCLUSIVE_2 = {"hw:cache_ways": "2"}
PROMPT = 1.0
"""Seconds within which there is an answer, of those in which the machine has a CPU for it: that nothing takes longer is
what these tests are about."""

LIVE = ("/v1/groups", "/v1/capabilities")
"""What is read from resctrl at the moment of the question."""


@pytest.fixture
def stop_resctrl(simulator: Simulator) -> Iterator[Callable[[], None]]:
    """Stops resctrl until the test's end."""
    pid = simulator.pid
    assert pid is not None
    yield lambda: os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)


class Timing:
    """Tells what an answer takes without the time in which this machine had no CPU for those who make it or ask for it.

    A program that waits for resctrl, or for another program that does, wants no CPU meanwhile: that counts in full.
    """

    def __init__(self, stalls: Stalls, agent: Agent) -> None:
        self._stalls = stalls
        pids = (os.getpid(), agent.pid, agent.gateway.pid)
        self._before = {pid: cpu_waits(pid) for pid in pids if pid is not None}
        self._began = time.monotonic()

    def took(self) -> float:
        """Seconds since this was made."""
        now = time.monotonic()
        waited = sum(longest_wait(pid, since) for pid, since in self._before.items())
        # The same time may be in both.
        return now - self._began - max(waited, self._stalls.lost(self._began, now))


def once(agent: Agent, path: str) -> Any:
    """The answer to one question."""
    return unix_http.get(agent.socket, path)


def timed(stalls: Stalls, agent: Agent, path: str) -> tuple[float, Any]:
    """How many seconds an answer takes, and the answer."""
    timing = Timing(stalls, agent)
    found = once(agent, path)
    return timing.took(), found


def together(number: int, ask: Callable[[], object]) -> list[threading.Thread]:
    """Have so many threads ask at the same time; they do not wait for each other."""

    def quietly() -> None:
        try:
            ask()
        except (OSError, RuntimeError):
            return

    threads = [threading.Thread(target=quietly) for _ in range(number)]
    for thread in threads:
        thread.start()
    return threads


def test_health_and_scrapes_are_answered_while_resctrl_hangs(
    agent: Agent,
    simulator: Simulator,
    make_vm: MakeVm,
    wait_for: WaitFor,
    wait_for_vm: WaitForVm,
    stop_resctrl: Callable[[], None],
    pace: Pace,
    stalls: Stalls,
) -> None:
    vm = make_vm(EXCLUSIVE_2)
    wait_for_vm(vm, "kept")
    wait_for(lambda: agent.get("/v1/health")["ages"]["counters"] is not None, "a sweep")
    # It starts the gateway, once.
    metrics = agent.metrics
    stop_resctrl()
    # From the first moment on, when nobody knows yet that it hangs.
    asking = [
        *together(20, lambda: text_of(metrics)),
        *together(5, lambda: once(agent, f"/v1/vms/{vm.uuid}")),
        *together(5, lambda: once(agent, "/v1/groups")),
    ]
    for _ in range(20):
        took, health = timed(stalls, agent, "/v1/health")
        assert took < PROMPT * pace.patience
        time.sleep(0.1)
    for thread in asking:
        thread.join()

    for path in ("/v1/vms", "/v1/caches", "/v1/telemetry", "/v1/telemetry/history"):
        took, found = timed(stalls, agent, path)
        assert took < PROMPT * pace.patience, path
        assert path.endswith("history") or found["age_seconds"] is None or found["age_seconds"] > 0
    assert agent.get("/v1/telemetry")["age_seconds"] > 1.5
    for path in (f"/v1/vms/{vm.uuid}", *LIVE):
        timing = Timing(stalls, agent)
        with pytest.raises(RuntimeError, match=r"503 .* a read of it has taken \d+ s so far"):
            once(agent, path)
        assert timing.took() < PROMPT * pace.patience, "others have waited for it in vain"

    def is_old() -> bool:
        health.update(agent.get("/v1/health"))
        return "counters" in health["stale"]

    wait_for(is_old, "the counters being called old")
    assert health["status"] == "degraded"
    assert health["ages"]["counters"] > 5
    # One text serves all who scrape within a second, so the first one may be of the second before. In it, the counters
    # are as they were a moment before their age was asked for: they were too old, too, if that is a second more.
    found = scrape_with(
        wait_for, agent.metrics, lambda found: found.value("vmqos_sweep_age_seconds") > 6, "the metrics saying so, too"
    )
    assert found.find("vmqos_vm_llc_occupancy_bytes") == [], "figures that stand still are no figures"
    assert found.value("vmqos_vm_state", uuid=vm.uuid, state="kept") == 1

    assert simulator.pid is not None
    os.kill(simulator.pid, signal.SIGCONT)
    wait_for(lambda: agent.get("/v1/health")["stale"] == [], "figures being young again")
    assert wait_for_vm(vm, "kept")["task_list"]
    assert agent.get("/v1/groups")["groups"]
    wait_for(lambda: has_counters(agent.metrics, vm.uuid), "the counters being back")


def has_counters(socket: Path, uuid: str) -> bool:
    return bool(scrape(socket).find("vmqos_vm_llc_occupancy_bytes", uuid=uuid))


def test_without_regular_sweeps_a_scrape_waits_for_one_and_not_for_ever(
    make_agent: MakeAgent,
    make_vm: MakeVm,
    wait_for: WaitFor,
    stop_resctrl: Callable[[], None],
    pace: Pace,
    stalls: Stalls,
) -> None:
    agent = make_agent({"telemetry": {"interval": 0}})
    agent.start()
    vm = make_vm(EXCLUSIVE_2)
    wait_for(lambda: has_counters(agent.metrics, vm.uuid), "its counters")
    time.sleep(1.5 * PROMPT * pace.patience)
    began = time.monotonic()
    age = scrape(agent.metrics).value("vmqos_sweep_age_seconds")
    assert age - stalls.lost(began, time.monotonic()) < PROMPT * pace.patience, "it was made for this scrape"
    time.sleep(1.5)
    stop_resctrl()
    found: list[tuple[float, str]] = []

    def ask() -> None:
        timing = Timing(stalls, agent)
        told = text_of(agent.metrics)
        found.append((timing.took(), told))

    asking = together(20, ask)
    took, _ = timed(stalls, agent, "/v1/health")
    assert took < PROMPT * pace.patience
    for thread in asking:
        thread.join()
    assert len(found) == 20
    assert max(took for took, _ in found) < (PROMPT + 3) * pace.patience
    assert min(Scrape(told).value("vmqos_sweep_age_seconds") for _, told in found) > 1
