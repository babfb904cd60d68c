# SPDX-License-Identifier: Apache-2.0
"""Advice that a flavor follows already is no advice: what the verdicts of insight advise, beside what was promised.

Insight knows what VMs do, and not what their flavors say. So it may advise a cap for a VM that has one, a limit for one
that is limited, or as many ways as a VM has. The agent knows the promises, as the VMs have them: a flavor that was
changed since is another one for them until they are resized.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vmqos.agent.vm_record import VmRecord
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.insight import Cause, Host, Insight, PairVerdict, Use, VmVerdict
from vmqos.insight.advice import CAP_WAYS, LIMIT, against, for_more

LOWEST_PERCENT = 10
"""A lower limit of memory bandwidth is not advised: most processors have none."""
LOWEST_MBPS = 250


def beside_promises(found: Insight, host: Host, vms: Mapping[str, VmRecord]) -> Insight:
    """The verdicts, with other advice, or none, where the flavor has what is advised already; pure.

    :param vms: the VMs that run, by UUID; of another one nothing is known.
    """
    promises = {uuid: record.request.asked or CacheRequest() for uuid, record in vms.items()}
    return Insight(
        {uuid: _of_vm(verdict, host, promises.get(uuid, CacheRequest())) for uuid, verdict in found.vms.items()},
        [_of_pair(pair, host, promises.get(pair.culprit, CacheRequest())) for pair in found.pairs],
    )


def _of_pair(pair: PairVerdict, host: Host, promised: CacheRequest) -> PairVerdict:
    flavor = host.vms[pair.culprit].flavor
    if pair.advice != against(pair.cause, flavor):
        return pair
    if pair.cause is Cause.CACHE and _is_capped(promised):
        sentence = (
            f"the neighbour's flavor has a cap already ({_cap(promised)}); ways of its own protect the victim: 'vmqos "
            "size' tries how many it needs"
        )
        return replace(pair, advice="", evidence=(*pair.evidence, sentence))
    if pair.cause is Cause.BANDWIDTH and (limit := _lower_limit(promised)) is not None:
        option, has, advised = limit
        sentence = f"the neighbour's flavor has a limit already ({has})"
        command = f"{against(pair.cause, flavor).rpartition(' --')[0]} {option} {advised}" if advised else ""
        return replace(pair, advice=command, evidence=(*pair.evidence, sentence))
    return pair


def _of_vm(verdict: VmVerdict, host: Host, promised: CacheRequest) -> VmVerdict:
    vm = host.vms[verdict.vm]
    if verdict.use is Use.FILLS_WITHOUT_GAIN and _is_capped(promised) and verdict.advice:
        sentence = f"its flavor has a cap already ({_cap(promised)})"
        return replace(verdict, advice="", evidence=(*verdict.evidence, sentence))
    if verdict.use is Use.STARVES and promised.ways is not None:
        most = max(cache.ways for cache in host.caches.values())
        no_more = {for_more(vm.flavor, ways, most + 1) for ways in range(1, promised.ways + 1)}
        if verdict.advice in no_more:
            there = min(host.caches[cache].ways for cache in vm.masks)
            return replace(verdict, advice=for_more(vm.flavor, promised.ways + 1, there))
    return verdict


def _is_capped(promised: CacheRequest) -> bool:
    return promised.policy is CachePolicy.SHARED and 0 < promised.l3_ways <= CAP_WAYS


def _cap(promised: CacheRequest) -> str:
    ways = promised.l3_ways
    return f"{ways} {'way' if ways == 1 else 'ways'} with hw:cache_policy=shared"


def _lower_limit(promised: CacheRequest) -> tuple[str, str, int] | None:
    """Which option sets a lower limit than the VM has, what it has, and the lower one; 0 where there is none.

    ``None`` where what insight advises is lower.
    """
    if (percent := promised.bandwidth_percent) is not None:
        if percent > LIMIT:
            return None
        lower = max(LOWEST_PERCENT, percent // 2)
        return "--bandwidth-percent", f"{percent} %", lower if lower < percent else 0
    if (mbps := promised.bandwidth_mbps) is not None:
        lower = max(LOWEST_MBPS, mbps // 2)
        return "--bandwidth-mbps", f"{mbps} MB/s", lower if lower < mbps else 0
    return None
