# SPDX-License-Identifier: Apache-2.0
"""What is advised beside what a flavor has: the agent and 'vmqos replay' ask the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.insight.hosts import ALL, MIB, Did, history, host, step
from vmqos.insight import Cause, LimitedIn, PercentSteps, Promise, Use, Vm, judge
from vmqos.insight.advice import Advice, against, against_filling, for_more

SET = "vmqos flavor set c4-NEW"
"""Of a copy: Nova resizes no VM to the flavor that it has."""
CAP, LIMIT = f"{SET} --cache-ways 2 --policy shared", f"{SET} --bandwidth-percent 30"
HOST = host({})
CAPPED, APART = Promise(ways=2, is_shared=True), Promise(code_ways=2, data_ways=2)


def vm(promise: Promise) -> Vm:
    return Vm("c4", {0: 0xF}, promise)


@pytest.mark.parametrize(
    ("cause", "promise", "command", "because"),
    [
        (Cause.CACHE, Promise(), CAP, ""),
        (Cause.CACHE, Promise(ways=2), CAP, ""),
        (Cause.CACHE, replace(CAPPED, ways=5), CAP, ""),
        (Cause.CACHE, CAPPED, "", "2 ways with hw:cache_policy=shared"),
        (Cause.CACHE, replace(CAPPED, ways=1), "", "1 way with hw:cache_policy=shared"),
        (Cause.CACHE, APART, f"{SET} --code-ways 1 --data-ways 1 --policy shared", ""),
        (Cause.CACHE, Promise(code_ways=1, data_ways=1, is_shared=True), "", "has a cap already"),
        (Cause.BANDWIDTH, CAPPED, LIMIT, ""),
        (Cause.BANDWIDTH, Promise(percent=60), LIMIT, ""),
        (Cause.BANDWIDTH, Promise(percent=30), LIMIT.replace("30", "20"), "a limit already (30 %)"),
        (Cause.BANDWIDTH, Promise(percent=12), LIMIT.replace("30", "10"), "a limit already (12 %)"),
        (Cause.BANDWIDTH, Promise(percent=10), "", "a limit already (10 %)"),
        (Cause.BANDWIDTH, Promise(mbps=4000), f"{SET} --bandwidth-mbps 2000", "a limit already (4000 MB/s)"),
        (Cause.BANDWIDTH, Promise(mbps=8000), f"{SET} --bandwidth-mbps 6000", ""),
        (Cause.BANDWIDTH, Promise(mbps=250), "", "a limit already (250 MB/s)"),
    ],
)
def test_a_culprit_is_not_advised_what_its_flavor_has(
    cause: Cause, promise: Promise, command: str, because: str
) -> None:
    unit = LimitedIn.MBPS if promise.mbps else LimitedIn.PERCENT
    found = against(cause, replace(HOST, limited_in=unit), vm(promise), 20e9, 20e9)
    assert found.command == command
    assert len(found.because) == bool(because) and because in "".join(found.because)


@pytest.mark.parametrize(
    ("unit", "promise", "moves", "command", "because"),
    [
        (LimitedIn.PERCENT, Promise(), 20e9, LIMIT, ""),
        (LimitedIn.PERCENT, Promise(), 1e9, LIMIT, ""),
        (LimitedIn.MBPS, Promise(), 20e9, f"{SET} --bandwidth-mbps 6000", ""),
        (LimitedIn.MBPS, Promise(), 20.3e9, f"{SET} --bandwidth-mbps 6125", ""),
        (LimitedIn.MBPS, Promise(), 0.5e9, f"{SET} --bandwidth-mbps 250", ""),
        (LimitedIn.NOTHING, Promise(), 20e9, "", "can't limit memory bandwidth"),
        (LimitedIn.UNKNOWN, Promise(), 20e9, "", "in per cent or in MB/s is not known"),
        (LimitedIn.PERCENT, Promise(mbps=4000), 20e9, "", "a limit in MB/s, which this host can't keep"),
        (LimitedIn.MBPS, Promise(percent=30), 20e9, "", "unset', --bandwidth-mbps 6000 ends it"),
    ],
)
def test_a_limit_is_advised_in_what_the_host_limits_in(
    unit: LimitedIn, promise: Promise, moves: float, command: str, because: str
) -> None:
    found = against(Cause.BANDWIDTH, replace(HOST, limited_in=unit), vm(promise), moves, 20e9)
    assert found.command == command
    assert len(found.because) == bool(because) and because in "".join(found.because)


@pytest.mark.parametrize(
    ("vcpus", "room", "percent", "because"),
    [
        (0, 1e9, 30, ""),
        (10, 30e9, 30, ""),
        (10, 29e9, 20, "with 30 % the neighbour's 10 could still move 30 GB/s, where there is room for 29 GB/s"),
        (40, 45e9, 10, "with 30 % the neighbour's 40 could still move 120 GB/s, where there is room for 45 GB/s"),
        (
            40,
            39e9,
            0,
            "with 10 % the neighbour's 40 could still move 40 GB/s, where there is room for 39 GB/s; to move",
        ),
    ],
)
def test_a_limit_in_per_cent_is_one_of_each_vcpu_and_all_of_them_have_to_leave_room(
    vcpus: int, room: float, percent: int, because: str
) -> None:
    known = replace(HOST, limited_in=LimitedIn.PERCENT)
    found = against(Cause.BANDWIDTH, known, replace(vm(Promise()), vcpus=vcpus), 60e9, room)
    assert found.command == (f"{SET} --bandwidth-percent {percent}" if percent else "")
    assert len(found.because) == bool(because) and because in "".join(found.because)


@pytest.mark.parametrize(
    ("steps", "vcpus", "room", "has", "percent"),
    [
        (None, 0, 1e9, 0, 30),
        (None, 10, 29e9, 0, 20),
        (None, 0, 1e9, 25, 20),
        (None, 40, 39e9, 0, 0),
        (PercentSteps(1, 1), 0, 1e9, 0, 30),
        (PercentSteps(1, 1), 10, 29e9, 0, 29),
        (PercentSteps(1, 1), 0, 1e9, 25, 12),
        (PercentSteps(1, 1), 40, 5e9, 0, 1),
        (PercentSteps(1, 1), 40, 3e9, 0, 0),
        (PercentSteps(1, 5), 40, 5e9, 0, 0),
        # The kernel would keep 40 of 30.
        (PercentSteps(20, 20), 0, 1e9, 0, 20),
        (PercentSteps(20, 20), 10, 20e9, 0, 20),
        (PercentSteps(20, 20), 10, 19e9, 0, 0),
        (PercentSteps(20, 20), 0, 1e9, 20, 0),
        (PercentSteps(50, 50), 0, 1e9, 0, 50),
    ],
)
def test_a_limit_in_per_cent_is_one_that_the_host_can_keep(
    steps: PercentSteps | None, vcpus: int, room: float, has: int, percent: int
) -> None:
    known = replace(HOST, limited_in=LimitedIn.PERCENT, percent_steps=steps)
    neighbour = replace(vm(Promise(percent=has)), vcpus=vcpus)
    found = against(Cause.BANDWIDTH, known, neighbour, 60e9, room)
    assert found.command == (f"{SET} --bandwidth-percent {percent}" if percent else "")


@pytest.mark.parametrize(("vcpus", "percent"), [(10, 30), (20, 20), (40, 10)])
def test_the_limit_leaves_room_for_what_the_others_moved_before(vcpus: int, percent: int) -> None:
    """Memory of 64 GB/s as in the report (``tests.worth``), in which 30 % undo nothing with 40 vCPUs."""
    known = host({"noisy": 0xFF, "victim": 0xFF00}, limit=64e9, flavor="c4")
    known = replace(known, vms={**known.vms, "noisy": replace(known.vms["noisy"], vcpus=vcpus)})
    idle, flood = Did(held=MIB), Did(held=MIB, moved=62e9)
    own, slowed = Did(moved=2e9, misses=10, cycles=3000), Did(moved=1e9, misses=10, cycles=6000)
    (pair,) = judge(known, history(40, noisy=step(idle, flood, 25), victim=step(own, slowed, 25))).pairs
    assert pair.cause is Cause.BANDWIDTH and pair.advice == f"{SET} --bandwidth-percent {percent}"
    assert ("one of each vCPU" in pair.evidence[-1]) == (percent < 30)


@pytest.mark.parametrize(("promise", "command"), [(Promise(), CAP), (Promise(ways=2), CAP), (CAPPED, "")])
def test_a_vm_that_fills_the_cache_without_gain_is_not_advised_a_cap_that_it_has(
    promise: Promise, command: str
) -> None:
    found = against_filling(vm(promise))
    assert (found.command, len(found.because)) == (command, 0 if command else 1)


@pytest.mark.parametrize(
    ("promise", "needs", "ways"),
    [
        (Promise(), 3, 3),
        (Promise(ways=4), 5, 5),
        (Promise(ways=4), 4, 5),
        (Promise(ways=4), 3, 5),
        (replace(CAPPED, ways=4), 4, 5),
    ],
)
def test_a_vm_that_starves_is_advised_more_ways_than_it_has(promise: Promise, needs: int, ways: int) -> None:
    assert for_more(vm(promise), needs, 11) == Advice(f"{SET} --cache-ways {ways}")


def test_a_vm_that_has_nearly_all_ways_is_advised_none() -> None:
    assert for_more(vm(Promise(ways=10)), 9, 11) == Advice()


def test_where_code_and_data_have_ways_apart_it_is_not_known_which_of_them_lacks_some() -> None:
    found = for_more(vm(APART), 5, 11)
    assert not found.command and "'vmqos size' tries how many of each" in found.because[0]


QUIET, NOISE = Did(held=MIB), Did(held=20 * MIB, moved=8e9, misses=18)
CALM, ROBBED = Did(held=10 * MIB, moved=2e8, misses=0.5), Did(held=4 * MIB, moved=2e9, cycles=2000, misses=5)


@pytest.mark.parametrize(("promise", "has_command"), [(Promise(), True), (CAPPED, False)])
def test_a_verdict_says_why_there_is_no_command(promise: Promise, has_command: bool) -> None:
    known = host({"noisy": ALL, "victim": ALL}, flavor="c4")
    known = replace(known, vms={**known.vms, "noisy": replace(known.vms["noisy"], promise=promise)})
    found = judge(known, history(40, noisy=step(QUIET, NOISE, 25), victim=step(CALM, ROBBED, 25)))
    (pair,), filling = found.pairs, found.vms["noisy"]
    assert filling.use is Use.FILLS_WITHOUT_GAIN
    for advice, evidence in ((pair.advice, pair.evidence), (filling.advice, filling.evidence)):
        assert bool(advice) == has_command
        assert ("has a cap already" in evidence[-1]) != has_command
