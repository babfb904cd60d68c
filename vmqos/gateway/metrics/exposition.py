# SPDX-License-Identifier: Apache-2.0
"""What the agent answers, as Prometheus metrics.

Every scrape begins from nothing, so a VM that is gone leaves no series. A counter without a value is an absent sample
and a sample of ``vmqos_vm_telemetry_missing`` that says why, never 0. Every label's values are bounded by the number of
VMs, caches and words of fixed sets.

A VM's samples carry its UUID, and ``vmqos_vm_info`` says what the VM is called: a new name or flavor begins no other
series anew. The sum over the labels of a metric counts nothing twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from vmqos.gateway.health import OpenStackHealth
from vmqos.gateway.metrics import old_names
from vmqos.gateway.metrics.agent_answers import (
    CACHES,
    COUNTERS,
    HARDWARE_EVENTS,
    LLC_OCCUPANCY,
    MBM_LOCAL,
    MBM_TOTAL,
    NEIGHBOURS,
    VMS,
    Answers,
    Remote,
)
from vmqos.gateway.metrics.default_group import DefaultGroupTraffic, Traffic
from vmqos.gateway.metrics.kept_counters import Kept
from vmqos.gateway.metrics.left_groups import LeftGroups
from vmqos.gateway.metrics.remote import RemoteCounters
from vmqos.gateway.metrics.rising import Key, RisingCounters
from vmqos.gateway.metrics.rows import Counter, Gauge, Rows
from vmqos.local_api import contract
from vmqos.visible_text import neutralise

_STATES: Sequence[str] = get_args(contract.State)

_NOTHING_PROMISED = "none"

_MOMENTS = (
    ("vms", "vmqos_last_vms_look_timestamp_seconds", "When the last complete look at the VMs ended."),
    ("pass", "vmqos_last_pass_timestamp_seconds", "When the last pass of the loop that went well ended."),
    ("counters", "vmqos_last_sweep_timestamp_seconds", "When the counters were last read."),
)

_EXECUTED = {
    "cycles": "Cycles of a CPU for which a VM's tasks ran.",
    "instructions": "Instructions that a VM's tasks executed.",
    "cache_references": "References of a VM's tasks to the last-level cache, as the kernel counts them.",
    "cache_misses": "References of a VM's tasks that missed the last-level cache, as the kernel counts them.",
}
"""What each hardware event counts."""

_OF_PACKAGES = {
    "activity": ("vmqos_vm_core_activity_farads", "Work that a VM's tasks did in CPU cores, whatever the frequency."),
    "unhalted_core_cycles": ("vmqos_vm_package_cycles", "Cycles for which a VM's tasks ran on a package's CPUs."),
    "unhalted_ref_cycles": (
        "vmqos_vm_package_reference_cycles",
        "Cycles at a frequency that stays the same for which a VM's tasks ran on a package's CPUs.",
    ),
    "stalls_llc_hit": (
        "vmqos_vm_llc_hit_stall_cycles",
        "Cycles for which a VM's tasks waited for loads that the last-level cache had.",
    ),
    "stalls_llc_miss": (
        "vmqos_vm_llc_miss_stall_cycles",
        "Cycles for which a VM's tasks waited for loads that the last-level cache did not have.",
    ),
    "uops_retired": ("vmqos_vm_uops", "Micro-operations that a VM's tasks retired."),
    "c1_res": ("vmqos_vm_c1_residency_cycles", "Cycles that CPUs spent in the idle state C1 on behalf of a VM."),
    "c6_res": ("vmqos_vm_c6_residency_cycles", "Cycles that CPUs spent in the idle state C6 on behalf of a VM."),
}
"""The metrics of what packages count, by the kernel's name of the event; energy is one of before."""

_LIMIT_SCALES = {"%": 0.01, "MB/s": 1e6}
"""What a limit of memory bandwidth is multiplied by to have a ratio, or bytes a second, by the unit it is told in."""

NO_METRICS = LookupError, TypeError, ValueError, OverflowError
"""What is raised where no metrics can be made of an answer: an agent of another version may answer anything."""

SAME_MOMENT = 0.5
"""Seconds by which two moments differ at least: more than it takes to ask the agent for all that a scrape tells."""


class _VmLabels:
    """The labels that say which VM a sample is about.

    :param old_metrics: whether every metric has those of :mod:`vmqos.gateway.metrics.old_names`, too.
    """

    def __init__(self, old_metrics: bool) -> None:
        self._old = old_metrics
        self.names = ("uuid", *old_names.LABELS) if old_metrics else ("uuid",)

    def of(self, vm: contract.Vm) -> list[str]:
        """Their values."""
        return [vm["uuid"], *old_names.values(vm)] if self._old else [vm["uuid"]]


class _Moments:
    """Moments that stay the same from one scrape to the next where they are.

    The agent tells ages, and some milliseconds pass between its look at the clock and the gateway's: the moment that
    follows would be another one with each scrape.
    """

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def same(self, name: str, moment: float) -> float:
        """The moment that was told before if that is less than :data:`SAME_MOMENT` away, else this one.

        :param moment: in seconds since 1970.
        """
        if abs(moment - self._told.get(name, moment)) < SAME_MOMENT:
            return self._told.setdefault(name, moment)
        self._told[name] = moment
        return moment


class HostCollector(Collector):
    """One host's metrics.

    :param ask: the answers of the API as they are now.
    :param old_metrics: whether the metrics of :mod:`vmqos.gateway.metrics.old_names` are told, too.
    :param kept: what an earlier collector of this host kept of its counters.
    """

    def __init__(self, ask: Callable[[], Answers], old_metrics: bool = True, kept: Kept | None = None) -> None:
        self._ask = ask
        self._old_metrics = old_metrics
        self._labels = _VmLabels(old_metrics)
        self._left = LeftGroups()
        self._remote = RemoteCounters()
        self._rising = RisingCounters()
        self._energy = RisingCounters(from_zero=True)
        self._default_group = DefaultGroupTraffic()
        self._moments = _Moments()
        self._known_listing: tuple[tuple[object, object], Sequence[Metric]] | None = None
        if kept is not None:
            self._left.last, self._left.left = kept.last, kept.left
            self._remote.last, self._rising.highest = kept.remote, kept.highest

    @property
    def kept(self) -> Kept:
        """What a later collector needs so that no counter goes back."""
        return Kept(self._left.last, self._left.left, self._remote.last, self._rising.highest)

    def describe(self) -> Iterable[Metric]:
        """No metric is known before the first scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Ask, and yield the metrics."""
        told, remote, moved = self._with_counters(self._ask())
        caches = {str(cache["id"]): cache for cache in told.caches if cache["resource"] == "L3"}
        yield from _of_agent(told.health, self._moments)
        yield from _of_resctrl(told.health["resctrl"])
        yield from _of_placement(told.health.get("placement"))
        yield from _of_nova(told.health.get("nova"))
        yield from _of_notifications(told.health.get("notifications"))
        yield from _part(told, CACHES, _of_caches(caches))
        yield from _part(told, VMS, self._listed(told, caches))
        yield from _part(told, VMS, _of_promise_times(told))
        yield from _part(told, COUNTERS, self._counted(told, remote, moved))
        if told.hardware is not None:
            yield from _part(told, HARDWARE_EVENTS, _of_hardware_events(told.hardware, told.vms))
        if told.neighbours is not None:
            yield from _part(told, NEIGHBOURS, _of_neighbours(told.neighbours, told.vms))
        if self._old_metrics:
            yield from _part(told, COUNTERS, old_names.collect(told, remote, moved))
        if told.missing:
            yield _missing_answers(told.missing)

    def _with_counters(self, told: Answers) -> tuple[Answers, Remote, Mapping[str, Traffic]]:
        """The answers with counters that do not go back; remote memory traffic, and what the default group moved."""
        if told.telemetry is None:
            return told, {}, {}
        try:
            moved = self._default_group.update(told.telemetry["host"]["caches"], told.telemetry["vms"])
            vms = dict(self._left.update(told.telemetry["vms"]))
            return replace(told, telemetry={**told.telemetry, "vms": vms}), self._remote.update(vms), moved
        except NO_METRICS as error:
            _leave_out(told, COUNTERS, error)
            return replace(told, telemetry=None), {}, {}

    def _counted(self, told: Answers, remote: Remote, moved: Mapping[str, Traffic]) -> Iterator[Metric]:
        yield from _missing(told)
        yield from _ages(told)
        if told.telemetry is not None:
            yield from _of_vms(told, remote, self._labels)
            yield from _of_host(told.telemetry, moved)
            groups = told.telemetry["host"].get("groups", {})
            yield from _of_groups(groups, self._rising)
            yield from _of_groups_energy(groups, self._energy)

    def _listed(self, told: Answers, caches: Mapping[str, contract.Cache]) -> Iterator[Metric]:
        """What only the listing of the VMs and the caches says; the very same metrics for the very same listing.

        :param caches: those of L3, by their ids.
        """
        listing = told.vms, told.caches
        known = self._known_listing
        if known is None or any(before is not now for before, now in zip(known[0], listing, strict=True)):
            families = [*_infos(told.vms), *_of_promises(told.vms), *_of_tasks(told.vms, self._labels)]
            families += _of_grants(told.vms, caches, self._labels)
            if self._old_metrics:
                families.append(old_names.states(told.vms))
            known = self._known_listing = listing, families
        yield from known[1]


def _part(told: Answers, part: str, families: Iterable[Metric]) -> Iterator[Metric]:
    """The metrics of one answer, up to the first that can't be made of it.

    :param part: one of :data:`vmqos.gateway.metrics.agent_answers.PARTS`.
    """
    try:
        yield from families
    except NO_METRICS as error:
        _leave_out(told, part, error)


def _leave_out(told: Answers, part: str, error: Exception) -> None:
    told.missing[part] = f"no metrics can be made of the answer: {type(error).__name__}: {error}"


def _missing_answers(parts: Iterable[str]) -> Metric:
    family = Gauge(
        "vmqos_agent_answer_missing",
        "1 for each of the agent's answers that is left out, all or in part: an error, no sense, or too late.",
        labels=("part",),
    )
    for part in parts:
        family.add_metric([part], 1)
    return family


def _of_agent(health: contract.Health, moments: _Moments) -> Iterator[Metric]:
    resctrl, libvirt, passes = health["resctrl"], health["libvirt"], health["pass_seconds"]
    can_read = bool(resctrl["mounted"]) and not resctrl["error"]
    answers = libvirt["connected"] and libvirt["unanswered"] is None
    yield _agent_up(True)
    yield InfoMetricFamily("vmqos_agent", "The agent's version.", {"version": health["version"]})
    yield GaugeMetricFamily("vmqos_resctrl_up", "Whether resctrl could be read in the last pass.", can_read)
    yield GaugeMetricFamily("vmqos_libvirt_up", "Whether libvirt is connected and answers.", answers)
    # An earlier agent does not tell it.
    watched = libvirt.get("starts_watched")
    if watched is not None:
        yield GaugeMetricFamily("vmqos_starts_watched", "Whether the starts of VMs are watched.", watched)
    histogram = HistogramMetricFamily("vmqos_reconcile_duration_seconds", "How long the passes of the loop took.")
    buckets = [*((f"{bound:g}", count) for bound, count in passes["buckets"]), ("+Inf", passes["count"])]
    histogram.add_metric([], buckets, passes["sum"])
    yield histogram
    yield CounterMetricFamily("vmqos_reconcile_errors", "Passes that failed.", health["failed_passes"])
    now = time.time()
    for part, name, text in _MOMENTS:
        age = health["ages"][part]
        # What was never done is told as if the agent had done it at its start, so that an alert finds it.
        ago = health["uptime_seconds"] if age is None else age
        yield GaugeMetricFamily(name, text, moments.same(part, now - ago))
    unserved = len(health["unserved"])
    yield GaugeMetricFamily("vmqos_vms_unserved", "VMs that libvirt lists and the agent does not serve.", unserved)


def _agent_up(answers: bool) -> Metric:
    return GaugeMetricFamily("vmqos_agent_up", "Whether the agent answers the gateway.", answers)


class WithoutAgent(Collector):
    """What there is to tell of a host whose agent does not answer.

    :param openstack: what is known of OpenStack's services.
    """

    def __init__(self, openstack: OpenStackHealth) -> None:
        self._openstack = openstack

    def describe(self) -> Iterable[Metric]:
        """See :class:`HostCollector`."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield _agent_up(False)
        yield from _of_placement(self._openstack.placement())
        yield from _of_nova(self._openstack.nova())
        yield from _of_notifications(self._openstack.notifications())


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
    yield CounterMetricFamily(
        "vmqos_placement_failures", "How often OpenStack could not be told of this host.", failures
    )
    if told["told_at"] is not None:
        text = "When OpenStack was last told something of this host."
        yield GaugeMetricFamily("vmqos_placement_told_timestamp_seconds", text, told["told_at"])
    inventories = told["inventories"].items()
    yield _by(
        "vmqos_placement_inventory",
        "How much of a resource class OpenStack was told last.",
        "resource_class",
        inventories,
    )


def _of_nova(nova: contract.NovaHealth | None) -> Iterator[Metric]:
    if nova is None:
        return
    yield GaugeMetricFamily("vmqos_nova_up", "Whether Nova tells the flavors it is asked for.", not nova["error"])
    yield GaugeMetricFamily("vmqos_flavors_unknown", "VMs whose flavor Nova is to tell.", nova["waiting"])


def _of_notifications(told: contract.NotificationsHealth | None) -> Iterator[Metric]:
    if told is None:
        return
    prefix = "vmqos_gateway_notifications"
    yield GaugeMetricFamily(f"{prefix}_up", "Whether the last event could be sent.", not told["error"])
    yield CounterMetricFamily(f"{prefix}_sent", "Notifications that were sent.", told["sent"])
    yield CounterMetricFamily(f"{prefix}_failed", "Attempts to send a notification that failed.", told["failures"])
    yield CounterMetricFamily(f"{prefix}_lost", "Events that were never sent.", told["lost"])
    yield GaugeMetricFamily(f"{prefix}_waiting", "Events that are still to be sent.", told["waiting"])
    if told["sent_at"] is not None:
        text = "When a notification was last sent."
        yield GaugeMetricFamily(f"{prefix}_last_success_timestamp_seconds", text, told["sent_at"])


def _of_caches(caches: Mapping[str, contract.Cache]) -> Iterator[Metric]:
    ways = ((id, cache["ways"]) for id, cache in caches.items())
    yield _by("vmqos_cache_ways", "Ways of an L3 cache.", "cache", ways)
    free = ((id, cache["free_ways"]) for id, cache in caches.items())
    yield _by("vmqos_cache_free_ways", "Ways of an L3 cache that can still be promised exclusively.", "cache", free)
    run = ((id, cache["largest_free_run"]) for id, cache in caches.items())
    yield _by("vmqos_cache_largest_free_run_ways", "The most ways of an L3 cache one mask can still get.", "cache", run)
    size = ((id, cache["size_bytes"]) for id, cache in caches.items())
    yield _by("vmqos_cache_size_bytes", "Size of an L3 cache.", "cache", size)


def _infos(vms: Iterable[contract.Vm]) -> Iterator[Metric]:
    labels = ("uuid", *old_names.LABELS, "policy", "group")
    infos = Gauge("vmqos_vm_info", "1, with what a VM is called and which group it is in.", labels=labels)
    for vm in vms:
        infos.add_metric([vm["uuid"], *old_names.values(vm), vm["policy"] or "", vm["group"]], 1)
    yield infos


def _of_promises(vms: Iterable[contract.Vm]) -> Iterator[Metric]:
    states = Gauge(
        "vmqos_vm_promise_state", "1 for the state that a VM's promise is in, 0 for others.", labels=("uuid", "state")
    )
    reasons = Gauge("vmqos_vm_promise_reason", "1 for the reason why a promise is not kept.", labels=("uuid", "reason"))
    kept = Gauge("vmqos_vm_promise_kept", "Whether a VM has what it was promised.", labels=("uuid",))
    changes = Counter(
        "vmqos_vm_promise_state_changes", "How often the state of a VM's promise changed.", labels=("uuid",)
    )
    for vm in vms:
        uuid = vm["uuid"]
        for state in _STATES:
            states.add_metric([uuid, state], vm["state"] == state)
        if vm["reason_code"]:
            reasons.add_metric([uuid, vm["reason_code"]], 1)
        if vm["state"] != _NOTHING_PROMISED:
            kept.add_metric([uuid], vm["state"] == "kept")
        # An earlier agent does not tell this.
        _add(changes, [uuid], vm.get("state_changes"))
    yield from (states, reasons, kept, changes)


def _of_promise_times(told: Answers) -> Iterator[Metric]:
    """For how long promises were made and kept, up to now: that goes on while nothing changes."""
    promised = Counter("vmqos_vm_promise_seconds", "How long something has been promised to a VM.", labels=("uuid",))
    kept_for = Counter("vmqos_vm_promise_kept_seconds", "How long what is promised to a VM was kept.", labels=("uuid",))
    for vm in told.vms:
        # An earlier agent does not tell these.
        seconds, kept_seconds = vm.get("promised_seconds"), vm.get("kept_seconds")
        if seconds is not None:
            promised.add_metric([vm["uuid"]], seconds + told.listing_age * (vm["state"] != _NOTHING_PROMISED))
        if kept_seconds is not None:
            kept_for.add_metric([vm["uuid"]], kept_seconds + told.listing_age * (vm["state"] == "kept"))
    yield from (promised, kept_for)


def _of_tasks(vms: Iterable[contract.Vm], labels: _VmLabels) -> Iterator[Metric]:
    tasks = Gauge("vmqos_vm_tasks", "Tasks of a VM at the last look at them.", labels=("uuid",))
    astray = Gauge(
        "vmqos_vm_tasks_out_of_place", "Tasks of a VM that were not in its group at the last look.", labels=("uuid",)
    )
    outside = Counter(
        "vmqos_vm_outside_cpu_seconds",
        "CPU time that a VM's tasks used outside of the group with its ways: until all were there, and since.",
        labels=(*labels.names, "when"),
    )
    for vm in vms:
        if vm["tasks"]:
            # Without a task it was not looked at: the agent leaves it alone, or resctrl is gone.
            tasks.add_metric([vm["uuid"]], vm["tasks"])
            astray.add_metric([vm["uuid"]], vm["tasks"] - vm["tasks_in_place"])
        for when, seconds in (("start", vm.get("outside_at_start")), ("later", vm.get("outside_later"))):
            _add(outside, [*labels.of(vm), when], seconds)
    yield from (tasks, astray, outside)


def _of_grants(vms: Iterable[contract.Vm], caches: Mapping[str, contract.Cache], labels: _VmLabels) -> Iterator[Metric]:
    names = (*labels.names, "cache")
    ways = Gauge(
        "vmqos_vm_cache_ways", "Ways of an L3 cache that a VM has by its promise, or by a trial.", labels=names
    )
    size = Gauge(
        "vmqos_vm_cache_allocated_bytes",
        "Size of the ways of an L3 cache that a VM has by its promise, or by a trial.",
        labels=names,
    )
    l2 = Gauge("vmqos_vm_l2_cache_ways", "L2 ways that a VM has by its promise.", labels=names)
    ratio = Gauge(
        "vmqos_vm_memory_bandwidth_limit_ratio",
        "Share of the memory bandwidth that a VM is limited to, where the hardware throttles by per cent.",
        labels=names,
    )
    rate = Gauge(
        "vmqos_vm_memory_bandwidth_limit_bytes_per_second",
        "Memory bandwidth that a VM is limited to, where resctrl takes MB/s or 1/8 GB/s.",
        labels=names,
    )
    for vm in vms:
        who, unit = labels.of(vm), vm["bandwidth_unit"]
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
    yield from (ways, size, l2, ratio, rate)


def _missing(told: Answers) -> Iterator[Metric]:
    missing = Gauge(
        "vmqos_vm_telemetry_missing", "1 for each event of a VM without a value.", labels=("uuid", "event", "reason")
    )
    for vm in told.vms:
        for event, reason in told.why_missing(vm["uuid"]).items():
            missing.add_metric([vm["uuid"], event, reason], 1)
    yield missing


def _ages(told: Answers) -> Iterator[Metric]:
    """How old what was last measured is: of VMs that wait for their turn to have hardware counters alone."""
    ages = Gauge(
        "vmqos_vm_reading_age_seconds",
        "Seconds since the last bandwidth was measured of a VM that waits for its turn to have hardware counters.",
        labels=("uuid",),
    )
    for uuid, vm in told.counted.items():
        if "measured" in vm:
            ages.add_metric([uuid], vm["measured"]["age_seconds"])
    if ages.rows:
        yield ages


def _of_vms(told: Answers, remote: Remote, labels: _VmLabels) -> Iterator[Metric]:
    names, counted = labels.names, told.counted
    occupancy = Gauge("vmqos_vm_llc_occupancy_bytes", "Bytes of an L3 a VM holds.", labels=(*names, "cache"))
    traffic = Counter(
        "vmqos_vm_memory_traffic_bytes",
        "Bytes moved between an L3 cache and any memory for a VM.",
        labels=("uuid", "cache"),
    )
    parts = Counter(
        "vmqos_vm_memory_traffic_by_scope_bytes",
        "Bytes moved between an L3 cache and memory for a VM; local: of the same socket, remote: of others.",
        labels=("uuid", "cache", "scope"),
    )
    energy = Counter(
        "vmqos_vm_core_energy_joules", "Energy that a VM's tasks used in CPU cores.", labels=(*names, "package")
    )
    for vm in told.vms:
        uuid, who = vm["uuid"], labels.of(vm)
        if uuid not in counted:
            continue
        for cache, counts in counted[uuid]["caches"].items():
            _add(occupancy, [*who, cache], counts[LLC_OCCUPANCY])
            _add(traffic, [uuid, cache], counts[MBM_TOTAL])
            _add(parts, [uuid, cache, "local"], counts[MBM_LOCAL])
            _add(parts, [uuid, cache, "remote"], remote.get((uuid, cache)))
        for package, counts in counted[uuid]["packages"].items():
            _add(energy, [*who, package], counts.get("core_energy"))
    yield from (occupancy, traffic, parts)
    if energy.rows:
        yield energy
    yield from _of_packages(counted)
    yield from _of_nodes(counted)


def _of_packages(counted: Mapping[str, contract.VmTelemetry]) -> Iterator[Metric]:
    """What packages count beside energy, where they do: each event is a metric of its own."""
    for event, (name, text) in _OF_PACKAGES.items():
        family = Counter(name, text, labels=("uuid", "package"))
        for uuid, vm in counted.items():
            for package, counts in vm["packages"].items():
                _add(family, [uuid, package], counts.get(event))
        if family.rows:
            yield family


def _of_nodes(counted: Mapping[str, contract.VmTelemetry]) -> Iterator[Metric]:
    """The parts of a cache's numbers where sockets are divided: in metrics of their own, beside the sums."""
    labels = ("uuid", "cache", "node")
    occupancy = Gauge(
        "vmqos_vm_node_llc_occupancy_bytes", "Bytes of a sub-NUMA node's part of an L3 a VM holds.", labels=labels
    )
    traffic = Counter(
        "vmqos_vm_node_memory_traffic_bytes",
        "Bytes moved between a sub-NUMA node's part of an L3 and any memory for a VM.",
        labels=labels,
    )
    local = Counter(
        "vmqos_vm_node_local_memory_traffic_bytes",
        "Bytes moved between a sub-NUMA node's part of an L3 and memory for a VM, as far as it counts as the node's.",
        labels=labels,
    )
    for uuid, vm in counted.items():
        for cache, nodes in vm.get("nodes", {}).items():
            for node, counts in nodes.items():
                _add(occupancy, [uuid, cache, node], counts[LLC_OCCUPANCY])
                _add(traffic, [uuid, cache, node], counts[MBM_TOTAL])
                _add(local, [uuid, cache, node], counts[MBM_LOCAL])
    yield from (family for family in (occupancy, traffic, local) if family.rows)


def _of_neighbours(found: contract.Neighbours, vms: Iterable[contract.Vm]) -> Iterator[Metric]:
    """What is judged of the VMs that run. Few VMs are slowed by a neighbour, so a pair is a series of its own."""
    slower = Gauge(
        "vmqos_vm_neighbour_slowdown_ratio",
        "How many times as long a VM's work takes because of a neighbour.",
        labels=("uuid", "culprit", "cause"),
    )
    use = Gauge("vmqos_vm_cache_use", "1 for what the cache is to a VM.", labels=("uuid", "use"))
    running = {vm["uuid"] for vm in vms}
    for pair in found["pairs"]:
        if pair["until"] is None and {pair["victim"], pair["culprit"]} <= running:
            slower.add_metric([pair["victim"], pair["culprit"], pair["cause"]], pair["slower"])
    for vm in found["vms"]:
        if vm["uuid"] in running:
            use.add_metric([vm["uuid"], vm["use"]], 1)
    yield from (slower, use)


def _of_hardware_events(hardware: contract.HardwareEvents, vms: Iterable[contract.Vm]) -> Iterator[Metric]:
    up = not hardware["unavailable"]
    yield GaugeMetricFamily("vmqos_hardware_events_up", "Whether this host counts what VMs execute.", up)
    if not up:
        return
    counts = {event: Counter(f"vmqos_vm_{event}", text, labels=("uuid", "source")) for event, text in _EXECUTED.items()}
    running = Gauge(
        "vmqos_vm_hardware_events_running_ratio",
        "Share of the time that a VM's tasks ran for which they had the processor's counters; below 1, the counts are "
        "estimates.",
        labels=("uuid",),
    )
    missing = Gauge(
        "vmqos_vm_hardware_events_missing", "1 for a VM that perf does not count.", labels=("uuid", "reason")
    )
    for uuid in (vm["uuid"] for vm in vms):
        # A VM that came since the last look is counted at the next.
        found = hardware["vms"].get(uuid)
        if found is None:
            continue
        for event, family in counts.items():
            _add(family, [uuid, found.get("source") or "perf"], found["counts"].get(event))
        _add(running, [uuid], found["share"])
        if found["reason_code"]:
            missing.add_metric([uuid, found["reason_code"]], 1)
    yield from (*counts.values(), running, missing)


def _of_host(telemetry: contract.Telemetry, moved: Mapping[str, Traffic]) -> Iterator[Metric]:
    taken = telemetry["sweep_seconds"]
    yield GaugeMetricFamily("vmqos_sweep_duration_seconds", "How long it took to read all counters.", taken)
    occupancy = Gauge(
        "vmqos_default_group_llc_occupancy_bytes",
        "Bytes of an L3 cache that the default group holds, the VMs in it included.",
        labels=("cache",),
    )
    traffic = Counter(
        "vmqos_default_group_memory_traffic_bytes",
        "Bytes moved between an L3 cache and any memory for the default group, the VMs in it included.",
        labels=("cache",),
    )
    parts = Counter(
        "vmqos_default_group_memory_traffic_by_scope_bytes",
        "Bytes moved between an L3 cache and memory for the default group; local: of the same socket, remote: others.",
        labels=("cache", "scope"),
    )
    for cache, counts in telemetry["host"]["caches"].items():
        _add(occupancy, [cache], counts[LLC_OCCUPANCY])
        _add(traffic, [cache], moved[cache].total)
        _add(parts, [cache, "local"], moved[cache].local)
        _add(parts, [cache, "remote"], moved[cache].remote)
    yield from (occupancy, traffic, parts)


def _of_groups(groups: Mapping[str, contract.GroupTelemetry], rising: RisingCounters) -> Iterator[Metric]:
    """The control groups that are no VM's, without the VMs in them: with these they are all that a cache moves."""
    labels = ("group", "owner", "cache")
    occupancy = Gauge(
        "vmqos_group_llc_occupancy_bytes",
        "Bytes of an L3 cache that a control group holds, without the VMs that are monitored in it.",
        labels=labels,
    )
    traffic = Counter(
        "vmqos_group_memory_traffic_bytes",
        "Bytes moved between an L3 cache and any memory for a control group, without the VMs that are monitored in it.",
        labels=labels,
    )
    moved: dict[Key, float | None] = {}
    # Whoever may make groups names them. What is no UTF-8, or the same twice, would leave all of the answer unsaid.
    for shown, group in {neutralise(name): group for name, group in groups.items()}.items():
        who = shown, group["owner"]
        for cache, counts in group["caches"].items():
            _add(occupancy, [*who, cache], counts[LLC_OCCUPANCY])
            moved[group["generation"], *who, cache] = counts[MBM_TOTAL]
    for (_, *values), bytes_so_far in rising.update(moved).items():
        traffic.add_metric(values, bytes_so_far)
    yield from (family for family in (occupancy, traffic) if family.rows)


def _of_groups_energy(groups: Mapping[str, contract.GroupTelemetry], energy: RisingCounters) -> Iterator[Metric]:
    """What control groups that are no VM's use, where packages count: with the VMs it is all that the cores use."""
    family = Counter(
        "vmqos_group_core_energy_joules",
        "Energy that a control group's tasks used in CPU cores, without the VMs that are monitored in it.",
        labels=("group", "owner", "package"),
    )
    used: dict[Key, float | None] = {}
    for shown, group in {neutralise(name): group for name, group in groups.items()}.items():
        # An earlier agent does not tell this.
        for package, counts in group.get("packages", {}).items():
            used[group["generation"], shown, group["owner"], package] = counts.get("core_energy")
    for (_, *values), joules in energy.update(used).items():
        family.add_metric(values, joules)
    if family.rows:
        yield family


def _by(name: str, text: str, label: str, values: Iterable[tuple[str, float | None]]) -> Metric:
    family = Gauge(name, text, labels=(label,))
    for labelled, value in values:
        _add(family, [labelled], value)
    return family


def _add(family: Rows, labels: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)


def _count(mask: str) -> int:
    """How many ways a mask has."""
    return int(mask, 16).bit_count()
