# SPDX-License-Identifier: Apache-2.0
"""The counters and the agent's state as Prometheus metrics.

Every scrape begins from nothing, so a VM that is gone leaves no series. A counter without a value is an absent sample
and a sample of ``vmqos_vm_counter_missing`` that says why, never 0. Every label's values are bounded by the number of
VMs, caches and words of fixed sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from vmqos.gateway.published import AgentState, VmState
from vmqos.gateway.remote import RemoteCounters
from vmqos.telemetry.model import EVENTS, LLC_OCCUPANCY, MBM_LOCAL, MBM_TOTAL, Missing, Reading, Snapshot, VmReading

VM = ("uuid", "name", "project", "flavor")
"""The labels of every sample that is about one VM."""

NO_SWEEP = "no-sweep"
"""Why a counter has no value where all counters could not be read for a while."""

_AGES = (
    ("vms", "vmqos_vms_look_age_seconds", "Time since the last complete look at the VMs."),
    ("pass", "vmqos_pass_age_seconds", "Time since the last pass of the loop that ended well."),
    ("counters", "vmqos_sweep_age_seconds", "Time since the counters were last read."),
)

_SCOPES = (("total", MBM_TOTAL), ("local", MBM_LOCAL))


class HostCollector(Collector):
    """One host's metrics.

    :param look: the newest sweep, or ``None`` where there is none to be had; and what the agent publishes.
    """

    def __init__(self, look: Callable[[], tuple[Snapshot | None, AgentState]]) -> None:
        self._look = look
        self._remote = RemoteCounters()

    def describe(self) -> Iterable[Metric]:
        """No metric is known before the first look."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read the counters, and yield the metrics."""
        snapshot, state = self._look()
        yield from _of_agent(state)
        yield from _of_promises(state)
        yield from _missing(state.vms, snapshot)
        if snapshot is not None:
            yield from _of_vms(snapshot, state.vms, self._remote.update(snapshot))
            yield from _of_host(snapshot)


def _of_agent(state: AgentState) -> Iterator[Metric]:
    yield InfoMetricFamily("vmqos_agent", "The agent's version.", {"version": state.version})
    yield GaugeMetricFamily("vmqos_resctrl_up", "Whether resctrl could be read in the last pass.", state.resctrl)
    yield GaugeMetricFamily("vmqos_libvirt_up", "Whether libvirt is connected and answers.", state.libvirt)
    histogram = HistogramMetricFamily("vmqos_reconcile_duration_seconds", "How long the passes of the loop took.")
    buckets = [*((f"{bound:g}", count) for bound, count in state.passes.buckets), ("+Inf", state.passes.count)]
    histogram.add_metric([], buckets, state.passes.total)
    yield histogram
    yield CounterMetricFamily("vmqos_reconcile_errors", "Passes that failed.", state.failed_passes)
    for part, name, text in _AGES:
        if part in state.ages:
            yield GaugeMetricFamily(name, text, state.ages[part])
    yield GaugeMetricFamily(
        "vmqos_vms_unserved", "VMs that libvirt lists and the agent does not serve.", state.unserved
    )
    yield _by("vmqos_groups", "Control groups by the kind of their owner.", ("owner",), state.groups.items())
    if state.closids:
        yield GaugeMetricFamily("vmqos_closids", "How many control groups there can be (CLOSIDs).", state.closids)
        yield GaugeMetricFamily("vmqos_closids_used", "How many control groups there are.", state.closids_used)
    if state.rmids:
        yield GaugeMetricFamily("vmqos_rmids", "How many groups can be monitored (RMIDs).", state.rmids)
        yield GaugeMetricFamily("vmqos_rmids_used", "How many groups are monitored.", state.rmids_used)
    yield from _of_openstack(state)
    caches = state.caches.items()
    yield _by("vmqos_cache_ways", "Ways of an L3 cache.", ("cache",), ((id, cache.ways) for id, cache in caches))
    free = ((id, cache.free_ways) for id, cache in caches)
    yield _by("vmqos_cache_free_ways", "Ways that can still be promised exclusively.", ("cache",), free)
    run = ((id, cache.largest_free_run) for id, cache in caches)
    yield _by("vmqos_cache_largest_free_run_ways", "The most ways one mask can still get.", ("cache",), run)
    size = ((id, cache.size) for id, cache in caches if cache.size is not None)
    yield _by("vmqos_cache_size_bytes", "Size of an L3 cache.", ("cache",), size)


def _of_openstack(state: AgentState) -> Iterator[Metric]:
    if state.placement is not None:
        yield GaugeMetricFamily(
            "vmqos_placement_up", "Whether OpenStack has what it is to be told of this host.", state.placement
        )
        yield CounterMetricFamily(
            "vmqos_placement_failures", "How often OpenStack could not be told.", state.placement_failures
        )
        inventories = state.inventories.items()
        yield _by("vmqos_placement_inventory", "What OpenStack was told last.", ("resource_class",), inventories)
    if state.nova is not None:
        yield GaugeMetricFamily("vmqos_nova_up", "Whether Nova tells the flavors it is asked for.", state.nova)
        yield GaugeMetricFamily("vmqos_flavors_unknown", "VMs whose flavor Nova is to tell.", state.flavors_unknown)


def _of_promises(state: AgentState) -> Iterator[Metric]:
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
    for vm in state.vms.values():
        states.add_metric([*_labels(vm), vm.state, vm.reason], 1)
        for id, count in sorted(vm.ways.items()):
            ways.add_metric([*_labels(vm), str(id)], count)
            cache = state.caches.get(id)
            if cache is not None and cache.size is not None and cache.ways:
                size.add_metric([*_labels(vm), str(id)], cache.size // cache.ways * count)
        for id, count in sorted(vm.l2_ways.items()):
            l2.add_metric([*_labels(vm), str(id)], count)
        for id, limit in sorted(vm.bandwidth.items()):
            (ratio if vm.bandwidth_is_ratio else rate).add_metric([*_labels(vm), str(id)], limit)
    yield from (states, ways, size, l2, ratio, rate)


def _of_vms(
    snapshot: Snapshot, known: Mapping[str, VmState], remote: Mapping[tuple[str, int], Reading]
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
    for uuid, state in known.items():
        vm, who = snapshot.vms.get(uuid), _labels(state)
        if vm is None:
            continue
        for cache, readings in vm.caches.items():
            where = [*who, str(cache)]
            _add(occupancy, where, readings[LLC_OCCUPANCY])
            for scope, event in _SCOPES:
                _add(memory, [*where, scope], readings[event])
            _add(memory, [*where, "remote"], remote[uuid, cache])
        for package, readings in vm.packages.items():
            if "core_energy" in readings:
                _add(energy, [*who, str(package)], readings["core_energy"])
    yield from (occupancy, memory)
    if energy.samples:
        yield energy


def _missing(known: Mapping[str, VmState], snapshot: Snapshot | None) -> Iterator[Metric]:
    missing = GaugeMetricFamily(
        "vmqos_vm_counter_missing", "1 for each counter of a VM that has no value.", labels=(*VM, "event", "reason")
    )
    for uuid, vm in known.items():
        counted = snapshot.vms.get(uuid) if snapshot is not None else None
        for event in EVENTS:
            reason = _why_missing(snapshot, counted, event)
            if reason:
                missing.add_metric([*_labels(vm), event, reason], 1)
    yield missing


def _why_missing(snapshot: Snapshot | None, counted: VmReading | None, event: str) -> str:
    if snapshot is None:
        return NO_SWEEP
    if counted is None:
        return Missing.NOT_MONITORED.value
    missing = counted.totals[event].missing
    return missing.value if missing is not None else ""


def _of_host(snapshot: Snapshot) -> Iterator[Metric]:
    yield GaugeMetricFamily("vmqos_sweep_seconds", "How long it took to read all counters.", snapshot.sweep_seconds)
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
    for cache, readings in snapshot.host.caches.items():
        _add(occupancy, [str(cache)], readings[LLC_OCCUPANCY])
        for scope, event in _SCOPES:
            _add(memory, [str(cache), scope], readings[event])
    yield from (occupancy, memory)


def _by(name: str, text: str, labels: tuple[str], values: Iterable[tuple[object, float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for label, value in values:
        family.add_metric([str(label)], value)
    return family


def _add(family: GaugeMetricFamily | CounterMetricFamily, labels: list[str], reading: Reading) -> None:
    if reading.value is not None:
        family.add_metric(labels, reading.value)


def _labels(vm: VmState) -> list[str]:
    return [vm.uuid, vm.name, vm.project, vm.flavor]
