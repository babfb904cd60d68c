# SPDX-License-Identifier: Apache-2.0
"""The strategy ``noisy_neighbor`` that Watcher had for this (deprecated in 2025.2), mended, to be held beside insight.

*Its law.*  What each VM holds of the L3, the mean of a period, is laid beside that of the period before. A VM that
holds less by a threshold suffers, and one that holds more by as much is noisy and is to be migrated. One pair is all.

*Mended*, so that it says what it can: as it was, it got no value at all. Who is noisy and who suffers also hangs on a
priority that the operator gives each VM; a mix has none, so of the VMs on either side the one counts that gained or
lost most. And a period has ten seconds, not a hundred: with a hundred nobody would be named in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from vmqos.insight import Cause, History, Host, PairVerdict, Sample

PERIOD = 10
"""Samples, one a second."""
THRESHOLD = 0.35
"""Its default."""


def pairs(host: Host, history: History) -> list[PairVerdict]:
    """The VM that suffers most, if any, and the noisiest one, if any."""
    change = {
        vm: (_held(samples[-PERIOD:]), _held(samples[-2 * PERIOD : -PERIOD]))
        for vm, samples in history.items()
        if len(samples) >= 2 * PERIOD
    }
    suffering = [vm for vm, (now, before) in change.items() if now < (1 - THRESHOLD) * before]
    noisy = [vm for vm, (now, before) in change.items() if now > (1 + THRESHOLD) * before]
    if not suffering or not noisy:
        return []
    victim = max(suffering, key=lambda vm: change[vm][1] - change[vm][0])
    culprit = max(noisy, key=lambda vm: change[vm][0] - change[vm][1])
    now, before = change[victim]
    told = f"it holds {now:.0f} bytes, and held {before:.0f} in the period before"
    since = history[victim][-PERIOD].time
    return [PairVerdict(culprit, victim, Cause.CACHE, since, None, 1.0, before - now, 1.0, (told,), "")]


def _held(samples: Sequence[Sample]) -> float:
    return fmean(sum(sample.occupancy.values()) for sample in samples)
