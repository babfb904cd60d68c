# SPDX-License-Identifier: Apache-2.0
"""Verdicts that are made here, as the agent's API would tell them."""

from __future__ import annotations

from vmqos.insight import Insight, PairVerdict, VmVerdict
from vmqos.local_api import contract


def of(found: Insight, *, time: float, interval: float, samples: int, counted: bool) -> contract.Neighbours:
    """The answer to ``GET /v1/neighbours``.

    :param time: of the newest sample, in seconds since 1970.
    :param interval: seconds from one sample to the next.
    :param samples: how many there are of the VM that has most.
    :param counted: whether there are hardware events.
    """
    return {
        "time": time,
        "interval": interval,
        "samples": samples,
        "counted": counted,
        "vms": [_vm(verdict) for verdict in found.vms.values()],
        "pairs": [_pair(verdict) for verdict in found.pairs],
    }


def _vm(verdict: VmVerdict) -> contract.NeighbourVm:
    return {
        "uuid": verdict.vm,
        "use": verdict.use.value,
        "confidence": verdict.confidence,
        "evidence": list(verdict.evidence),
        "advice": verdict.advice,
        "sufferings": [
            {
                "slower": suffering.slower,
                "beside": suffering.beside,
                "cause": suffering.cause.value,
                "confidence": suffering.confidence,
                "evidence": list(suffering.evidence),
            }
            for suffering in verdict.sufferings
        ],
    }


def _pair(verdict: PairVerdict) -> contract.NeighbourPair:
    return {
        "culprit": verdict.culprit,
        "victim": verdict.victim,
        "cause": verdict.cause.value,
        "since": verdict.since,
        "slower": verdict.slower,
        "taken": verdict.taken,
        "confidence": verdict.confidence,
        "evidence": list(verdict.evidence),
        "advice": verdict.advice,
    }
