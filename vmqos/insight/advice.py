# SPDX-License-Identifier: Apache-2.0
"""What an operator can do, as a command.

A neighbour that fills the cache is capped, not its victim walled in: a cap costs one class for all who have it, and
those who stream lose nothing by it, while ways of its own for each victim are soon all given. Of the memory's
bandwidth, only a limit on the one who takes it helps.

What a flavor has already is not advised. VMs have what their flavor asked for when they were made: one that was changed
since is another flavor for them, until they are resized.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from vmqos.insight.model import Cause, Promise, Vm

CAP_WAYS = 2
"""Ways for all who are capped together: the fewest that every cache can give."""
LIMIT = 30
"""Percent of the memory bandwidth: enough to go on with, and far from what fills a channel."""
LOWEST_PERCENT = 10
"""A lower limit of memory bandwidth is not advised: most processors have none."""
LOWEST_MBPS = 250
NO_FLAVOR = "FLAVOR"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do. A running VM gets it when it is resized to the flavor.

    :ivar command: empty where none helps.
    :ivar because: why it is not the usual one; empty where it is.
    """

    command: str = ""
    because: tuple[str, ...] = ()


def against(cause: Cause, neighbour: Vm) -> Advice:
    """What to do about a neighbour that slows another VM."""
    promise = neighbour.promise
    if cause is Cause.BANDWIDTH:
        return _limit(neighbour)
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


def _limit(neighbour: Vm) -> Advice:
    promise = neighbour.promise
    if promise.mbps:
        has, lower, option = f"{promise.mbps} MB/s", max(LOWEST_MBPS, promise.mbps // 2), "--bandwidth-mbps"
        is_lower = lower < promise.mbps
    elif 0 < promise.percent <= LIMIT:
        has, lower, option = f"{promise.percent} %", max(LOWEST_PERCENT, promise.percent // 2), "--bandwidth-percent"
        is_lower = lower < promise.percent
    else:
        return Advice(f"{_flavor_set(neighbour)} --bandwidth-percent {LIMIT}")
    command = f"{_flavor_set(neighbour)} {option} {lower}" if is_lower else ""
    return Advice(command, (f"the neighbour's flavor has a limit already ({has})",))


def _capping(vm: Vm) -> str:
    # A flavor has either these or those, and 'vmqos flavor set' refuses to add the others.
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
    return f"vmqos flavor set {shlex.quote(vm.flavor or NO_FLAVOR)}"
