# SPDX-License-Identifier: Apache-2.0
"""A VM alone, beside a noisy neighbour, with ways of its own, and beside a capped neighbour; the agent alone acts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.kernel.cachemodel import switch
from tests.worth import four_cases, told
from tests.worth.four_cases import Pair
from tests.worth.node import RESCTRL
from tests.worth.told import Told, Top
from tests.worth.window import Seen

# All is measured once, before the first test, for a compute node of emulated processors is slow to start.
pytestmark = [
    pytest.mark.guest(machines=("milan-shared",), kernels=("6.12",)),
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

UNIT = 4096
"""Bytes of one unit of the machine's counters."""
SLACK = 8 * UNIT
"""What a stopped VM's QEMU may still touch."""
CASES = ("alone", "noisy", "protected", "capped")


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured.

    :ivar cases: what both VMs did, by case.
    :ivar without_agent: what the protected VM did while no agent ran.
    :ivar ways_without_agent: the masks of the VM's group and of the default group meanwhile.
    :ivar given_back: the same after the flavor had lost its ways.
    :ivar before: what was told of both while one was protected.
    :ivar after: the same a moment later.
    :ivar top: what ``vmqos top`` said then.
    """

    cases: Mapping[str, Mapping[str, Seen]]
    without_agent: Seen
    ways_without_agent: tuple[int, int]
    given_back: Seen
    before: Mapping[str, Told]
    after: Mapping[str, Told]
    top: Top


@pytest.fixture(scope="module")
def found() -> Found:
    """Everything that the tests look at."""
    with four_cases.pair() as pair:
        cases = four_cases.measure(pair)
        pair.node.promise(pair.victim, four_cases.PROTECTED)
        # A line counts for the group in which it was brought in, and the VM has one of its own now.
        switch.empty()
        pair.measure()
        before, after, top = _ask_twice(pair)
        without_agent = four_cases.measure_without_agent(pair)["victim"]
        ways = _l3_mask("vmqos." + pair.victim.uuid), _l3_mask("")
        given_back = four_cases.measure_taken_back(pair)["victim"]
    return Found(cases, without_agent, ways, given_back, before, after, top)


def _ask_twice(pair: Pair) -> tuple[dict[str, Told], dict[str, Told], Top]:
    vms = pair.victim, pair.noise
    before = told.ask(pair.node, vms)
    pair.measure()
    after = told.ask(pair.node, vms)
    pair.measure()
    return before, after, told.top(pair.node, vms, after["victim"])


def _l3_mask(group: str) -> int:
    lines = (RESCTRL / group / "schemata").read_text().split()
    return next(int(line.removeprefix("L3:0="), 16) for line in lines if line.startswith("L3:"))


def test_a_noisy_neighbour_takes_a_vms_cache_and_ways_of_its_own_or_a_cap_keep_it(found: Found) -> None:
    misses = {case: found.cases[case]["victim"].miss_ratio for case in CASES}
    report = f"{misses}\n{_report(found.cases)}"
    assert misses["alone"] < 0.1, report
    assert misses["noisy"] > 0.5, report
    assert misses["protected"] < 0.1, report
    assert misses["capped"] < 0.1, report
    assert misses["noisy"] > 10 * misses["protected"], report


def _report(cases: Mapping[str, Mapping[str, Seen]]) -> str:
    """Who brought in how much: without it, nobody knows afterwards who it was that took the victim's lines."""
    return "\n".join(
        f"{case}, {seen.seconds:.1f} s: {name} brought in {seen.model.data.memory} lines of data and "
        f"{seen.model.fetch.memory} of code, and holds {seen.model.occupancy} bytes"
        for case, of_case in cases.items()
        for name, seen in of_case.items()
    )


def test_a_vm_alone_holds_its_working_set(found: Found) -> None:
    assert found.cases["alone"]["victim"].model.occupancy > 0.9 * four_cases.WORKING_SET


def test_the_neighbour_is_as_noisy_in_each_case_but_the_first(found: Found) -> None:
    assert found.cases["alone"]["noise"].accesses == 0
    for case in CASES[1:]:
        noise = found.cases[case]["noise"]
        assert noise.accesses > 2 * found.cases[case]["victim"].accesses, case
        assert noise.miss_ratio > 0.8, case


def test_without_the_agent_the_promise_lasts_and_without_the_ways_it_does_not(found: Found) -> None:
    own, others = found.ways_without_agent
    assert own.bit_count() == 8 and own & others == 0
    assert found.without_agent.miss_ratio < 0.1
    assert found.given_back.miss_ratio > 0.5


@pytest.mark.parametrize("name", ["victim", "noise"])
def test_the_metrics_tell_the_traffic_that_the_caches_had(found: Found, name: str) -> None:
    before, after = found.before[name], found.after[name]
    least = after.first.memory_bytes - before.last.memory_bytes
    most = after.last.memory_bytes - before.first.memory_bytes
    assert least - UNIT <= after.bytes - before.bytes <= most + UNIT
    if name == "noise":
        assert least > 2 * four_cases.CACHE


@pytest.mark.parametrize("name", ["victim", "noise"])
def test_the_metrics_tell_what_a_vm_holds_of_the_cache(found: Found, name: str) -> None:
    for one in (found.before[name], found.after[name]):
        assert one.last.occupancy - SLACK <= one.occupancy <= one.first.occupancy + SLACK
    if name == "victim":
        assert found.after[name].occupancy > 0.9 * four_cases.WORKING_SET


def test_top_tells_what_the_metrics_tell(found: Found) -> None:
    victim, noise = found.top.vms["victim"], found.top.vms["noise"]
    assert (victim["state"], noise["state"]) == ("kept", "none")
    assert victim["ways"] == {"0": 8}
    # Nobody else can take what it holds in ways of its own.
    assert abs(victim["occupancy_bytes"] - found.top.first["victim"].occupancy) < 0.05 * four_cases.WORKING_SET
    for name, vm in found.top.vms.items():
        moved = found.top.first[name].memory_bytes - found.after[name].first.memory_bytes
        # A bandwidth's time is not exactly the one between the looks; and some lines are written back after them.
        assert vm["total_bytes_per_second"] * found.top.seconds == pytest.approx(
            moved, rel=0.1, abs=four_cases.CACHE / 8
        ), name
