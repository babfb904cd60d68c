# SPDX-License-Identifier: Apache-2.0
"""What the agent answers, as Prometheus metrics.

Every scrape begins from nothing, so a VM that is gone leaves no series. A counter without a value is an absent sample
and a sample of ``vmqos_vm_counter_missing`` that says why, never 0. Every label's values are bounded by the number of
VMs, caches and words of fixed sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from vmqos.gateway.remote import RemoteCounters
from vmqos.local_api import contract

_VM_LABELS: Mapping[str, Callable[[contract.Vm], str]] = {
    "uuid": lambda vm: vm["uuid"],
    # Nova's name for it; the libvirt name where there is none.
    "name": lambda vm: vm["instance_name"] or vm["name"],
    "project": lambda vm: vm["project"],
    "flavor": lambda vm: vm["flavor"],
}

VM = tuple(_VM_LABELS)
"""The labels of every sample that is about one VM."""

LLC_OCCUPANCY = "llc_occupancy"
MBM_TOTAL = "mbm_total_bytes"
MBM_LOCAL = "mbm_local_bytes"

EVENTS = (LLC_OCCUPANCY, MBM_TOTAL, MBM_LOCAL)
"""The events that every VM has a value of, or a reason why not."""

NOT_MONITORED = "not-monitored"
"""Why a counter has no value where no group counts the VM."""

NO_SWEEP = "no-sweep"
"""Why a counter has no value where all counters could not be read for a while."""

_AGES = (
    ("vms", "vmqos_vms_look_age_seconds", "Time since the last complete look at the VMs."),
    ("pass", "vmqos_pass_age_seconds", "Time since the last pass of the loop that ended well."),
    ("counters", "vmqos_sweep_age_seconds", "Time since the counters were last read."),
)

_SCOPES = (("total", MBM_TOTAL), ("local", MBM_LOCAL))

_LIMIT_SCALES = {"%": 0.01, "MB/s": 1e6}
"""What a limit of memory bandwidth is multiplied by to have a ratio, or bytes a second, by the unit it is told in."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What the API answers at one moment.

    :ivar health: with what is known of Placement and Nova.
    :ivar telemetry: ``None`` where the counters could not be read, or not for a while.
    """

    health: contract.Health
    vms: Sequence[contract.Vm]
    caches: Sequence[contract.Cache]
    telemetry: contract.Telemetry | None


class HostCollector(Collector):
    """One host's metrics.

    :param ask: the answers of the API as they are now.
    """

    def __init__(self, ask: Callable[[], Answers]) -> None:
        self._ask = ask
        self._remote = RemoteCounters()

    def describe(self) -> Iterable[Metric]:
        """No metric is known before the first scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Ask, and yield the metrics."""
        told = self._ask()
        caches = {str(cache["id"]): cache for cache in told.caches if cache["resource"] == "L3"}
        yield from _of_agent(told.health)
        yield from _of_resctrl(told.health["resctrl"])
        yield from _of_placement(told.health.get("placement"))
        yield from _of_nova(told.health.get("nova"))
        yield from _of_caches(caches)
        yield from _of_promises(told.vms, caches)
        yield from _missing(told.vms, told.telemetry)
        if told.telemetry is not None:
            yield from _of_vms(told.vms, told.telemetry, self._remote.update(told.telemetry["vms"]))
            yield from _of_host(told.telemetry)


def _of_agent(health: contract.Health) -> Iterator[Metric]:
    resctrl, libvirt, passes = health["resctrl"], health["libvirt"], health["pass_seconds"]
    can_read = bool(resctrl["mounted"]) and not resctrl["error"]
    answers = libvirt["connected"] and libvirt["unanswered"] is None
    yield InfoMetricFamily("vmqos_agent", "The agent's version.", {"version": health["version"]})
    yield GaugeMetricFamily("vmqos_resctrl_up", "Whether resctrl could be read in the last pass.", can_read)
    yield GaugeMetricFamily("vmqos_libvirt_up", "Whether libvirt is connected and answers.", answers)
    histogram = HistogramMetricFamily("vmqos_reconcile_duration_seconds", "How long the passes of the loop took.")
    buckets = [*((f"{bound:g}", count) for bound, count in passes["buckets"]), ("+Inf", passes["count"])]
    histogram.add_metric([], buckets, passes["sum"])
    yield histogram
    yield CounterMetricFamily("vmqos_reconcile_errors", "Passes that failed.", health["failed_passes"])
    for part, name, text in _AGES:
        age = health["ages"][part]
        # What was never done is as old as the agent, so that an alert finds it.
        yield GaugeMetricFamily(name, text, health["uptime_seconds"] if age is None else age)
    unserved = len(health["unserved"])
    yield GaugeMetricFamily("vmqos_vms_unserved", "VMs that libvirt lists and the agent does not serve.", unserved)


def _of_resctrl(resctrl: contract.ResctrlHealth) -> Iterator[Metric]:
    owners = resctrl["groups"].items()
    yield _by("vmqos_groups", "Control groups by the kind of their owner.", "owner", owners)
    if resctrl["closids"]:
        yield GaugeMetricFamily("vmqos_closids", "How many control groups there can be (CLOSIDs).", resctrl["closids"])
        yield GaugeMetricFamily("vmqos_closids_used", "How many control groups there are.", resctrl["closids_used"])
    if resctrl["rmids"]:
        yield GaugeMetricFamily("vmqos_rmids", "How many groups can be monitored (RMIDs).", resctrl["rmids"])
        yield GaugeMetricFamily("vmqos_rmids_used", "How many groups are monitored.", resctrl["rmids_used"])


def _of_placement(told: contract.PlacementHealth | None) -> Iterator[Metric]:
    if told is None:
        return
    is_told = not told["error"] and told["told_at"] is not None
    yield GaugeMetricFamily("vmqos_placement_up", "Whether OpenStack has what it is to be told of this host.", is_told)
    failures = told["failures"]
    yield CounterMetricFamily("vmqos_placement_failures", "How often OpenStack could not be told.", failures)
    inventories = told["inventories"].items()
    yield _by("vmqos_placement_inventory", "What OpenStack was told last.", "resource_class", inventories)


def _of_nova(nova: contract.NovaHealth | None) -> Iterator[Metric]:
    if nova is None:
        return
    yield GaugeMetricFamily("vmqos_nova_up", "Whether Nova tells the flavors it is asked for.", not nova["error"])
    yield GaugeMetricFamily("vmqos_flavors_unknown", "VMs whose flavor Nova is to tell.", nova["waiting"])


def _of_caches(caches: Mapping[str, contract.Cache]) -> Iterator[Metric]:
    ways = ((id, cache["ways"]) for id, cache in caches.items())
    yield _by("vmqos_cache_ways", "Ways of an L3 cache.", "cache", ways)
    free = ((id, cache["free_ways"]) for id, cache in caches.items())
    yield _by("vmqos_cache_free_ways", "Ways that can still be promised exclusively.", "cache", free)
    run = ((id, cache["largest_free_run"]) for id, cache in caches.items())
    yield _by("vmqos_cache_largest_free_run_ways", "The most ways one mask can still get.", "cache", run)
    size = ((id, cache["size_bytes"]) for id, cache in caches.items())
    yield _by("vmqos_cache_size_bytes", "Size of an L3 cache.", "cache", size)


def _of_promises(vms: Iterable[contract.Vm], caches: Mapping[str, contract.Cache]) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "vmqos_vm_state", "1 for the state of each VM's promise.", labels=(*VM, "state", "reason")
    )
    ways = GaugeMetricFamily("vmqos_vm_cache_ways", "Ways that a VM's promise gives it.", labels=(*VM, "cache"))
    size = GaugeMetricFamily("vmqos_vm_cache_allocated_bytes", "Size of those ways.", labels=(*VM, "cache"))
    l2 = GaugeMetricFamily("vmqos_vm_l2_cache_ways", "L2 ways that a VM's promise gives it.", labels=(*VM, "cache"))
    ratio = GaugeMetricFamily(
        "vmqos_vm_memory_bandwidth_limit_ratio",
        "Share of the memory bandwidth that a VM's promise limits it to, where the hardware throttles by per cent.",
        labels=(*VM, "cache"),
    )
    rate = GaugeMetricFamily(
        "vmqos_vm_memory_bandwidth_limit_bytes_per_second",
        "Memory bandwidth that a VM's promise limits it to, where resctrl takes MB/s or 1/8 GB/s.",
        labels=(*VM, "cache"),
    )
    outside = CounterMetricFamily(
        "vmqos_vm_outside_cpu_seconds",
        "CPU time that a VM's tasks used outside of the group with its ways: until all were there, and since.",
        labels=(*VM, "when"),
    )
    for vm in vms:
        who, unit = _labels(vm), vm["bandwidth_unit"]
        for when, seconds in (("start", vm.get("outside_at_start")), ("later", vm.get("outside_later"))):
            if seconds is not None:
                outside.add_metric([*who, when], seconds)
        states.add_metric([*who, vm["state"], vm["reason_code"]], 1)
        for id, mask in vm["masks"].items():
            ways.add_metric([*who, id], _count(mask))
            way_bytes = caches[id]["way_bytes"] if id in caches else None
            if way_bytes is not None:
                size.add_metric([*who, id], way_bytes * _count(mask))
        for id, mask in vm["l2_masks"].items():
            l2.add_metric([*who, id], _count(mask))
        if unit is not None:
            for id, limit in vm["bandwidth"].items():
                (ratio if unit == "%" else rate).add_metric([*who, id], limit * _LIMIT_SCALES[unit])
    yield from (states, ways, size, l2, ratio, rate, outside)


def _of_vms(
    known: Iterable[contract.Vm], telemetry: contract.Telemetry, remote: Mapping[tuple[str, str], float]
) -> Iterator[Metric]:
    """The counters of the VMs that the agent knows: a group may outlive its VM for a moment, and has no name."""
    occupancy = GaugeMetricFamily("vmqos_vm_llc_occupancy_bytes", "Bytes of an L3 a VM holds.", labels=(*VM, "cache"))
    memory = CounterMetricFamily(
        "vmqos_vm_memory_bytes",
        "Bytes moved between an L3 cache and memory for a VM; local: of the same socket, remote: of others.",
        labels=(*VM, "cache", "scope"),
    )
    energy = CounterMetricFamily(
        "vmqos_vm_core_energy_joules", "Energy that a VM's tasks used in CPU cores.", labels=(*VM, "package")
    )
    for vm in known:
        counted, who = telemetry["vms"].get(vm["uuid"]), _labels(vm)
        if counted is None:
            continue
        for cache, counts in counted["caches"].items():
            _add(occupancy, [*who, cache], counts[LLC_OCCUPANCY])
            for scope, event in _SCOPES:
                _add(memory, [*who, cache, scope], counts[event])
            _add(memory, [*who, cache, "remote"], remote.get((vm["uuid"], cache)))
        for package, counts in counted["packages"].items():
            _add(energy, [*who, package], counts.get("core_energy"))
    yield from (occupancy, memory)
    if energy.samples:
        yield energy


def _missing(known: Iterable[contract.Vm], telemetry: contract.Telemetry | None) -> Iterator[Metric]:
    missing = GaugeMetricFamily(
        "vmqos_vm_counter_missing", "1 for each counter of a VM that has no value.", labels=(*VM, "event", "reason")
    )
    for vm in known:
        for event, reason in _why_missing(vm["uuid"], telemetry).items():
            missing.add_metric([*_labels(vm), event, reason], 1)
    yield missing


def _why_missing(uuid: str, telemetry: contract.Telemetry | None) -> dict[str, str]:
    if telemetry is None:
        return dict.fromkeys(EVENTS, NO_SWEEP)
    if uuid not in telemetry["vms"]:
        return dict.fromkeys(EVENTS, NOT_MONITORED)
    found = telemetry["vms"][uuid]["missing"]
    return {event: found[event] for event in EVENTS if event in found}


def _of_host(telemetry: contract.Telemetry) -> Iterator[Metric]:
    yield GaugeMetricFamily("vmqos_sweep_seconds", "How long it took to read all counters.", telemetry["sweep_seconds"])
    occupancy = GaugeMetricFamily(
        "vmqos_default_group_llc_occupancy_bytes",
        "Bytes of an L3 cache that the default group holds, the VMs in it included.",
        labels=("cache",),
    )
    memory = CounterMetricFamily(
        "vmqos_default_group_memory_bytes",
        "Bytes moved between an L3 cache and memory for the default group, the VMs in it included.",
        labels=("cache", "scope"),
    )
    for cache, counts in telemetry["host"]["caches"].items():
        _add(occupancy, [cache], counts[LLC_OCCUPANCY])
        for scope, event in _SCOPES:
            _add(memory, [cache, scope], counts[event])
    yield from (occupancy, memory)


def _by(name: str, text: str, label: str, values: Iterable[tuple[str, float | None]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for labelled, value in values:
        _add(family, [labelled], value)
    return family


def _add(family: GaugeMetricFamily | CounterMetricFamily, labels: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)


def _labels(vm: contract.Vm) -> list[str]:
    return [value(vm) for value in _VM_LABELS.values()]


def _count(mask: str) -> int:
    """How many ways a mask has."""
    return int(mask, 16).bit_count()
