# SPDX-License-Identifier: Apache-2.0
"""Readings over time: which VMs suffer, who causes it and by what, and which have no gain from the cache they fill.

Values in, verdicts out: no file, no clock, no libvirt, no log. Each module begins with its law: what is measured, what
follows of it, and what can't be known.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from vmqos.insight.model import (
    Cache,
    Cause,
    Counts,
    History,
    Host,
    Insight,
    LimitedIn,
    PairVerdict,
    PercentSteps,
    Promise,
    Sample,
    Suffering,
    Use,
    Vm,
    VmVerdict,
)
from vmqos.insight.neighbours import pairs, pairs_among
from vmqos.insight.sample_json import plain_host, plain_sample
from vmqos.insight.series import Series, align, of_columns
from vmqos.insight.suffering import fastest, present, sufferings
from vmqos.insight.use import use
from vmqos.insight.verdict_json import plain

__all__ = [
    "Cache",
    "Cause",
    "Counts",
    "History",
    "Host",
    "Insight",
    "LimitedIn",
    "PairVerdict",
    "PercentSteps",
    "Promise",
    "Sample",
    "Series",
    "Suffering",
    "Use",
    "Vm",
    "VmVerdict",
    "align",
    "judge",
    "judge_series",
    "of_columns",
    "pairs",
    "plain",
    "plain_host",
    "plain_sample",
]


def judge(host: Host, history: History) -> Insight:
    """All verdicts on a host's VMs.

    :param history: one or two minutes of samples, at about one a second; of VMs that ``host`` knows.
    """
    return judge_series(host, *align(history))


def judge_series(
    host: Host, times: Sequence[float], series: Mapping[str, Series], between: Callable[[], object] = lambda: None
) -> Insight:
    """All verdicts on a history that is given as columns.

    :param times: seconds since 1970, ascending.
    :param series: of VMs that ``host`` knows: a value for each of the times (:func:`of_columns`).
    :param between: called between two VMs. To judge 200 VMs, half of which have just begun to move much more, takes a
        second.
    """
    presents = {vm: present(of) for vm, of in series.items()}
    vms = {vm: use(host, vm, of) for vm, of in series.items()}
    fewest = fastest(host, presents)
    for vm in series:
        if found := sufferings(host, vm, series, presents, fewest):
            vms[vm] = replace(vms[vm], sufferings=found)
    return Insight(vms, pairs_among(host, times, series, between))
