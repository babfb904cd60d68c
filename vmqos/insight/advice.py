# SPDX-License-Identifier: Apache-2.0
"""What an operator can do, as a command.

A neighbour that fills the cache is capped, not its victim walled in: a cap costs one class for all who have it, and
those who stream lose nothing by it, while ways of its own for each victim are soon all given. Of the memory's
bandwidth, only a limit on the one who takes it helps.

A limit in per cent is one for each core (Documentation/filesystems/resctrl.rst, "Memory bandwidth Allocation and
monitoring"). What a VM may move with it grows with its vCPUs, and with many it still fills the memory. So the
percentage is such that all vCPUs together leave room for what the others moved. Where not even the lowest one does,
none is advised, and to move a VM is the way out.

What a flavor has already is not advised. VMs have what their flavor asked for when they were made, and Nova resizes no
VM to the flavor that it has. So a command is about a copy of the VM's flavor, which the operator has to make. To change
the flavor itself would do nothing for the VM, and would cap all VMs that are made with it from then on.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from vmqos.insight.model import Cause, Host, LimitedIn, PercentSteps, Promise, Vm

CAP_WAYS = 2
"""Ways for all who are capped together: the fewest that every cache can give."""
LIMIT = 30
"""Percent of the memory bandwidth: enough to go on with, and far from what fills a channel. A host that limits in MB/s
does not say what its memory gives; there it is percent of what the neighbour moves."""
CORE = 10e9
"""Bytes a second that a core without a limit moves at most, as the kernel's documentation reckons in the same place."""
LOWEST_MBPS = 250
STEP_MBPS = 125
"""A limit in MB/s is a multiple of it: AMD's processors limit in such steps."""
NO_FLAVOR = "FLAVOR"
NEW = "-NEW"
"""Behind a flavor's name: a copy of it, which is to be made."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do. A running VM gets it when it is resized to the copy of its flavor.

    :ivar command: empty where none helps.
    :ivar because: why it is not the usual one; empty where it is.
    """

    command: str = ""
    because: tuple[str, ...] = ()


def against(cause: Cause, host: Host, neighbour: Vm, moves: float, room: float) -> Advice:
    """What to do about a neighbour that slows another VM.

    :param moves: its traffic with memory, in bytes a second.
    :param room: how much it can move so that no VM waits for memory, in bytes a second.
    """
    promise = neighbour.promise
    if cause is Cause.BANDWIDTH:
        return _limit(host, neighbour, moves, room)
    if _is_capped(promise):
        why = (
            f"the neighbour's flavor has a cap already ({_cap(promise)}); ways of its own protect the victim: 'vmqos "
            "size' tries how many it needs"
        )
        return Advice(because=(why,))
    return Advice(_capping(neighbour))


def against_filling(vm: Vm) -> Advice:
    """What to do about a VM that fills the cache without gain."""
    if _is_capped(vm.promise):
        return Advice(because=(f"its flavor has a cap already ({_cap(vm.promise)})",))
    return Advice(_capping(vm))


def for_more(vm: Vm, ways: int, there: int) -> Advice:
    """What to do for a VM that starves; no command where it needs all the ways there are, which no VM can have alone.

    :param ways: how many it needs at least.
    """
    if vm.promise.code_ways:
        why = "its flavor has ways for code and for data apart: 'vmqos size' tries how many of each it needs"
        return Advice(because=(why,))
    ways = max(ways, vm.promise.ways + 1)
    return Advice(f"{_flavor_set(vm)} --cache-ways {ways}" if ways < there else "")


def _limit(host: Host, neighbour: Vm, moves: float, room: float) -> Advice:
    because: tuple[str, ...] = ()
    match host.limited_in:
        case LimitedIn.PERCENT:
            steps = host.percent_steps or PercentSteps()
            limit, because = _percent(neighbour.vcpus, room, steps)
            if not limit:
                return Advice(because=because)
            option, lowest, step, unit = "--bandwidth-percent", steps.least, steps.gran, "%"
            has, other_unit = neighbour.promise.percent, neighbour.promise.mbps and "MB/s"
        case LimitedIn.MBPS:
            option, lowest, step, unit = "--bandwidth-mbps", LOWEST_MBPS, STEP_MBPS, "MB/s"
            limit = _mbps(moves)
            has, other_unit = neighbour.promise.mbps, neighbour.promise.percent and "per cent"
        case LimitedIn.NOTHING:
            why = "this host can't limit memory bandwidth: to move one of the two VMs to another host ends it"
            return Advice(because=(why,))
        case LimitedIn.UNKNOWN:
            why = (
                "a limit of the neighbour's memory bandwidth ends it; whether this host limits in per cent or in MB/s "
                "is not known"
            )
            return Advice(because=(why,))
    if other_unit:
        why = (
            f"the neighbour's flavor has a limit in {other_unit}, which this host can't keep: after 'vmqos flavor "
            f"unset', {option} {limit} ends it"
        )
        return Advice(because=(why,))
    if not 0 < has <= limit:
        return Advice(f"{_flavor_set(neighbour)} {option} {limit}", because)
    lower = max(lowest, _rounded_up(has // 2, step))
    command = f"{_flavor_set(neighbour)} {option} {lower}" if lower < has else ""
    return Advice(command, (f"the neighbour's flavor has a limit already ({has} {unit})",))


def _percent(vcpus: int, room: float, steps: PercentSteps) -> tuple[int, tuple[str, ...]]:
    """The limit for a VM of so many vCPUs, and why it is less than usual; 0 where the lowest one does not help either.

    :param vcpus: 0 where their number is not known: then it is the usual one.
    """
    usual = max(steps.least, LIMIT // steps.gran * steps.gran)
    if not vcpus or vcpus * CORE * usual / 100 <= room:
        return usual, ()
    limit = steps.gran * int(100 * room / (vcpus * CORE) / steps.gran)
    reckoned = f"a core without a limit moves up to {CORE / 1e9:.0f} GB/s, as the kernel's documentation reckons"
    of_each = f"a limit in per cent is one of each vCPU, and {reckoned}"

    def all_move(percent: int) -> str:
        return f"with {percent} % the neighbour's {vcpus} could still move {vcpus * CORE * percent / 100e9:.0f} GB/s"

    fits = f"where there is room for {room / 1e9:.0f} GB/s"
    if limit >= steps.least:
        return limit, (f"{of_each}: {all_move(usual)}, {fits}",)
    moving = "to move one of the two VMs to another host ends it, and so does a limit in MB/s on a host that has these"
    return 0, (f"{of_each}: {all_move(steps.least)}, {fits}; {moving}",)


def _rounded_up(limit: int, step: int) -> int:
    """What the kernel keeps of a limit (``bw_validate`` in its resctrl)."""
    return -(-limit // step) * step


def _mbps(moves: float) -> int:
    """The limit for a VM that moves so many bytes a second, in MB/s."""
    return max(LOWEST_MBPS, STEP_MBPS * round(LIMIT / 100 * moves / 1e6 / STEP_MBPS))


def _capping(vm: Vm) -> str:
    # A copy has either these or those, as the flavor has, and 'vmqos flavor set' refuses to add the others.
    each = CAP_WAYS // 2
    ways = f"--code-ways {each} --data-ways {each}" if vm.promise.code_ways else f"--cache-ways {CAP_WAYS}"
    return f"{_flavor_set(vm)} {ways} --policy shared"


def _is_capped(promise: Promise) -> bool:
    return promise.is_shared and 0 < _ways(promise) <= CAP_WAYS


def _cap(promise: Promise) -> str:
    ways = _ways(promise)
    return f"{ways} {'way' if ways == 1 else 'ways'} with hw:cache_policy=shared"


def _ways(promise: Promise) -> int:
    return promise.ways + promise.code_ways + promise.data_ways


def _flavor_set(vm: Vm) -> str:
    return f"vmqos flavor set {shlex.quote((vm.flavor or NO_FLAVOR) + NEW)}"
