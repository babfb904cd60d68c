# SPDX-License-Identifier: Apache-2.0
"""Why a VM does not get what it asks for, in an operator's words: with the numbers, and what would help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vmqos.allocation import caches
from vmqos.allocation.cache_ways import CacheWays, Need
from vmqos.allocation.model import WhenFull
from vmqos.allocation.planner_input import PlannerInput
from vmqos.allocation.rights.cache_budget import CacheBudget, fits, largest_newcomer
from vmqos.group_names import Owner
from vmqos.reason import Code, Reason
from vmqos.resctrl.capabilities import BandwidthResource, Capabilities

NO_L3 = Reason(
    Code.NO_L3,
    "this host's L3 cache can't be partitioned by resctrl: hw:cache_ways needs L3 CAT in the CPU and in the kernel "
    "(info/L3 in resctrl); `vmqos doctor` tells what is missing",
)
NO_CACHE = Reason(Code.NO_CACHE, "none of the L3 caches that the VM can run on is online in resctrl")
NO_L2_CACHE = Reason(Code.NO_CACHE, "none of the L2 caches of the cores that the VM is pinned to is online in resctrl")
NO_L2 = Reason(
    Code.NO_L2,
    "this host's L2 caches can't be partitioned by resctrl: hw:l2_cache_ways needs L2 CAT in the CPU and in the kernel "
    "(info/L2 in resctrl)",
)
NOT_PINNED = Reason(
    Code.NOT_PINNED,
    "hw:l2_cache_ways needs each vCPU to be pinned to one core, whose L2 it then fills: set hw:cpu_policy=dedicated",
)
NO_BANDWIDTH = Reason(
    Code.NO_BANDWIDTH,
    "this host's memory bandwidth can't be throttled by resctrl: hw:mem_bandwidth_percent and hw:mem_bandwidth_mbps "
    "need MBA in the CPU and in the kernel (info/MB in resctrl)",
)
NO_PERCENT_OF_GBPS = Reason(
    Code.BANDWIDTH_UNIT,
    "this host's memory bandwidth is throttled in steps of 1/8 GB/s, and hw:mem_bandwidth_percent would be per cent of "
    "an unknown total: ask for hw:mem_bandwidth_mbps",
)
NO_CDP = Reason(
    Code.CDP,
    "hw:cache_code_ways and hw:cache_data_ways need resctrl to be mounted with cdp, and a CPU that has it: "
    "'sudo vmqos doctor' tells how; or ask for hw:cache_ways",
)
NO_PERCENT = Reason(
    Code.BANDWIDTH_UNIT,
    "hw:mem_bandwidth_percent needs resctrl to be mounted without mba_MBps: 'sudo vmqos doctor' tells how; or "
    "ask for hw:mem_bandwidth_mbps",
)
WAITS_FOR_CLOSID = Reason(Code.WAITS_FOR_CLOSID, "waits for a class of service (CLOSID) that is just being freed")
NO_SAFE_ORDER = Reason(
    Code.NO_SAFE_ORDER,
    "the ways are free, but the other VMs' masks can't be moved to make room without an overlap on the way; it is "
    "tried again when something changes",
)


def no_mbps(capabilities: Capabilities) -> Reason:
    """Bandwidth in MB/s is asked for where resctrl is not mounted for it."""
    why = "hw:mem_bandwidth_mbps needs resctrl to be mounted with mba_MBps"
    events = capabilities.monitoring.events if capabilities.monitoring else ()
    if not any(event.startswith("mbm_") for event in events):
        return Reason(
            Code.BANDWIDTH_UNIT,
            f"{why}, which this host can't be without counters of bandwidth: ask for hw:mem_bandwidth_percent",
        )
    return Reason(Code.BANDWIDTH_UNIT, f"{why}: 'sudo vmqos doctor' tells how; or ask for hw:mem_bandwidth_percent")


def percent_raised(asked: int, value: int, resource: BandwidthResource) -> Reason:
    """A percentage was rounded up."""
    return Reason(
        Code.ROUNDED_UP,
        f"gets {value} % of the memory bandwidth for the {asked} % asked for: this machine throttles in steps of "
        f"{resource.bandwidth_gran} %, from {resource.min_bandwidth} % up",
    )


def mbps_changed(asked: int, value: int) -> Reason:
    """An amount of bandwidth is not one of the hardware's steps, or more than it knows."""
    return Reason(
        Code.ROUNDED_UP,
        f"gets {value} MB/s of memory bandwidth for the {asked} MB/s asked for: this machine throttles in steps of "
        "125 MB/s",
    )


def shortage(
    inputs: PlannerInput, budgets: Mapping[int, CacheBudget], asked_on: Mapping[int, int], uuid: str
) -> Reason:
    """Why a VM can't have its ways on these caches; tells of the first one in full.

    Where masks can't be moved, that is the reason only if there were room after a move.

    :param asked_on: how many ways are asked for, by cache.
    """
    short = [
        cache
        for cache, asked in asked_on.items()
        if not (budgets[cache].frozen and _would_fit(inputs, cache, budgets[cache], uuid, asked))
    ]
    if not short:
        return NO_SAFE_ORDER
    cache, asked = short[0], asked_on[short[0]]
    cache_ways, budget = inputs.cache_ways[cache], budgets[cache]
    most = budget.most(uuid)
    begin = f"{_cache(cache)} has {most or 'no'} {_ways(most)} to give in one piece" if not cache_ways.sparse else (
        f"{_cache(cache)} has {most or 'no'} {_ways(most)} to give"
    )  # fmt: skip
    ever = largest_newcomer(cache_ways, (), Need(cache_ways.floor, cache_ways.floor))
    parts = [f"{begin} and {asked} {_are(asked)} asked for: {_account(inputs, cache, budget, uuid)}"]
    if asked > ever:
        parts.append(f"with no other VM there it would be {ever}")
    if len(short) > 1:
        parts.append(f"the same on {', '.join(_cache(other) for other in short[1:])}")
    return Reason(Code.NO_WAYS, "; ".join(parts))


def grown(has: Mapping[int, int], asked: Mapping[int, int], why: Reason) -> Reason:
    """What a VM that could not grow has, by cache."""
    least = min(has, key=lambda cache: (has[cache] - asked[cache], cache))
    return why.told_as(f"has {has[least]} of {asked[least]} ways on {_cache(least)}: {why.text}")


def capped(got: Mapping[int, int], asked: Mapping[int, int]) -> Reason:
    """The pool is smaller than a class's cap."""
    least = min(got, key=lambda cache: (got[cache] - asked[cache], cache))
    return Reason(
        Code.POOL_TOO_SMALL,
        f"has {got[least]} of {asked[least]} ways on {_cache(least)}: that is all there is in the pool of the "
        "default group, the others are exclusive, reserved or taken by others",
    )


def overlapped(cache: int, mask: int, others: Iterable[str]) -> Reason:
    """Another group has ways of an exclusive mask, and there is no room to move."""
    names = sorted(others)
    whose = "the default group" if names == [""] else f"the control group{'s' * (len(names) > 1)} {', '.join(names)}"
    return Reason(
        Code.OVERLAPPED,
        f"{whose} {'have' if len(names) > 1 else 'has'} ways of this VM's mask {mask:x} on {_cache(cache)}, too, and "
        "there is no room to move it to: make room there, or remove the other group",
    )


def on_io_ways(cache_ways: CacheWays, cache: int, mask: int) -> Reason:
    """An exclusive mask lies on I/O ways though the operator does not want that."""
    return Reason(
        Code.IO_WAYS,
        f"I/O fills ways {mask & cache_ways.shareable:x} of this VM's mask {mask:x} on {_cache(cache)}, too, and there "
        "is no room to move it to",
    )


def on_reserved_ways(cache: int, mask: int) -> Reason:
    """An exclusive mask lies on ways that the operator reserved since."""
    return Reason(
        Code.RESERVED_WAYS,
        f"its mask {mask:x} on {_cache(cache)} has reserved ways ([allocation] reserved_ways): no room to move it",
    )


def raised(asked: int, ways: int, fewest: int, level: int = 3) -> Reason:
    """A request was rounded up."""
    kind = "ways" if level == 3 else f"L{level} ways"
    return Reason(
        Code.ROUNDED_UP,
        f"gets {ways} {kind} for the {asked} asked for: a mask has at least {fewest} ways on this machine",
    )


def parts_in_common(common: Mapping[int, int]) -> Reason:
    """Code and data share ways, because their mask has fewer ways than the two parts need together.

    :param common: how many ways both fill, by cache, 1 or more.
    """
    most = max(common, key=lambda cache: (common[cache], -cache))
    count = common[most]
    return Reason(
        Code.PARTS_OVERLAP,
        f"code and data both fill {count} {_ways(count)} on {_cache(most)}: its mask is too small to keep them apart",
    )


def more_than_all(asked: int, most: int, level: int = 3) -> Reason:
    """A cap is larger than the cache."""
    return Reason(Code.MORE_THAN_ALL, f"{asked} ways are asked for and an L{level} cache of this host has {most}")


def no_closid(inputs: PlannerInput, nearest: str | None, kept: int = 0) -> Reason:
    """No CLOSID is left; what is done about it.

    :param kept: how many are kept for shared classes that do not exist yet.
    """
    foreign = [name for name in inputs.names[Owner.FOREIGN] if inputs.groups[name].holds_closid]
    ours = len(inputs.ours)
    total = inputs.capabilities.num_closids
    why = (
        f"no class of service (CLOSID) is left: of {total} one is the default group's, {ours} vmqos uses"
        + (f", and {len(foreign)} others do ({', '.join(foreign)})" if foreign else "")
        + (f"; {kept} are kept for classes of [allocation] shared_classes" if kept else "")
        + ("; I/O devices have one more (io_alloc in info/)" if _confines_devices(inputs) else "")
    )  # fmt: skip
    return _with_what_is_done(inputs, why, nearest)


def too_many_classes(inputs: PlannerInput, most: int | None, nearest: str | None) -> Reason:
    """There are as many shared classes as the operator allows beside the listed ones; the reason says what is done."""
    why = (
        f"no class of service (CLOSID) is left for one more shared class: [allocation] other_classes allows "
        f"{most} beside those of shared_classes, so that none is taken that Placement has "
        "promised to another VM; list the class in shared_classes"
    )
    return _with_what_is_done(inputs, why, nearest)


def _with_what_is_done(inputs: PlannerInput, why: str, nearest: str | None) -> Reason:
    if inputs.policy.when_full is WhenFull.PEND:
        return Reason(
            Code.NO_CLOSID,
            f"{why}; with [allocation] when_full = share it would share the class next to what it asks for",
        )
    if nearest is None:
        return Reason(Code.NO_CLOSID, f"{why}, and there is no class to share: it runs in the default group")
    return Reason(Code.NO_CLOSID, f"{why}: it shares {nearest} instead")


def _confines_devices(inputs: PlannerInput) -> bool:
    """Whether devices are confined to some ways, which takes a CLOSID."""
    return any(cache.io_alloc for cache in inputs.capabilities.caches.values())


def _would_fit(inputs: PlannerInput, cache: int, budget: CacheBudget, uuid: str, asked: int) -> bool:
    """Whether there were room if every mask could be moved anywhere."""
    cache_ways, lengths = (
        inputs.cache_ways[cache],
        [mask.bit_count() for key, mask in budget.stuck.items() if key != uuid],
    )
    return fits(cache_ways, (*lengths, *budget.lengths(uuid), asked), Need(cache_ways.floor, cache_ways.floor))


def _account(inputs: PlannerInput, cache: int, budget: CacheBudget, uuid: str) -> str:
    """Where the ways of a cache are."""
    cache_ways, policy = inputs.cache_ways[cache], inputs.policy
    parts = []
    if others := budget.taken(uuid):
        parts.append(f"{others} {_are(others)} other VMs'")
    kept = budget.need.width
    if budget.need.clean < cache_ways.floor:
        parts.append(
            f"the default group can have {budget.need.clean} and nothing is given out before it has {cache_ways.floor} "
            f"([allocation] default_ways_min = {policy.default_ways_min})"
        )
    elif kept > cache_ways.floor:
        parts.append(f"{kept} stay with the default group and the classes that share it")
    else:
        parts.append(
            f"{kept} {'stays' if kept == 1 else 'stay'} with the default group "
            f"([allocation] default_ways_min = {policy.default_ways_min})"
        )
    if io := (cache_ways.pool & ~cache_ways.exclusive & ~cache_ways.company).bit_count():
        parts.append(f"{io} {_are(io)} I/O's ([allocation] use_shareable_ways = true would give them out)")
    if reserved := (cache_ways.reserved & cache_ways.every).bit_count():
        parts.append(f"{reserved} {_are(reserved)} reserved ([allocation] reserved_ways)")
    if foreign := cache_ways.foreign & cache_ways.every:
        names = [name for name in inputs.names[Owner.FOREIGN] if inputs.masks[name].get(cache, 0) & foreign]
        parts.append(f"{foreign.bit_count()} {_are(foreign.bit_count())} taken by {', '.join(names)}")
    return f"of its {cache_ways.every.bit_count()} ways {', '.join(parts)}"


def _cache(cache: int) -> str:
    return f"L{caches.level(cache)} cache {caches.id_of(cache)}"


def _ways(count: int) -> str:
    return "way" if count == 1 else "ways"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
