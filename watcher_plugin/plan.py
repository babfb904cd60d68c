# SPDX-License-Identifier: Apache-2.0
"""Which VMs are moved, which get another flavor, and why others are left: values in, a plan out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from watcher_plugin.pairs import Pair


@dataclass(frozen=True, slots=True)
class Size:
    """What a VM takes of a node, or what a node has left.

    :ivar vcpus: vCPUs; a node's are those that Nova may give out.
    :ivar memory: MiB.
    :ivar disk: GiB.
    """

    vcpus: float
    memory: float
    disk: float

    def holds(self, other: Size) -> bool:
        """Whether another size fits into this one."""
        return self.vcpus >= other.vcpus and self.memory >= other.memory and self.disk >= other.disk

    def without(self, other: Size) -> Size:
        """What is left of this one."""
        return Size(self.vcpus - other.vcpus, self.memory - other.memory, self.disk - other.disk)


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM.

    :ivar name: what people call it.
    :ivar node: UUID of the node that it is on.
    :ivar flavor: the name of its flavor, empty where it is not known.
    :ivar promised: whether it has ways of its own; ``None`` where no gateway knows the VM.
    :ivar pinned: why it may not be touched, a clause such as ``is locked``; empty if it may.
    """

    uuid: str
    name: str
    node: str
    size: Size
    flavor: str = ""
    promised: bool | None = False
    pinned: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A compute node.

    :ivar hostname: what Nova calls it.
    :ivar free: what Nova can still give out there.
    :ivar vcpus: how many vCPUs Nova can give out there in all.
    :ivar takes: whether it is up and enabled.
    """

    uuid: str
    hostname: str
    free: Size
    vcpus: float
    takes: bool = True

    @property
    def load(self) -> float:
        """The share of its vCPUs that is given out, 0 to 1."""
        return 1 - self.free.vcpus / self.vcpus if self.vcpus else 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one plan may do.

    :ivar migrations: VMs that may be moved.
    :ivar resizes: VMs that may get another flavor.
    :ivar flavors: for a flavor's name, that of the flavor that is the same with cache ways.
    """

    migrations: int
    resizes: int = 0
    flavors: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A VM goes from a node to another one, both as UUIDs."""

    vm: str
    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class Resize:
    """A VM gets another flavor."""

    vm: str
    flavor: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done.

    :ivar said: for each pair what is done about it, or why nothing is, a sentence without a full stop.
    :ivar victims: VMs that are slowed.
    :ivar freed: those of them that no longer are when all is done.
    """

    moves: tuple[Move, ...]
    resizes: tuple[Resize, ...]
    said: tuple[str, ...]
    victims: frozenset[str]
    freed: frozenset[str]


def decide(
    pairs: Sequence[Pair],
    *,
    vms: Mapping[str, Vm],
    nodes: Mapping[str, Node],
    suffering: Collection[str],
    limits: Limits,
) -> Plan:
    """Decide about pairs.

    The VM that slows others is moved if it has no ways of its own: the one that frees most VMs first. Where it is not
    moved, a VM that it slows may get ways by another flavor.

    :param pairs: the pairs that lasted and go on.
    :param vms: by UUID.
    :param nodes: by UUID.
    :param suffering: UUIDs of all VMs that are slowed, or were not long ago. No VM is moved to their nodes.
    """
    pairs = [pair for pair in pairs if _are_together(pair, vms)]
    victims = frozenset(pair.victim for pair in pairs)
    noisy = {vms[uuid].node for uuid in suffering if uuid in vms}
    open_nodes = {uuid: node for uuid, node in nodes.items() if node.takes and uuid not in noisy}
    moved, stay, of_moves = _moves(pairs, vms, open_nodes, limits)
    resized, of_others = _resizes([(pair, why) for pair, why in stay if pair.victim not in moved], vms, limits)
    return Plan(
        moves=tuple(moved.values()),
        resizes=tuple(resized.values()),
        said=(*of_moves, *of_others),
        victims=victims,
        freed=frozenset(_freed(pairs, moved, resized)),
    )


def _moves(
    pairs: Iterable[Pair], vms: Mapping[str, Vm], nodes: Mapping[str, Node], limits: Limits
) -> tuple[dict[str, Move], list[tuple[Pair, str]], list[str]]:
    """Which VMs that slow others are moved.

    :param nodes: those that VMs may be moved to, by UUID.
    :returns: the moves by UUID, the other pairs with why their culprits stay, and what is said of the moves.
    """
    left_of = dict(nodes)
    moved: dict[str, Move] = {}
    stay: list[tuple[Pair, str]] = []
    said: list[str] = []
    for culprit, of_culprit in _by_culprit(pairs):
        # A victim that was moved for its own noise is slowed no longer.
        left = [pair for pair in of_culprit if pair.victim not in moved]
        if not left:
            continue
        answer = _move(vms[culprit], left_of, room=limits.migrations - len(moved))
        if isinstance(answer, Move):
            moved[culprit] = answer
            goal = left_of[answer.destination]
            left_of[goal.uuid] = replace(goal, free=goal.free.without(vms[culprit].size))
            said += [f"{_text(pair, vms)}: {vms[culprit].name} is moved to {goal.hostname}" for pair in left]
        else:
            stay += [(pair, answer) for pair in left]
    return moved, stay, said


def _resizes(
    stay: Iterable[tuple[Pair, str]], vms: Mapping[str, Vm], limits: Limits
) -> tuple[dict[str, Resize], list[str]]:
    """Which VMs get ways by another flavor, because the VMs that slow them stay.

    Only a VM that loses cache is resized: one that waits longer for memory would go on doing so with ways of its own.

    :param stay: the pairs, each with the reason why its culprit stays.
    :returns: the resizes by UUID, and what is said of each pair.
    """
    resized: dict[str, Resize] = {}
    said: list[str] = []
    for pair, why in stay:
        victim = vms[pair.victim]
        if victim.promised and vms[pair.culprit].promised:
            why = "both have ways of their own"
        resize = _resize(victim, limits, count=len(resized))
        if resize and not pair.takes_cache:
            why = f"{why}; ways for {victim.name} would not end that"
        elif resize:
            resized.setdefault(victim.uuid, resize)
        if pair.takes_cache and victim.uuid in resized:
            why = f"{why}; {victim.name} gets the flavor {resized[victim.uuid].flavor}"
        said.append(f"{_text(pair, vms)}: {why}")
    return resized, said


def _are_together(pair: Pair, vms: Mapping[str, Vm]) -> bool:
    """Whether both are still there, on one node: a VM that was moved meanwhile slows nobody where it was."""
    victim, culprit = vms.get(pair.victim), vms.get(pair.culprit)
    return victim is not None and culprit is not None and victim.node == culprit.node


def _by_culprit(pairs: Iterable[Pair]) -> list[tuple[str, list[Pair]]]:
    """The pairs of each VM that slows others; first the VM that slows the most, of these the one that slows more."""
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair.culprit, []).append(pair)
    return sorted(found.items(), key=lambda item: (-len(item[1]), -max(pair.slower for pair in item[1]), item[0]))


def _move(vm: Vm, nodes: Mapping[str, Node], *, room: int) -> Move | str:
    """Where the VM goes, or why it stays, a clause."""
    if vm.promised is None:
        return f"no gateway knows {vm.name}, so whether it has a promise is unknown"
    if vm.promised:
        return f"{vm.name} has ways of its own, and keeps its place"
    if vm.pinned:
        return f"{vm.name} {vm.pinned}"
    if room <= 0:
        return "the audit may move no more VMs"
    fitting = [node for node in nodes.values() if node.uuid != vm.node and node.free.holds(vm.size)]
    if not fitting:
        return f"no enabled node where no VM is slowed has room for {vm.name}"
    return Move(vm.uuid, vm.node, min(fitting, key=lambda node: (node.load, node.hostname)).uuid)


def _resize(vm: Vm, limits: Limits, *, count: int) -> Resize | None:
    """The flavor that gives a VM ways, if there is one and another VM may still get one."""
    flavor = (limits.flavors or {}).get(vm.flavor)
    if flavor is None or vm.promised is not False or vm.pinned or count >= limits.resizes:
        return None
    return Resize(vm.uuid, flavor)


def _freed(pairs: Iterable[Pair], moved: Collection[str], resized: Collection[str]) -> set[str]:
    """The victims that are no longer with any VM that slows them, or have ways where that VM takes their cache."""
    victims, held = set(), set()
    for pair in pairs:
        victims.add(pair.victim)
        is_resized = pair.takes_cache and pair.victim in resized
        if pair.culprit not in moved and pair.victim not in moved and not is_resized:
            held.add(pair.victim)
    return victims - held


def _text(pair: Pair, vms: Mapping[str, Vm]) -> str:
    victim, culprit = vms[pair.victim].name, vms[pair.culprit].name
    cause = "the cache" if pair.takes_cache else "memory bandwidth"
    return f"{culprit} makes the work of {victim} take {pair.slower:.2f} times as long, by {cause}"
