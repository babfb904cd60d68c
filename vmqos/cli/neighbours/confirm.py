# SPDX-License-Identifier: Apache-2.0
"""The experiment of ``vmqos neighbours VM --confirm``: the culprit is held back, and the victim is measured.

Its memory bandwidth is limited. Where the host can't do that, it is confined to a few ways, which shows whether it
takes cache, and nothing of memory's bandwidth.

Whatever ends this process, everything is as before some seconds later (:mod:`vmqos.cli.common.lease`).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from vmqos.cli import exceptions
from vmqos.cli.common.lease import ANSWER_TIME, PATIENCE, PAUSE, lease
from vmqos.cli.neighbours import ask
from vmqos.cli.show import units
from vmqos.cli.show.safe_text import display_name
from vmqos.insight import Cause
from vmqos.insight.trial import FEWEST, Outcome, Phase, judge
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient

SECONDS = 10.0
SHORTEST, LONGEST = 1.0, 40.0
"""Seconds of each phase: the agent ends a trial after 60 seconds."""

PERCENT = 20
"""The limit where bandwidth is limited in per cent, unless another one is given."""
PART, LEAST_MBPS = 0.2, 250
"""The limit where it is limited in MB/s: this part of what the culprit moves now, and no less than this."""
FEW_WAYS = 2
"""The ways that the culprit fills, and no others, where bandwidth can't be limited; what it shares by its flavor is the
least."""
WAYS = "ways"

Report = Callable[[str, float], None]
"""Is told the phase, and the seconds of it that have passed."""


@dataclass(frozen=True, slots=True)
class Parties:
    """Who is tried, and how.

    :ivar victim: the VM that is slowed, and ``culprit`` its neighbour.
    :ivar cause: by what the agent says that it is slowed; ``None`` where it says nothing of these two.
    :ivar since: since when (seconds since 1970); infinitely long ago where nothing is said.
    :ivar limit: the culprit's limit, as an extra spec.
    :ivar unit: the unit of it, for people: of bandwidth, or :data:`WAYS`.
    """

    victim: contract.Vm
    culprit: contract.Vm
    cause: Cause | None
    since: float
    limit: str
    unit: str

    @property
    def uuids(self) -> tuple[str, str]:
        """The victim's and the culprit's."""
        return self.victim["uuid"], self.culprit["uuid"]

    @property
    def is_confined(self) -> bool:
        """Whether the culprit fills few ways meanwhile; else its bandwidth is limited."""
        return self.unit == WAYS


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of it.

    :ivar limit: the limit that was in force, in the unit of the parties.
    :ivar seconds: how long each phase took.
    """

    parties: Parties
    outcome: Outcome
    limit: int
    seconds: float


def find(
    agent: AgentClient, victim: contract.Vm, culprit: contract.Vm | None, vms: Sequence[contract.Vm], limit: int | None
) -> Parties:
    """Who slows a VM, as the agent says, and how this one can be held back.

    :param culprit: the VM that the operator named; ``None``: the one that the agent is surest of.
    :param limit: in per cent or in MB/s, whatever the host's unit is, or in ways where it can't limit bandwidth;
        ``None`` for the usual one.
    :raises vmqos.cli.exceptions.NoCulprit: if none is named, and the agent knows of none.
    :raises vmqos.cli.exceptions.NotTogether: if the limit can't be one in the host's unit.
    :raises vmqos.cli.exceptions.NoLimitPossible: if the host can't limit bandwidth, and ways are of no use either.
    """
    there = {vm["uuid"]: vm for vm in vms}
    suspects = there.keys() if culprit is None else {culprit["uuid"]}
    pairs = ask.verdicts(agent)["pairs"]
    pairs = [pair for pair in pairs if pair["victim"] == victim["uuid"] and pair["culprit"] in suspects]
    # One who moves less again can't be held back.
    pair = max(pairs, key=lambda pair: (pair["until"] is None, pair["confidence"]), default=None)
    if culprit is None:
        if pair is None:
            raise exceptions.NoCulprit(vm=display_name(victim))
        culprit = there[pair["culprit"]]
    cause = Cause(pair["cause"]) if pair is not None and pair["cause"] in set(Cause) else None
    unit = culprit.get("bandwidth_unit")
    if unit is None:
        problem = "and ways do not keep a VM from memory" if cause is Cause.BANDWIDTH else ""
        if not any(cache["resource"] == "L3" for cache in agent.caches()):
            problem = "nor can the L3 be partitioned (info/L3)"
        if problem:
            raise exceptions.NoLimitPossible(vm=display_name(culprit), problem=problem)
        # All that is tried then is whether it takes cache.
        unit, cause, spec = WAYS, Cause.CACHE, _few_ways(culprit, limit)
    elif unit == "%":
        if limit is not None and limit > 100:
            problem = f"--limit {limit} is more than 100, and this host limits memory bandwidth in per cent"
            raise exceptions.NotTogether(problem=problem, command="neighbours")
        spec = f"hw:mem_bandwidth_percent={limit or PERCENT}"
    else:
        spec = f"hw:mem_bandwidth_mbps={limit or _part_of_traffic(agent, culprit['uuid'])}"
    return Parties(victim, culprit, cause, pair["since"] if pair is not None else -math.inf, spec, unit)


def length(wanted: float, interval: float) -> float:
    """How long each phase takes, in seconds, so that there are enough samples of it.

    :raises vmqos.cli.exceptions.TooSeldom: if a trial is too short for that.
    """
    if not interval:
        raise exceptions.NothingSampled()
    seconds = max(wanted, FEWEST * interval)
    if seconds + 2 * interval > LONGEST + PATIENCE:
        raise exceptions.TooSeldom(interval=interval, longest=LONGEST)
    return seconds


def run(agent: AgentClient, parties: Parties, seconds: float, interval: float, report: Report) -> Tried:
    """Measure before, during and after, and judge.

    However this ends, the trial is given back first.

    :param seconds: how long each phase takes.
    :param interval: seconds between two samples.
    :raises vmqos.cli.exceptions.TrialLost: if the trial, or one of the VMs, ends before its time.
    :raises vmqos.cli.exceptions.NotPutBack: if the culprit does not have again what it had.
    """
    client = replace(agent, timeout=ANSWER_TIME)
    # A sample tells of the time since the one before, so the first of a phase does not count.
    whole = seconds + interval
    # Where the clock was set back since the neighbour began, that is in the future.
    ago = max(-interval, min(whole, time.time() - parties.since - interval))
    before = _measure(client, parties, ago, whole, lambda passed: report("before", passed))
    _check_run(client, (parties.victim, parties.culprit), "nothing was tried")
    with trial(client, parties) as (limit, renew):

        def go_on(passed: float) -> None:
            renew()
            report("during", passed)

        during = _measure(client, parties, 0.0, whole, go_on)
    after = _measure(client, parties, 0.0, whole, lambda passed: report("after", passed))
    _check_run(client, (parties.culprit,), "nothing of the trial is left")
    _check_run(client, (parties.victim,), f"{display_name(parties.culprit)} has what it had before again")
    outcome = judge(before, during, after, parties.cause, confined=parties.is_confined)
    return Tried(parties, outcome, limit, seconds)


def _check_run(client: AgentClient, vms: Sequence[contract.Vm], state: str) -> None:
    """Say so if a VM has ended, or was started again: then not all samples are there, or not all are of one run.

    :param state: what the operator has to know then.
    :raises vmqos.cli.exceptions.TrialLost: if one has.
    """
    runs = {one["uuid"]: one["pid"] for one in client.vms()}
    for vm in vms:
        if runs.get(vm["uuid"]) != vm["pid"]:
            what = "was started again" if vm["uuid"] in runs else "has ended"
            raise exceptions.TrialLost(problem=f"{display_name(vm)} {what}", state=state)


def _measure(client: AgentClient, parties: Parties, ago: float, whole: float, each: Callable[[float], None]) -> Phase:
    """The samples of a phase; it takes longer where the agent is late with them.

    :param ago: how many seconds ago the phase began, or less than 0 where it is to begin, and ``whole`` how many it
        takes.
    :param each: called again and again meanwhile.
    """
    # What has passed is told by the monotonic clock: the one that samples bear may be set meanwhile.
    start = time.monotonic() - ago
    if ago < 0:
        wait(start, each, start)
    new, now = ask.NewSamples(client), time.time()
    told = [[one for one in new.earlier.get(uuid, []) if now - ago < one["time"] <= now] for uuid in parties.uuids]
    end, last = start + whole, start + max(whole, min(2 * whole, LONGEST + PATIENCE))
    while True:
        wait(end, each, start)
        taken = new.take()
        for uuid, of_vm in zip(parties.uuids, told, strict=True):
            of_vm += taken.get(uuid, [])
        # The first tells of the time before, too.
        victim, culprit = ([ask.plain(sample) for sample in of_vm[1:]] for of_vm in told)
        if len(victim) >= FEWEST or end >= last:
            return Phase(victim, culprit)
        end = min(last, end + whole / 4)


@contextlib.contextmanager
def trial(client: AgentClient, parties: Parties) -> Iterator[tuple[int, Callable[[], contract.Trial]]]:
    """Hold the culprit back: the limit that is in force, and what asks for it again.

    :raises vmqos.cli.exceptions.TrialLost: if it ends before its time.
    :raises vmqos.cli.exceptions.NotPutBack: if the culprit does not have again what it had.
    """
    with lease(client, parties.culprit, _granted, _group_of) as held:
        yield held.begin(parties.limit, confine=parties.is_confined)["limit"], held.renew


def wait(until: float, each: Callable[[float], None], began: float) -> None:
    """Wait until a moment, by the monotonic clock.

    :param each: called again and again, with the seconds that have passed since ``began``.
    """
    while True:
        left = max(0.0, until - time.monotonic())
        each(until - began - left)
        if not left:
            return
        time.sleep(min(PAUSE, left))


def _few_ways(culprit: contract.Vm, limit: int | None) -> str:
    """The ways that the culprit is confined to, as extra specs: no fewer than it shares by its flavor."""
    few = limit or FEW_WAYS
    code, data = culprit.get("code_ways_requested"), culprit.get("data_ways_requested")
    if code and data:
        return f"hw:cache_code_ways={max(code, few // 2)} hw:cache_data_ways={max(data, few - few // 2)}"
    return f"hw:cache_ways={max(culprit['ways_requested'] or 0, few)}"


def _granted(vm: contract.Vm) -> tuple[object, ...]:
    """What the culprit is to have again at the end. Its ways may lie elsewhere: a VM that comes may move them."""
    ways = {cache: units.parse_mask(mask).bit_count() for cache, mask in vm["masks"].items()}
    return vm["group"], ways, vm.get("bandwidth", {}), vm["monitoring_group"]


def _group_of(vm: contract.Vm) -> str:
    return f"its control group is {vm['group'] or 'the default group'}"


def _part_of_traffic(agent: AgentClient, uuid: str) -> int:
    """What the culprit is limited to where limits are in MB/s, by what it moved last."""
    moved = ask.traffic(ask.samples(agent), uuid, 2 * FEWEST)
    return LEAST_MBPS if moved is None else max(LEAST_MBPS, round(PART * moved / 1e6))
