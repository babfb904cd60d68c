# SPDX-License-Identifier: Apache-2.0
"""Whether a trial may begin, and what is told of the one that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vmqos import allocation
from vmqos.agent import planner_requests, trial
from vmqos.agent.act.control_groups import created
from vmqos.agent.loop import Agent
from vmqos.agent.observe import flavor_request
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.trial import Trial, TrialRefused, Trials
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import PromiseState, Request
from vmqos.allocation.rights.claims import bandwidth
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import vm_group
from vmqos.host.resctrl_state import ResctrlState
from vmqos.local_api import contract
from vmqos.resctrl import monitoring
from vmqos.resctrl.exceptions import ResctrlError
from vmqos.resctrl.groups import monitoring_directory
from vmqos.telemetry.model import LLC_OCCUPANCY

OF_L3 = f"{monitoring.MON_DATA}/mon_L3_"

NO_BANDWIDTH = (
    "this host's memory bandwidth can't be throttled by resctrl: a trial needs MBA in the CPU and in the kernel "
    "(info/MB in resctrl)"
)


def begin(
    agent: Agent, key: str, uuid: str, wants: CacheRequest, *, may_fill_fewer: bool = False, confine: bool = False
) -> None:
    """Begin a trial, if it takes nothing from any VM that was promised to it.

    A trial of ways that runs goes on with more of them, if its own client asks for that.

    :param key: the client's name for it.
    :param wants: what is tried: ``ways``, or ``code_ways`` and ``data_ways``; or the limit, ``bandwidth_percent`` or
        ``bandwidth_mbps``.
    :param may_fill_fewer: whether a VM that is promised no ways may have fewer to fill than it fills now.
    :param confine: whether the ways are to keep the VM from those that others fill; it may have fewer to fill then.
    :raises KeyError: if no VM of that UUID runs here.
    :raises vmqos.agent.trial.TrialRefused: if it may not begin.
    """
    snapshot = agent.snapshot
    record, resctrl = snapshot.vms[uuid], snapshot.resctrl
    if resctrl is None:
        raise TrialRefused("resctrl can't be read now")
    if agent.flavors.is_on and flavor_request.lacks_specs(record.observed):
        # A restarted agent would not know at once what the VM had before.
        raise TrialRefused(_refused(record, "its flavor is known from Nova's API alone; hard-reboot it first"))
    ways, fewer = wants.l3_ways or None, may_fill_fewer or confine
    if why := _why_not(record, ways, code=wants.code_ways, may_fill_fewer=fewer, confines=confine):
        raise TrialRefused(_refused(record, why))
    if ways is None:
        made = _limit(snapshot, resctrl, record, key, wants)
    else:
        made = Trial(
            key,
            uuid,
            record.observed.vm.process,
            None,
            None,
            ways,
            trial.WAYS,
            ways=ways,
            may_fill_fewer=fewer,
            code=wants.code_ways,
            confines=confine,
        )
    if why := _what_it_costs(snapshot, resctrl, record, made):
        raise TrialRefused(_refused(record, why))
    agent.trials.begin(made)


def _limit(snapshot: Snapshot, resctrl: ResctrlState, record: VmRecord, key: str, wants: CacheRequest) -> Trial:
    resource = resctrl.capabilities.memory_bandwidth
    if resource is None:
        raise TrialRefused(NO_BANDWIDTH)
    found = bandwidth(resctrl.capabilities, wants)
    if found.value is None:
        unit = "per cent" if resource.unit.told_in == "%" else "MB/s"
        raise TrialRefused(f"this host limits memory bandwidth in {unit}: ask for that")
    if (limit := resource.unit.limit(found.value)) is None:
        raise TrialRefused("that is no limit on this host")
    is_percent = resource.unit.told_in == "%"
    return Trial(
        key,
        record.uuid,
        record.observed.vm.process,
        limit if is_percent else None,
        None if is_percent else limit,
        limit,
        resource.unit.told_in,
        trial.without_closid(snapshot),
    )


def _why_not(record: VmRecord, ways: int | None, *, code: int | None, may_fill_fewer: bool, confines: bool) -> str:
    if why := trial.why_not(record.request, ways, code=code, may_fill_fewer=may_fill_fewer, confines=confines):
        return why
    given = record.allocation
    if given.state not in (PromiseState.KEPT, PromiseState.NONE):
        return f"its promise is {given.state.value} now: {given.reason.text}"
    return ""


def _what_it_costs(snapshot: Snapshot, resctrl: ResctrlState, record: VmRecord, made: Trial) -> str:
    """Why the trial can't be had, or which other VM would have less for it; empty where it costs nothing."""
    tried = replace(record, request=trial.applied(record.request, record.observed.vm, made))
    wanted = planner_requests.make(resctrl, [tried], snapshot.topology)
    theirs = {record.uuid, *(one.uuid for one in wanted)}
    found = _plan(snapshot, resctrl, [*(one for one in snapshot.requests if one.uuid not in theirs), *wanted])
    given = found.allocations[record.uuid]
    if given.state is not PromiseState.KEPT or (made.ways is None and not given.throttles):
        return given.reason.text
    without = _plan(snapshot, resctrl, trial.untried(snapshot))
    if why := trial.what_others_lose(found, without, record.uuid):
        return why
    if resctrl.lacks_rmids(len(created(found))):
        return "no RMID is free for a further group, and it would take one from a VM that is counted"
    return ""


def _plan(snapshot: Snapshot, resctrl: ResctrlState, requests: Sequence[Request]) -> allocation.Plan:
    return allocation.plan(resctrl.capabilities, resctrl.layout, requests, snapshot.policy)


def _refused(record: VmRecord, why: str) -> str:
    return f"nothing is tried on VM {record.uuid}: {why}"


def left_bytes(agent: Agent, uuid: str) -> int | None:
    """What a VM still has of the L3 caches where it was before ways of its own were tried on it.

    ``None`` where it has left nothing, or nothing counts it.
    """
    snapshot, name = agent.snapshot, vm_group(uuid)
    record, resctrl = snapshot.vms.get(uuid), snapshot.resctrl
    if record is None or resctrl is None or not trial.leaves_its_place(record.request):
        return None
    places = [control for control, names in resctrl.monitoring_groups.items() if name in names]
    if not places or record.allocation.group != name:
        return None
    group, files = monitoring_directory(places[0], name), agent.filesystem
    try:
        caches = [one.path for one in monitoring.read_counters(files, group) if one.source.node is None]
        return sum(int(files.read(group, path, LLC_OCCUPANCY)) for path in caches if path.startswith(OF_L3))
    except (ResctrlError, ValueError):
        return None


def told(trials: Trials) -> contract.Trial | None:
    """The trial that runs, as the API tells it; ``None`` where none does."""
    found = trials.state()
    if found is None:
        return None
    running, in_force, left = found
    return {
        "uuid": running.uuid,
        "limit": running.limit,
        "unit": running.unit,
        "in_force": in_force,
        "seconds_left": left,
    }
