# SPDX-License-Identifier: Apache-2.0
"""The rules of a plan that hold for every cloud. Single cases are told with Watcher's own classes, in tests/watcher."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from watcher_plugin.pairs import Pair
from watcher_plugin.plan import Limits, Node, Plan, Size, Vm, decide

NODES = tuple("nmop")
VMS = tuple("abcdefgh")


@st.composite
def clouds(draw: st.DrawFn) -> tuple[dict[str, Vm], dict[str, Node], list[Pair], set[str], Limits]:
    size = st.builds(Size, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))
    vms = {
        uuid: Vm(
            uuid,
            uuid,
            draw(st.sampled_from(NODES)),
            draw(size),
            draw(st.sampled_from(["plain", "other"])),
            draw(st.sampled_from([None, False, False, False, True])),
            draw(st.sampled_from(["", "", "", "is locked"])),
        )
        for uuid in VMS
    }
    nodes = {
        uuid: Node(uuid, uuid, Size(*(draw(st.integers(-1, 8)) for _ in range(3))), 16, draw(st.booleans()))
        for uuid in NODES
    }
    name = st.sampled_from([*VMS, "gone"])
    cause = st.sampled_from(["cache", "memory-bandwidth"])
    pair = st.builds(Pair, name, name, cause, st.floats(1.1, 9)).filter(lambda one: one.victim != one.culprit)
    found = draw(st.lists(pair, max_size=8, unique_by=lambda one: (one.victim, one.culprit)))
    limits = Limits(draw(st.integers(0, 3)), draw(st.integers(0, 2)), draw(st.sampled_from([{}, {"plain": "cache"}])))
    return vms, nodes, found, {one.victim for one in found} | draw(st.sets(st.sampled_from(VMS), max_size=1)), limits


def planned(cloud: tuple[dict[str, Vm], dict[str, Node], list[Pair], set[str], Limits]) -> Plan:
    vms, nodes, found, suffering, limits = cloud
    return decide(found, vms=vms, nodes=nodes, suffering=suffering, limits=limits)


@given(clouds())
def test_only_vms_that_slow_others_and_have_no_promise_are_moved_and_each_once(cloud) -> None:
    vms, _, found, _, limits = cloud
    moved = [move.vm for move in planned(cloud).moves]
    assert len(set(moved)) == len(moved) <= limits.migrations
    for uuid in moved:
        assert vms[uuid].promised is False and not vms[uuid].pinned
        assert any(
            pair.culprit == uuid and vms[pair.victim].node == vms[uuid].node for pair in found if pair.victim in vms
        )


@given(clouds())
def test_no_node_gets_more_than_it_has_room_for_or_while_it_is_closed_or_a_vm_suffers_there(cloud) -> None:
    vms, nodes, _, suffering, _ = cloud
    came: dict[str, list[Size]] = {}
    for move in planned(cloud).moves:
        assert move.source == vms[move.vm].node != move.destination and nodes[move.destination].takes
        assert all(vms[uuid].node != move.destination for uuid in suffering if uuid in vms)
        came.setdefault(move.destination, []).append(vms[move.vm].size)
    for uuid, sizes in came.items():
        for part in ("vcpus", "memory", "disk"):
            assert sum(getattr(size, part) for size in sizes) <= getattr(nodes[uuid].free, part)


@given(clouds())
def test_a_vm_is_freed_only_if_nothing_that_slows_it_stays_beside_it(cloud) -> None:
    vms, _, found, _, limits = cloud
    plan = planned(cloud)
    moved, resized = {move.vm for move in plan.moves}, {resize.vm for resize in plan.resizes}
    assert plan.freed <= plan.victims
    for pair in found:
        together = {pair.victim, pair.culprit} <= set(vms) and vms[pair.victim].node == vms[pair.culprit].node
        assert not together or pair.victim in plan.victims
        if together and pair.victim in plan.freed:
            assert pair.culprit in moved or pair.victim in moved or (pair.takes_cache and pair.victim in resized)
    assert len(resized) <= limits.resizes and not resized & moved
    assert resized <= {pair.victim for pair in found if pair.takes_cache}


@given(clouds())
def test_something_is_said_of_each_victim_that_is_not_freed(cloud) -> None:
    plan = planned(cloud)
    for uuid in plan.victims - plan.freed:
        assert any(f" of {uuid} take " in text for text in plan.said)


def test_a_vm_that_waits_for_memory_gets_no_flavor_with_ways_and_is_not_called_freed() -> None:
    size = Size(1, 1, 0)
    vms = {
        "gold": Vm("gold", "gold", "n", size, promised=True),
        "locked": Vm("locked", "locked", "n", size, pinned="is locked"),
        "victim": Vm("victim", "victim", "n", size, "plain"),
    }
    limits = Limits(1, 1, {"plain": "cache"})

    def plan(*found: Pair) -> Plan:
        return decide(found, vms=vms, nodes={}, suffering=(), limits=limits)

    waits = Pair("victim", "gold", "memory-bandwidth", 1.4)
    alone = plan(waits)
    assert (alone.resizes, alone.freed) == ((), frozenset())
    assert alone.said[0].endswith("keeps its place; ways for victim would not end that")

    both = plan(waits, Pair("victim", "locked", "cache", 1.3))
    assert [resize.vm for resize in both.resizes] == ["victim"] and not both.freed
    assert both.said[1].endswith("locked is locked; victim gets the flavor cache")
