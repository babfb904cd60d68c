# SPDX-License-Identifier: Apache-2.0
"""The rules of allocation over random machines, foreign groups, arrivals, departures, resizes and crashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.allocation.kernel import Kernel, Refused
from tests.unit.allocation.run_plan import follow, settle
from tests.unit.allocation.worlds import EXCLUSIVE, SHARED, machines, policies, request
from vmqos.allocation import CreateGroup, Policy, PromiseState, Request, Step, WriteMasks, plan
from vmqos.openstack.extra_specs import CacheRequest

NAMES = ("qemu-1-a", "containers", "pqos")


@dataclass
class Host:
    """A host that things happen to."""

    kernel: Kernel
    policy: Policy
    vms: dict[int, Request]
    clock: int = 0

    @property
    def requests(self) -> list[Request]:
        return list(self.vms.values())


@st.composite
def events(draw: st.DrawFn, host: Host) -> None:
    """One thing happens."""
    l3 = host.kernel.l3
    kind = draw(st.sampled_from(["start", "start", "start", "stop", "resize", "policy", "pin", "foreign", "gone"]))
    number = draw(st.integers(1, 7))
    caches = draw(st.sets(st.sampled_from(l3.cache_ids), min_size=1))
    ways = draw(st.integers(1, max(2, l3.way_count // 2)))
    vm = host.vms.get(number)
    if kind == "start" and vm is None:
        host.clock += 1
        policy = draw(st.sampled_from([EXCLUSIVE, EXCLUSIVE, SHARED]))
        host.vms[number] = request(number, ways, policy, caches, host.clock)
    elif kind == "stop":
        host.vms.pop(number, None)
    elif kind == "resize" and vm:
        host.vms[number] = replace(vm, wants=replace(vm.wants, ways=ways))
    elif kind == "policy" and vm:
        other = SHARED if vm.wants.policy is EXCLUSIVE else EXCLUSIVE
        host.vms[number] = replace(vm, wants=CacheRequest(ways=vm.wants.ways, policy=other))
    elif kind == "pin" and vm:
        host.vms[number] = replace(vm, caches=frozenset(caches))
    elif kind == "foreign":
        _foreign(draw, host)
    elif kind == "gone":
        for name in NAMES:
            if name in host.kernel.masks and draw(st.booleans()):
                del host.kernel.masks[name]
    return None


def _foreign(draw: st.DrawFn, host: Host) -> None:
    l3, name = host.kernel.l3, draw(st.sampled_from(NAMES))
    if name not in host.kernel.masks:
        try:
            host.kernel.mkdir(name)
        except Refused:
            return
    if draw(st.booleans()):
        for cache in l3.cache_ids:
            fewest = max(1, l3.min_cbm_bits)
            start = draw(st.integers(0, l3.way_count - fewest))
            length = draw(
                st.integers(fewest, min(3, l3.way_count - start) if l3.way_count - start > fewest else fewest)
            )
            try:
                host.kernel.write(name, {cache: ((1 << length) - 1) << start})
            except Refused:
                continue


@st.composite
def hosts(draw: st.DrawFn, most_ways: int = 20, most_caches: int = 4) -> Host:
    """A host with some history."""
    host = Host(Kernel(draw(machines(most_ways, most_caches))), draw(policies()), {})
    for _ in range(draw(st.integers(0, 8))):
        for _ in range(draw(st.integers(1, 3))):
            draw(events(host))
        settle(host.kernel, host.requests, host.policy)
    for _ in range(draw(st.integers(1, 4))):
        draw(events(host))
    return host


@given(hosts())
def test_every_state_on_the_way_keeps_the_rules_and_an_unchanged_world_gives_an_empty_plan(host: Host) -> None:
    plans = settle(host.kernel, host.requests, host.policy)
    assert plans[-1].prepare == plans[-1].retire == ()


@given(hosts(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(host: Host, random: st.randoms) -> None:  # type: ignore[valid-type]
    layout, requests = host.kernel.layout(), host.requests
    first = plan(host.kernel.capabilities, layout, requests, host.policy)
    groups = list(layout.groups)
    random.shuffle(groups)
    random.shuffle(requests)
    again = plan(host.kernel.capabilities, replace(layout, groups=tuple(groups)), requests, host.policy)
    assert again == first


def promises(host: Host, kernel: Kernel) -> dict[str, tuple[PromiseState, str, dict[int, int]]]:
    """What every VM has, wherever it lies."""
    found = plan(kernel.capabilities, kernel.layout(), host.requests, host.policy)
    return {
        uuid: (verdict.state, verdict.group, {cache: mask.count for cache, mask in verdict.masks.items()})
        for uuid, verdict in found.verdicts.items()
    }


@given(hosts(), st.data())
def test_a_plan_made_anew_after_a_crash_comes_to_the_same_end(host: Host, data: st.DataObject) -> None:
    undisturbed, crashed = host.kernel.copy(), host.kernel.copy()
    settle(undisturbed, host.requests, host.policy)
    found = plan(crashed.capabilities, crashed.layout(), host.requests, host.policy)
    steps = (*found.prepare, *found.retire)
    count = data.draw(st.integers(0, len(steps)))
    follow(crashed, host.requests, host.policy, found, count)
    settle(crashed, host.requests, host.policy)
    if promises(host, crashed) != promises(host, undisturbed):
        dump(host, found, count, crashed, undisturbed)
    assert promises(host, crashed) == promises(host, undisturbed)
    if not (count and isinstance(steps[count - 1], CreateGroup)) and not takes_detours(steps):
        assert (crashed.masks, crashed.exclusive) == (undisturbed.masks, undisturbed.exclusive)


def takes_detours(steps: Sequence[Step]) -> bool:
    """Whether any mask is written twice on the way."""
    written = [(step.group, cache) for step in steps if isinstance(step, WriteMasks) for cache in step.masks]
    return len(written) != len(set(written))

def dump(host, found, count, crashed, undisturbed):
    print("LINE", host.kernel.l3, host.policy, host.kernel.capabilities.num_closids)
    show = lambda k: print({n: {c: hex(m) for c, m in ms.items()} for n, ms in k.masks.items()}, k.exclusive)
    show(host.kernel)
    for r in host.requests: print("REQ", r.uuid[:8], r.wants.ways, r.wants.policy.value, sorted(r.caches), r.arrival)
    for i, s in enumerate((*found.prepare, *found.retire)): print("  " if i < count else "XX", s)
    print("UNDISTURBED", end=" "); show(undisturbed)
    print("CRASHED", end=" "); show(crashed)
    p, q = promises(host, crashed), promises(host, undisturbed)
    for u in p:
        print(u[:8], "crash", p[u], "undist", q[u])
