# SPDX-License-Identifier: Apache-2.0
"""The metrics that others have replaced, for dashboards and alerts that still ask for them.

All of this goes with ``[gateway] old_metrics``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from vmqos.gateway.metrics.agent_answers import MBM_LOCAL, MBM_TOTAL, Answers, Remote
from vmqos.gateway.metrics.default_group import Traffic
from vmqos.gateway.metrics.rows import Counter, Gauge
from vmqos.local_api import contract

LABELS = ("name", "project", "flavor")
"""The labels that every metric of a VM had beside its UUID."""

_VM = ("uuid", *LABELS)

_AGES = (
    ("vms", "vmqos_vms_look_age_seconds", "Time since the last complete look at the VMs."),
    ("pass", "vmqos_pass_age_seconds", "Time since the last pass of the loop that ended well."),
    ("counters", "vmqos_sweep_age_seconds", "Time since the counters were last read."),
)

_SCOPES = (("total", MBM_TOTAL), ("local", MBM_LOCAL))


def collect(told: Answers, remote: Remote, moved: Mapping[str, Traffic]) -> Iterator[Metric]:
    """The old metrics, but for :func:`states`.

    :param remote: bytes to and from other sockets' memory.
    :param moved: what the default group moved, by cache id.
    """
    yield from _ages(told.health)
    yield _missing(told)
    yield from _of_counters(told, remote, moved)


def values(vm: contract.Vm) -> list[str]:
    """The values of :data:`LABELS`: Nova's name for the VM, or the libvirt name where there is none."""
    return [vm["instance_name"] or vm["name"], vm["project"], vm["flavor"]]


def _ages(health: contract.Health) -> Iterator[Metric]:
    for part, name, text in _AGES:
        age = health["ages"][part]
        # What was never done is as old as the agent, so that an alert finds it.
        yield GaugeMetricFamily(name, text, health["uptime_seconds"] if age is None else age)


def states(vms: Iterable[contract.Vm]) -> Metric:
    """The old metric that only the listing of the VMs says."""
    family = Gauge("vmqos_vm_state", "1 for the state of each VM's promise.", labels=(*_VM, "state", "reason"))
    for vm in vms:
        family.add_metric([vm["uuid"], *values(vm), vm["state"], vm["reason_code"]], 1)
    return family


def _missing(told: Answers) -> Metric:
    missing = Gauge(
        "vmqos_vm_counter_missing", "1 for each counter of a VM that has no value.", labels=(*_VM, "event", "reason")
    )
    for vm in told.vms:
        for event, reason in told.why_missing(vm["uuid"]).items():
            missing.add_metric([vm["uuid"], *values(vm), event, reason], 1)
    return missing


def _of_counters(told: Answers, remote: Remote, moved: Mapping[str, Traffic]) -> Iterator[Metric]:
    if told.telemetry is None:
        return
    taken = told.telemetry["sweep_seconds"]
    yield GaugeMetricFamily("vmqos_sweep_seconds", "How long it took to read all counters.", taken)
    memory = Counter(
        "vmqos_vm_memory_bytes",
        "Bytes moved between an L3 cache and memory for a VM; local: of the same socket, remote: of others.",
        labels=(*_VM, "cache", "scope"),
    )
    counted = told.counted
    for vm in told.vms:
        uuid, who = vm["uuid"], [vm["uuid"], *values(vm)]
        for cache, counts in counted[uuid]["caches"].items() if uuid in counted else ():
            found = [(scope, counts[event]) for scope, event in _SCOPES]
            for scope, value in (*found, ("remote", remote.get((uuid, cache)))):
                if value is not None:
                    memory.add_metric([*who, cache, scope], value)
    default = Counter(
        "vmqos_default_group_memory_bytes",
        "Bytes moved between an L3 cache and memory for the default group, the VMs in it included.",
        labels=("cache", "scope"),
    )
    for cache, traffic in moved.items():
        for scope, value in (("total", traffic.total), ("local", traffic.local)):
            if value is not None:
                default.add_metric([cache, scope], value)
    yield from (memory, default)
