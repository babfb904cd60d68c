# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is asked about neighbours, and what its answers mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SLOWDOWN = "vmqos_vm_neighbour_slowdown_ratio"
INFO = "vmqos_vm_info"

Sample = tuple[Mapping[str, str], float]
"""The labels and the value of a series."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A VM that is slowed by another one.

    :ivar victim: UUID of the VM that is slowed.
    :ivar culprit: UUID of the VM that slows it.
    :ivar cause: ``cache`` or ``memory-bandwidth``.
    :ivar slower: how many times as long the victim's work takes, above 1.
    """

    victim: str
    culprit: str
    cause: str
    slower: float

    @property
    def takes_cache(self) -> bool:
        """Whether the victim loses cache to the culprit. Otherwise it waits longer for memory."""
        return self.cause == "cache"


@dataclass(frozen=True, slots=True)
class Info:
    """What a gateway says of a VM.

    :ivar flavor: the name of its flavor, empty where it is not known.
    :ivar promised: whether its flavor asks for ways of its own. A cap is no promise to the VM that has it.
    """

    flavor: str
    promised: bool


def lasting(*, least: float, period: int, granularity: int) -> str:
    """The expression of PromQL for pairs that lasted, and go on.

    A gateway has a series for a pair only while its agent finds it and the culprit moves as much. So a pair lasted
    through the period if no sample in it is below the least slowdown, and if there is a sample for each scrape. It goes
    on if it is in the newest scrape, which is the one that the newest information on the victim is of.

    :param least: how many times as long the victim's work must take.
    :param period: for how long by now, in seconds.
    :param granularity: seconds between two scrapes.
    """
    scrapes = max(1, period // granularity)
    lasted = f"min_over_time({SLOWDOWN}[{period}s]) >= {least} and count_over_time({SLOWDOWN}[{period}s]) >= {scrapes}"
    # All samples of a scrape have one time. Prometheus may go on answering with the last sample of a series that ended.
    newest = f"timestamp({SLOWDOWN}) >= on (uuid) group_left () max by (uuid) (timestamp({INFO}))"
    return f"max by (uuid, culprit, cause) ({lasted} and {newest})"


def suffering(*, least: float, lookback: int) -> str:
    """The expression for all VMs that were slowed, for however short a time, whether they still are or not.

    :param least: how many times as long their work must have taken.
    :param lookback: for how many seconds back.
    """
    return f"max by (uuid) (max_over_time({SLOWDOWN}[{lookback}s])) >= {least}"


def infos_expression() -> str:
    """The expression for what is known of each VM."""
    return f"max by (uuid, flavor, policy) ({INFO})"


def pairs(samples: Iterable[Sample]) -> list[Pair]:
    """The pairs in an answer to :func:`lasting`, the worst first; of two causes the one that costs more."""
    worst: dict[tuple[str, str], Pair] = {}
    for labels, value in samples:
        pair = Pair(labels["uuid"], labels["culprit"], labels["cause"], value)
        key = (pair.victim, pair.culprit)
        if key not in worst or pair.slower > worst[key].slower:
            worst[key] = pair
    return sorted(worst.values(), key=lambda pair: (-pair.slower, pair.victim, pair.culprit))


def infos(samples: Iterable[Sample]) -> dict[str, Info]:
    """What is known of each VM, by UUID, in an answer to :func:`infos_expression`.

    A VM that is being migrated is known to two gateways: it has a promise if one of them knows of it.
    """
    found: dict[str, Info] = {}
    for labels, _ in samples:
        uuid, flavor = labels["uuid"], labels.get("flavor", "")
        before = found.get(uuid, Info("", False))
        promised = before.promised or labels.get("policy") == "exclusive"
        found[uuid] = Info(flavor or before.flavor, promised)
    return found
