# SPDX-License-Identifier: Apache-2.0
"""How the agent fares, as the JSON of ``/v1/health``: from memory alone, so that it is told whatever hangs."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from typing import Literal

from vmqos.agent.loop import Agent
from vmqos.agent.sample.sampler import OLD_AFTER, Telemetry
from vmqos.agent.serve import trials, vms
from vmqos.group_names import Owner
from vmqos.host.resctrl_state import ResctrlState
from vmqos.local_api import contract
from vmqos.version import version


def health(agent: Agent, telemetry: Telemetry) -> contract.Health:
    """How the agent fares.

    ``status`` is about the agent alone: whether it can see and act. How the promises stand is in ``vms``.
    """
    found, snapshot, old, is_starting = agent.health, agent.snapshot, stale(agent, telemetry), agent.starting
    resctrl, libvirt = _resctrl(agent, snapshot.resctrl, is_starting), _libvirt(agent, is_starting)
    status: Literal["starting", "ok", "degraded", "failing"]
    if is_starting:
        status = "starting"
    elif found.resctrl_error or not resctrl["mounted"] or agent.pass_times.last_failed:
        status = "failing"
    elif not libvirt["connected"] or libvirt["unanswered"] or old or found.unserved:
        status = "degraded"
    else:
        status = "ok"
    return {
        "status": status,
        "hostname": socket.gethostname(),
        "version": version(),
        "pid": os.getpid(),
        "uptime_seconds": time.monotonic() - agent.started,
        "ages": ages(agent, telemetry),
        "stale": old,
        "unserved": dict(found.unserved),
        "trial": trials.told(agent.trials),
        "resctrl": resctrl,
        "libvirt": libvirt,
        "passes": found.passes,
        "last_pass_ms": found.last_pass_seconds * 1000,
        "failed_passes": agent.pass_times.failed,
        "pass_seconds": agent.pass_times.durations(),
        "last_error": found.last_error or None,
        "last_error_age_seconds": age(found.failed_at),
        "vms": vms.counts(snapshot),
        "revision": agent.revision.of(snapshot),
        "last_event": agent.events.last,
    }


def _resctrl(agent: Agent, known: ResctrlState | None, is_starting: bool) -> contract.ResctrlHealth:
    """How resctrl fares, and how much of it is in use.

    :param known: resctrl as the last pass left it; ``None`` where it can't be read, or was not yet.
    """
    told: contract.ResctrlHealth = {
        "path": agent.filesystem.root,
        "mounted": None if known is None and is_starting else known is not None,
        "error": agent.health.resctrl_error or None,
        "simulated": False,
        "groups": {},
        "closids": 0,
        "closids_used": 0,
        "rmids": 0,
        "rmids_used": 0,
    }
    if known is None:
        return told
    owners, monitoring = Counter(group.owner for group in known.layout.groups), known.capabilities.monitoring
    return {
        **told,
        "simulated": known.simulated,
        "groups": {owner.value: owners[owner] for owner in Owner},
        "closids": known.capabilities.num_closids,
        "closids_used": len(known.layout.groups),
        "rmids": monitoring.num_rmids if monitoring is not None else 0,
        "rmids_used": known.rmids_in_use,
    }


def _libvirt(agent: Agent, is_starting: bool) -> contract.LibvirtHealth:
    """How the connection to libvirt fares. That there is none yet is no error while the agent starts."""
    call = agent.unanswered()
    error = f"libvirt does not answer {call.name}" if call is not None else agent.connection.last_error
    return {
        "uri": agent.uri,
        "connected": agent.connection.is_connected,
        "error": None if is_starting else error or None,
        "unanswered": None if call is None else {"call": call.name, "seconds": time.monotonic() - call.since},
        "starts_watched": agent.start_watch.is_watching,
        "watch_error": agent.start_watch.last_error or None,
    }


def ages(agent: Agent, telemetry: Telemetry) -> dict[str, float | None]:
    """Seconds since each part last did its work; ``None`` before it ever did.

    ``vms``: the last complete look at the VMs. ``pass``: the last pass that ended well. ``counters``: the last sweep.
    """
    return {
        "vms": age(agent.health.looked_at),
        "pass": age(agent.health.passed_at),
        "counters": age(telemetry.swept_at),
    }


def stale(agent: Agent, telemetry: Telemetry) -> list[str]:
    """Those of :func:`ages` that are over three times as long as usual, and over :data:`OLD_AFTER`.

    What was never done is as old as the agent.
    """
    known = ages(agent, telemetry)
    uptime = time.monotonic() - agent.started
    limit = max(3 * agent.conf.agent.audit_interval, OLD_AFTER)
    # Each pass looks at the VMs first.
    found = [part for part in ("vms", "pass") if _or(known[part], uptime) > limit]
    never_swept = known["counters"] is None and telemetry.interval > 0
    if telemetry.is_old or (never_swept and uptime > max(3 * telemetry.interval, OLD_AFTER)):
        found.append("counters")
    return found


def oldest(*moments: float | None) -> float | None:
    """The age of the oldest of several moments in seconds; ``None`` where one of them never was."""
    known = [age(moment) for moment in moments]
    return None if None in known else max(one for one in known if one is not None)


def age(moment: float | None) -> float | None:
    """Seconds since a moment of the monotonic clock, 0 or more."""
    return None if moment is None else max(0.0, time.monotonic() - moment)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
