# SPDX-License-Identifier: Apache-2.0
"""Why a VM does not get what it asks for, in an operator's words: with the numbers, and what would help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vmqos.allocation.fitting import fits, largest_newcomer
from vmqos.allocation.line import Line, Need
from vmqos.allocation.model import Owner, WhenFull
from vmqos.allocation.room import Room
from vmqos.allocation.world import World

NO_L3 = (
    "this host's L3 cache can't be partitioned by resctrl: hw:cache_ways needs L3 CAT in the CPU and in the kernel "
    "(info/L3 in resctrl); `vmqos doctor` tells what is missing"
)
CDP = (
    "resctrl is mounted with cdp, which hw:cache_ways does not support yet: mount it without cdp, or ask for "
    "hw:cache_code_ways and hw:cache_data_ways"
)
NO_CACHE = "none of the L3 caches that the VM can run on is online in resctrl"
WAITS_FOR_CLOSID = "waits for a class of service (CLOSID) that is just being freed"
NO_SAFE_ORDER = (
    "the ways are free, but the other VMs' masks can't be moved to make room without an overlap on the way; it is "
    "tried again when something changes"
)


def shortage(world: World, rooms: Mapping[int, Room], short: Sequence[int], uuid: str, asked: int) -> str:
    """Why no mask of that length can be promised on these caches; tells of the first one in full.

    Where masks can't be moved, that is the reason only if there were room after a move.
    """
    short = [
        cache for cache in short if not (rooms[cache].frozen and _would_fit(world, cache, rooms[cache], uuid, asked))
    ]
    if not short:
        return NO_SAFE_ORDER
    cache = short[0]
    line, room = world.lines[cache], rooms[cache]
    most = room.most(uuid)
    begin = f"{_cache(cache)} has {most or 'no'} {_ways(most)} to give in one piece" if not line.sparse else (
        f"{_cache(cache)} has {most or 'no'} {_ways(most)} to give"
    )  # fmt: skip
    ever = largest_newcomer(line, (), Need(world.floor, world.floor))
    parts = [f"{begin} and {asked} {_are(asked)} asked for: {_account(world, cache, room, uuid)}"]
    if asked > ever:
        parts.append(f"with no other VM there it would be {ever}")
    if len(short) > 1:
        parts.append(f"the same on {', '.join(_cache(other) for other in short[1:])}")
    return "; ".join(parts)


def grown(has: Mapping[int, int], asked: int, why: str) -> str:
    """What a VM that could not grow has, by cache."""
    least = min(has, key=lambda cache: (has[cache], cache))
    return f"has {has[least]} of {asked} ways on {_cache(least)}: {why}"


def capped(got: Mapping[int, int], asked: int) -> str:
    """The pool is smaller than a class's cap."""
    least = min(got, key=lambda cache: (got[cache], cache))
    return (
        f"has {got[least]} of {asked} ways on {_cache(least)}: that is all there is in the pool of the default group, "
        "the others are exclusive, reserved or taken by others"
    )


def overlapped(cache: int, mask: int, others: Iterable[str]) -> str:
    """Somebody else has ways of an exclusive mask, and there is no room to move."""
    names = sorted(others)
    whose = "the default group" if names == [""] else f"the control group{'s' * (len(names) > 1)} {', '.join(names)}"
    return (
        f"{whose} {'have' if len(names) > 1 else 'has'} ways of this VM's mask {mask:x} on {_cache(cache)}, too, and "
        "there is no room to move it to: make room there, or remove the other group"
    )


def on_io_ways(line: Line, cache: int, mask: int) -> str:
    """An exclusive mask lies on I/O ways though the operator does not want that."""
    return (
        f"I/O fills ways {mask & line.shareable:x} of this VM's mask {mask:x} on {_cache(cache)}, too, and there is no "
        "room to move it to"
    )


def on_reserved_ways(cache: int, mask: int) -> str:
    """An exclusive mask lies on ways that the operator reserved since."""
    return f"its mask {mask:x} on {_cache(cache)} has reserved ways ([allocation] reserved_ways): no room to move it"


def raised(asked: int, fewest: int) -> str:
    """A request was rounded up."""
    return f"gets {fewest} ways for the {asked} asked for: a mask has at least {fewest} ways on this machine"


def more_than_all(asked: int, most: int) -> str:
    """A cap is larger than the cache."""
    return f"{asked} ways are asked for and an L3 cache of this host has {most}"


def no_closid(world: World, nearest: str | None) -> str:
    """No CLOSID is left; what is done about it."""
    foreign = [name for name in world.named(Owner.FOREIGN) if world.groups[name].holds_closid]
    ours = len(world.named(Owner.VM, Owner.CLASS))
    total = world.capabilities.num_closids
    why = (
        f"no class of service (CLOSID) is left: of {total} one is the default group's, {ours} vmqos uses"
        + (f", and {len(foreign)} others do ({', '.join(foreign)})" if foreign else "")
    )  # fmt: skip
    if world.policy.when_full is WhenFull.PEND:
        return f"{why}; with [allocation] when_full = share it would share the class next to what it asks for"
    if nearest is None:
        return f"{why}, and there is no class to share: it runs in the default group"
    return f"{why}: it shares {nearest} instead"


def _would_fit(world: World, cache: int, room: Room, uuid: str, asked: int) -> bool:
    """Whether there were room if every mask could be moved anywhere."""
    lengths = [mask.bit_count() for key, mask in room.stuck.items() if key != uuid]
    return fits(world.lines[cache], (*lengths, *room.lengths(uuid), asked), Need(world.floor, world.floor))


def _account(world: World, cache: int, room: Room, uuid: str) -> str:
    """Where the ways of a cache are."""
    line, policy = world.lines[cache], world.policy
    parts = []
    if others := room.taken(uuid):
        parts.append(f"{others} {_are(others)} other VMs'")
    kept = room.need.width
    if room.need.clean < room.floor:
        parts.append(
            f"the default group can have {room.need.clean} and nothing is given out before it has {room.floor} "
            f"([allocation] default_ways_min = {policy.default_ways_min})"
        )
    elif kept > world.floor:
        parts.append(f"{kept} stay with the default group and the classes that share it")
    else:
        parts.append(
            f"{kept} {'stays' if kept == 1 else 'stay'} with the default group "
            f"([allocation] default_ways_min = {policy.default_ways_min})"
        )
    if io := (line.pool & ~line.exclusive & ~line.company).bit_count():
        parts.append(f"{io} {_are(io)} I/O's ([allocation] use_shareable_ways = true would give them out)")
    if reserved := (policy.reserved_ways.bits & line.every).bit_count():
        parts.append(f"{reserved} {_are(reserved)} reserved ([allocation] reserved_ways)")
    if foreign := world.foreign(cache) & line.every:
        names = ", ".join(world.foreigners(cache, foreign))
        parts.append(f"{foreign.bit_count()} {_are(foreign.bit_count())} taken by {names}")
    return f"of its {line.every.bit_count()} ways {', '.join(parts)}"


def _cache(cache: int) -> str:
    return f"L3 cache {cache}"


def _ways(count: int) -> str:
    return "way" if count == 1 else "ways"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
