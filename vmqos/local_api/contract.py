# SPDX-License-Identifier: Apache-2.0
"""The JSON that the agent's local API answers with, and the parameters of questions: what agent and clients agree on.

A client keeps fields that a later agent adds. Fields that are not required here may be missing in the answers of an
earlier agent; this one has them all.
"""

# No "from __future__ import annotations" here: it would hide NotRequired from __required_keys__.
from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict
from urllib.parse import parse_qs

HEALTH = "/v1/health"
"""Answered however many other requests wait."""

MAY_FILL_FEWER = "may_fill_fewer"
"""What a client says ``true`` to in a request for ways for a VM that is promised none.

Such a VM fills all ways that no VM has alone. With ways of its own it may have fewer to fill, and be slower meanwhile,
so it is refused without this. It does nothing to a VM that is promised ways: that one never has fewer.
"""

CONFINE = "confine"
"""What a client says ``true`` to in a request for ways that are to keep a VM from those that others fill.

Such a trial is as short as one of a limit, and has no further steps. A VM that is promised no ways may have fewer to
fill meanwhile; one that has ways of its own is refused, for it fills no others.
"""

TAKEN_BY = {
    "/v1/plan": ("spec",),
    "/v1/telemetry": ("newest",),
    "/v1/telemetry/columns": ("basis",),
    "/v1/telemetry/history": ("seconds", "resolution", "vm", "series"),
    "/v1/neighbours/samples": ("since",),
    "/v1/events": ("after", "epoch", "wait"),
}
"""The parameters that a question by ``GET`` may have, by its path; another one may have none."""


def unknown_parameter(query: str, known: Sequence[str]) -> str:
    """What is wrong with a query: it has a parameter that would be ignored; empty where all are known.

    :param query: what stands behind the question mark.
    :param known: the parameters that are taken there.
    """
    for name in parse_qs(query, keep_blank_values=True):
        if name not in known:
            return f"there is no parameter {name[:40]!r} here, but {', '.join(known) if known else 'none at all'}"
    return ""


State = Literal["kept", "pending", "degraded", "none"]


class Task(TypedDict):
    """One thread of a VM; ``group`` is the control group it is in: empty for the default one, ``None`` for none."""

    tid: int
    pid: int
    comm: str
    group: str | None
    in_place: bool


class Given(TypedDict):
    """The ways and the memory bandwidth of one VM, by cache id; masks are hexadecimal."""

    masks: dict[str, str]
    code_masks: NotRequired[dict[str, str]]
    data_masks: NotRequired[dict[str, str]]
    l2_masks: NotRequired[dict[str, str]]
    bandwidth: NotRequired[dict[str, int]]
    bandwidth_unit: NotRequired[str | None]


class Vm(Given):
    """A running VM and how its promise stands.

    ``since`` is when it came into its state, or when this agent first saw it in it (seconds since 1970). Since this
    agent first saw the VM, its state changed ``state_changes`` times, something was promised for ``promised_seconds``,
    and it was kept for ``kept_seconds``.
    ``outside_at_start`` alone is ``None`` where an agent that ran before this one had moved some of its tasks.
    """

    uuid: str
    name: str
    instance_name: str
    flavor: str
    project: str
    state: State
    reason: str
    reason_code: NotRequired[str]
    policy: str | None
    ways_requested: int | None
    code_ways_requested: NotRequired[int | None]
    data_ways_requested: NotRequired[int | None]
    vcpus_requested: NotRequired[str | None]
    vcpus: NotRequired[str | None]
    l2_ways_requested: NotRequired[int | None]
    bandwidth_requested: NotRequired[int | None]
    bandwidth_requested_unit: NotRequired[str | None]
    group: str
    monitoring_group: str | None
    rest_monitoring_group: NotRequired[str | None]
    unmonitored_reason: str
    tasks: int
    tasks_in_place: int
    pid: int
    caches: list[int]
    outside_at_start: NotRequired[float | None]
    outside_later: NotRequired[float | None]
    since: float
    state_changes: NotRequired[int | None]
    promised_seconds: NotRequired[float | None]
    kept_seconds: NotRequired[float | None]
    last_error: str | None
    retry_in: float | None


class DetailedVm(Vm):
    """A VM with its threads, as asked for one by one."""

    task_list: list[Task]


class Vms(TypedDict):
    """Every running VM; the age is that of the older one of the last look and the last pass, in seconds."""

    vms: list[Vm]
    age_seconds: NotRequired[float | None]


class CacheGroup(TypedDict):
    """A control group's share of one cache; ``vm`` and ``vm_name`` are set where ``owner`` is ``vm``."""

    name: str
    owner: Literal["default", "vm", "class", "foreign"]
    mask: str
    code_mask: NotRequired[str | None]
    data_mask: NotRequired[str | None]
    bandwidth: NotRequired[int | None]
    mode: str
    vm: str | None
    vm_name: str | None


class Cache(TypedDict):
    """One L3 or L2 cache: its ways, its CPUs, and who may fill which ways; sizes in bytes, masks hexadecimal."""

    resource: str
    id: int
    cbm_mask: str
    ways: int
    way_bytes: int | None
    size_bytes: int | None
    shareable_bits: str
    reserved: NotRequired[str]
    cpus: str
    free_ways: int
    largest_free_run: int
    bandwidth_unit: NotRequired[str | None]
    groups: list[CacheGroup]


class Caches(TypedDict):
    """Every cache that can be partitioned; the age is that of the last pass, in seconds."""

    caches: list[Cache]
    l2_caches: NotRequired[list[Cache]]
    age_seconds: NotRequired[float | None]


class MonitoringGroup(TypedDict):
    """A monitoring group; ``rmid`` is told where resctrl is mounted with ``debug``."""

    name: str
    tasks: int | None
    cpus: str
    rmid: int | None


class ControlGroup(MonitoringGroup):
    """A control group; the values of its schemata are text, its VMs UUIDs, by its name and its monitoring groups'."""

    owner: Literal["default", "vm", "class", "foreign"]
    mode: str
    schemata: dict[str, dict[str, str]]
    closid: int | None
    monitoring_groups: list[MonitoringGroup]
    vms: list[str]


class Groups(TypedDict):
    """Every control group, the default one first."""

    groups: list[ControlGroup]


class Verdict(Given):
    """How a promise would stand."""

    state: State
    reason: str
    reason_code: NotRequired[str]
    group: str


class Plan(TypedDict):
    """What a VM with the given extra specs would get: the steps, and the VMs whose ways would move."""

    verdict: Verdict
    steps: list[str]
    moves: list[str]


Counts = dict[str, float | None]
"""A number by the name of its event; ``None`` where there is no number."""


class Measured(TypedDict):
    """A bandwidth that is not of now: bytes a second, as in ``rates``, and how long ago it was measured."""

    rates: Counts
    age_seconds: float


class VmTelemetry(TypedDict):
    """One VM's counters: bytes by event, bytes a second, each ``None`` where there is no number, and then why.

    ``generation`` changes when the counters begin anew. ``nodes`` has the parts of each cache's numbers, by cache id
    and sub-NUMA node. What packages count (``packages``, and ``package_rates``, the growth a second of all packages
    together) began at 0 at ``packages_since`` (seconds since 1970). ``measured`` is there while the VM waits for its
    turn to have hardware counters, or has had them for too short a time: its last bandwidth.
    """

    group: NotRequired[str]
    generation: NotRequired[str]
    ways: dict[str, int]
    policy: str | None
    allocated_bytes: int | None
    totals: Counts
    missing: dict[str, str]
    rates: Counts
    rates_missing: dict[str, str]
    caches: NotRequired[dict[str, Counts]]
    nodes: NotRequired[dict[str, dict[str, Counts]]]
    packages: NotRequired[dict[str, Counts]]
    package_rates: NotRequired[Counts]
    packages_since: NotRequired[float | None]
    measured: NotRequired[Measured]


class GroupTelemetry(TypedDict):
    """What the tasks of a control group count, by cache id and by package, that are no monitored VM's.

    ``generation`` changes where another group has its name. In ``packages`` is what earlier groups with the same RMID
    had counted, too.
    """

    owner: Literal["default", "class", "foreign"]
    generation: str
    caches: dict[str, Counts]
    packages: NotRequired[dict[str, Counts]]


class HostTelemetry(TypedDict):
    """The ways and bytes of each L3, by cache id, what the default group counts, and how many IDs are taken.

    Its ``packages`` are as the kernel tells them: from the start of the machine on. ``groups`` has the control groups
    that are no VM's by their names, empty for the default one.
    """

    ways: dict[str, int]
    cache_bytes: dict[str, int]
    caches: NotRequired[dict[str, Counts]]
    packages: NotRequired[dict[str, Counts]]
    totals: NotRequired[Counts]
    groups: NotRequired[dict[str, GroupTelemetry]]
    closids: NotRequired[int]
    closids_used: NotRequired[int]
    rmids: NotRequired[int]
    rmids_used: NotRequired[int]
    events: NotRequired[list[str]]


class Telemetry(TypedDict):
    """One look at all counters, by VM UUID; seconds since 1970, and seconds between two looks."""

    taken_at: float
    interval: float
    sweep_seconds: NotRequired[float]
    age_seconds: NotRequired[float | None]
    vms: dict[str, VmTelemetry]
    host: HostTelemetry


CountsFrom = Literal["perf", "aet", ""]
"""Who counted: the kernel's perf events, or the processor's packages (Intel's AET) in resctrl; empty: neither."""


class VmHardwareEvents(TypedDict):
    """What one VM's tasks executed since the moment ``since`` (seconds since 1970), by event, and the same a second.

    ``rates`` are null after the first look. ``share``: of the time for which the tasks ran between the last two looks,
    how much they had the processor's counters; below 1, the figures are estimates. A VM that perf does not count has
    the ``reason``, and no counts but ``cycles`` where packages count these.
    """

    since: float | None
    counts: Counts
    rates: Counts
    share: float | None
    source: NotRequired[CountsFrom]
    reason: str
    reason_code: str


class HardwareEvents(TypedDict):
    """What the VMs' tasks execute, by UUID; ``unavailable`` says why no VM is counted, and is empty where they are.

    ``unavailable_code`` is the word for why perf counts no VM; it is there, too, where packages count the VMs.
    ``taken_at`` and ``age_seconds`` are null before the first look.
    """

    taken_at: float | None
    interval: float
    age_seconds: float | None
    unavailable: str
    unavailable_code: NotRequired[str]
    vms: dict[str, VmHardwareEvents]


class VmColumns(TypedDict):
    """The counters of VMs, in the order of ``same``: a number for each of them in each list.

    ``held`` has the bytes held, by cache id. The others are the bandwidths, in whole bytes a second.
    """

    held: dict[str, Sequence[int]]
    total: Sequence[int]
    local: Sequence[int]
    remote: Sequence[int]


class CounterColumns(TypedDict):
    """One look at all counters, as in :class:`Telemetry`; ``apart`` has the VMs that are in no column."""

    taken_at: float
    interval: float
    sweep_seconds: float
    age_seconds: float | None
    host: HostTelemetry
    columns: VmColumns
    apart: dict[str, VmTelemetry]


class HardwareEventColumns(TypedDict):
    """What the VMs' tasks execute, as in :class:`HardwareEvents`; ``apart`` has the VMs that are in no column.

    ``columns`` has the events a second, in whole numbers by the name of the event, and ``share``: a number for each VM
    in each list, in the order of ``same``.
    """

    taken_at: float | None
    interval: float
    age_seconds: float | None
    unavailable: str
    unavailable_code: str
    columns: dict[str, Sequence[float | None]]
    apart: dict[str, VmHardwareEvents]


class SameCounters(TypedDict):
    """What stays the same of one VM's counters, as in :class:`VmTelemetry`."""

    group: str
    generation: str
    policy: str | None
    ways: dict[str, int]
    allocated_bytes: int | None
    missing: dict[str, str]


class Same(TypedDict):
    """What stays the same from look to look: of the counters by UUID; and the UUIDs whose hardware events are counted.

    The columns are in this order.
    """

    counters: dict[str, SameCounters]
    hardware_events: Sequence[str]


class Columns(TypedDict):
    """The newest looks at the counters and the hardware events, as columns.

    Where the counters can't be read, ``error`` says why. ``same`` is there unless the client named this very ``basis``.
    """

    basis: str
    counters: NotRequired[CounterColumns]
    error: NotRequired[str]
    hardware_events: NotRequired[HardwareEventColumns]
    same: NotRequired[Same]


class History(TypedDict):
    """What is remembered of the counters: for each VM as many numbers as there are times (seconds since 1970)."""

    interval: float
    times: Sequence[float]
    vms: Mapping[str, Mapping[str, Sequence[float | None]]]


class Minutes(TypedDict):
    """One series of one VM, minute by minute: ``None`` where there is no number."""

    least: Sequence[float | None]
    mean: Sequence[float | None]
    greatest: Sequence[float | None]


class HistoryOfMinutes(TypedDict):
    """What is remembered of the last day: for each VM and series as many numbers as there are times.

    A time is when a minute began (seconds since 1970, a multiple of ``resolution``, which is 60). The minute that has
    not ended yet is not there, nor one in which the agent did not run. A VM that is gone is there for as long as it is
    remembered.
    """

    resolution: int
    times: Sequence[int]
    vms: Mapping[str, Mapping[str, Minutes]]


class Event(TypedDict):
    """Something that changed, with its number and when the agent saw it (seconds since 1970).

    ``promise``: the state of a VM's promise, its reason or its group; ``before`` is empty for a VM that was not there.
    ``ended``: a VM that is gone. ``host``: ``name`` is ``resctrl``, ``libvirt`` or ``passes``; ``uuid``, ``project`` (a
    UUID) and ``flavor`` (a name) are empty, as they are where Nova does not say. ``neighbour``: the VM ``culprit`` (a
    UUID) slows this one, or does so no more; ``reason_code`` is by what.
    """

    number: int
    time: float
    kind: Literal["promise", "ended", "host", "neighbour"]
    uuid: str
    name: str
    project: NotRequired[str]
    flavor: NotRequired[str]
    state: str
    before: str
    reason: str
    reason_code: str
    culprit: NotRequired[str]


class Events(TypedDict):
    """Events, the oldest first, and the numbers of the first and the last one that the agent remembers.

    Another ``epoch`` is another run of the agent, whose events are numbered anew.
    """

    epoch: str
    first: int
    last: int
    events: list[Event]


class ResctrlHealth(TypedDict):
    """The agent's view of resctrl: ``groups`` counts the control groups by the kind of their owner.

    ``closids`` is how many control groups there can be, ``rmids`` how many groups of both kinds can be monitored; both
    are 0 while resctrl can't be read.
    """

    path: str
    mounted: bool | None
    error: str | None
    simulated: bool
    groups: NotRequired[dict[str, int]]
    closids: NotRequired[int]
    closids_used: NotRequired[int]
    rmids: NotRequired[int]
    rmids_used: NotRequired[int]


class UnansweredCall(TypedDict):
    """What libvirt does not answer, and since how many seconds."""

    call: str
    seconds: float


class LibvirtHealth(TypedDict):
    """The agent's view of libvirt.

    ``starts_watched``: whether libvirt's run directory is watched, so that VMs get their ways before their first
    instruction; ``None`` where the configuration says not to. ``watch_error`` is why it can't be watched.
    """

    uri: str
    connected: bool
    error: str | None
    unanswered: NotRequired[UnansweredCall | None]
    starts_watched: NotRequired[bool | None]
    watch_error: NotRequired[str | None]


class PlacementHealth(TypedDict):
    """What OpenStack was told of this host.

    ``changed_by_other`` says what another client changed of it lately, and what that may mean; ``None`` where none did.
    An earlier gateway does not tell it.
    """

    where: str
    error: str | None
    told_at: float | None
    inventories: dict[str, int]
    traits: list[str]
    changes: int
    failures: int
    changed_by_other: NotRequired[str | None]


class NovaHealth(TypedDict):
    """How asking Nova for flavors stands."""

    error: str | None
    waiting: int


class NotificationsHealth(TypedDict):
    """How sending events as notifications stands: ``where`` is the broker, without a password.

    ``sent``, ``failures`` and ``lost`` count since the gateway's start: notifications, attempts that failed, and events
    that were never sent. ``waiting`` is how many events the agent had at the last look that are still to be sent.
    """

    where: str
    error: str | None
    sent_at: float | None
    sent: int
    failures: int
    waiting: int
    lost: int


class Durations(TypedDict):
    """A histogram of seconds: each bucket is an upper bound and how many were at most that long, in ascending order."""

    buckets: Sequence[tuple[float, int]]
    count: int
    sum: float


class Trial(TypedDict):
    """A trial: for some time the VM ``uuid`` is limited to ``limit``, in ``unit``, or has ``limit`` ways for itself.

    The unit is ``%`` or ``MB/s`` of memory bandwidth, or ``ways``, which are no fewer than its flavor promises, for
    itself or in a class. A VM that is promised none has some only if the client says :data:`MAY_FILL_FEWER` or
    :data:`CONFINE`.
    ``in_force``: whether all of its tasks are limited by now, or have the ways. It lasts ``seconds_left`` more seconds
    at most.
    """

    uuid: str
    limit: int
    unit: str
    in_force: bool
    seconds_left: float


class RunningTrial(TypedDict):
    """The answer to a client that begins a trial, asks for it again or gives it back; ``None``: it is over.

    ``left_bytes`` is what a VM still has of the L3 caches in ways that it left for ways of its own; ``None`` where it
    has left none, or nothing counts that.
    """

    trial: Trial | None
    left_bytes: NotRequired[int | None]


class Health(TypedDict):
    """How the agent itself fares; how the VMs do is in ``vms``, counts by state.

    ``ages`` are seconds since the last complete look at the VMs (``vms``), the last pass that ended well (``pass``) and
    the last look at the counters (``counters``), ``None`` before the first; ``stale`` names those that are too great.
    ``last_error`` is why the last pass that failed did, and its age how many seconds ago that was.
    ``unserved`` has the reason why a VM that libvirt lists is not served, by UUID. ``trial`` is what is tried on a VM
    now, ``None`` where nothing is. ``revision`` is another one where ``/v1/vms``, ``/v1/caches`` and
    ``/v1/capabilities`` tell something else than ages and times to wait, and ``last_event`` where there is an event
    more. ``placement``, ``nova`` and ``notifications`` are the gateway's: only its answer has them.
    """

    status: Literal["starting", "ok", "degraded", "failing"]
    version: str
    hostname: NotRequired[str]
    pid: NotRequired[int]
    uptime_seconds: float
    ages: NotRequired[dict[str, float | None]]
    stale: NotRequired[list[str]]
    unserved: NotRequired[dict[str, str]]
    trial: NotRequired[Trial | None]
    resctrl: ResctrlHealth
    libvirt: LibvirtHealth
    placement: NotRequired[PlacementHealth | None]
    nova: NotRequired[NovaHealth | None]
    notifications: NotRequired[NotificationsHealth | None]
    passes: int
    last_pass_ms: float
    failed_passes: NotRequired[int]
    pass_seconds: NotRequired[Durations]
    last_error: str | None
    last_error_age_seconds: NotRequired[float | None]
    vms: dict[str, int]
    revision: NotRequired[str]
    last_event: NotRequired[str]


class Capacity(TypedDict):
    """What a host can promise at all, whatever VMs run on it.

    ``ways`` can be promised exclusively on every L3 at once, to however many VMs; ``longest`` and ``fewest`` are the
    most and the fewest that one VM can have. ``classes`` is how many VMs can have control groups of their own.
    ``offered`` and ``refused`` are the resource classes of the listed shared classes that VMs can join, and those for
    which no CLOSID is left; ``others`` is how many further classes there can be, ``None`` where there is no bound.
    ``held`` is the most ways that one running VM was promised. ``traits`` are what the host is able to do.
    """

    ways: int
    longest: int
    fewest: int
    classes: int
    offered: list[str]
    refused: list[str]
    others: int | None
    held: int
    traits: list[str]


class WantedFlavor(TypedDict):
    """A VM whose flavor libvirt does not tell; ``process`` says which run of the VM an answer is for."""

    uuid: str
    process: str


class OpenStack(TypedDict):
    """What the gateway tells OpenStack, and what it asks it for.

    ``hypervisor_hostname`` is ``None`` while libvirt has not told the host's name. ``capacity`` is ``None`` while
    resctrl can't be read.
    """

    hypervisor_hostname: str | None
    capacity: Capacity | None
    flavors_wanted: list[WantedFlavor]


class Taken(TypedDict):
    """The agent has taken over what was told."""

    uuid: str


WaysFor = Literal["", "code", "data"]
"""What ways are for: for code, for data, or, if it is empty, for both."""


class SizePoint(TypedDict):
    """What a VM did with so many ways.

    ``missed`` is the share of its references that missed. Where nothing counts these, it is ``None``, and
    ``traffic_part`` is its traffic with memory, as a share of that with the fewest ways. Its work took ``slower`` times
    as long as with all ways that were tried; ``None`` where that is not known.
    """

    ways: int
    missed: float | None
    traffic_part: float | None
    slower: float | None


class FoundSize(TypedDict):
    """How many ways a VM needs, and the curve that says so, which begins with those that it was tried with first.

    These are the ways that it had, unless it had none of its own.

    With ``part`` they are those for code, or for data, and what the other of the two misses all the time is in it, too.
    ``at_least``: it may need more. Without ``counted`` the number is a guess: nothing counts misses. Without ``steady``
    it is not to be trusted: the VM did other work meanwhile.
    """

    ways: int
    at_least: bool
    counted: bool
    steady: bool
    part: NotRequired[WaysFor]
    curve: list[SizePoint]


class VmSize(FoundSize):
    """What was found of the VM ``uuid`` last, and when (seconds since 1970)."""

    uuid: str
    found_at: float


class Sizes(TypedDict):
    """What is remembered of the VMs that run, one at most of each."""

    sizes: list[VmSize]


class NeighbourSuffering(TypedDict):
    """How a VM is slower than it could be, by the factor ``slower``.

    ``beside`` is what it is compared with: ``own past`` or ``flavor``. ``cause`` is ``cache``, ``memory-bandwidth`` or
    ``neither``; ``confidence`` is from 0 to 1; ``evidence`` has sentences with figures.
    """

    slower: float
    beside: str
    cause: str
    confidence: float
    evidence: list[str]


class NeighbourVm(TypedDict):
    """How a VM fares.

    ``use`` is what the cache is to it: ``fits``, ``starves``, ``fills-without-gain`` or ``unknown``; ``confidence`` and
    ``evidence`` are about that. ``advice`` is a command, empty where nothing is to be done.
    """

    uuid: str
    use: str
    confidence: float
    evidence: list[str]
    advice: str
    sufferings: list[NeighbourSuffering]


class NeighbourPair(TypedDict):
    """One VM slows another: ``culprit`` and ``victim`` are UUIDs.

    ``since`` and ``until`` are in seconds since 1970; ``until`` is ``None`` while the culprit moves as much. The
    victim's work takes ``slower`` times as long, and it lost ``taken`` bytes of the cache to the culprit. ``advice`` is
    a command for a copy of the culprit's flavor; that the culprit is resized to it ends it. It is empty where no other
    flavor does, and ``evidence`` says why.
    """

    culprit: str
    victim: str
    cause: str
    since: float
    until: float | None
    slower: float
    taken: float
    confidence: float
    evidence: list[str]
    advice: str


class Neighbours(TypedDict):
    """Who slows whom, as judged by the last ``samples``, which are ``interval`` seconds apart.

    ``time`` is that of the newest sample, ``None`` where there is none. ``counted`` says whether there are hardware
    events, and ``traffic_counted`` whether there is traffic with memory, without which no pair can be found. The pairs
    come by descending confidence.
    """

    time: float | None
    interval: float
    samples: int
    counted: bool
    traffic_counted: NotRequired[bool]
    vms: list[NeighbourVm]
    pairs: list[NeighbourPair]


class SampledCache(TypedDict):
    """An L3; ``bandwidth`` is what the memory behind it can give at most, in bytes a second, where that is known."""

    size: int
    ways: int
    bandwidth: float | None


class SampledPromise(TypedDict, total=False):
    """What a VM's flavor asks for, as far as advice depends on it; what it does not ask for is left out.

    ``percent`` and ``mbps`` are limits of memory bandwidth, the latter in MB/s.
    """

    ways: int
    code_ways: int
    data_ways: int
    is_shared: bool
    percent: int
    mbps: int


class SampledVm(TypedDict):
    """What is known of a VM beside its samples; ``masks`` are the ways that it may fill, by cache id, hexadecimal.

    An earlier agent tells no ``promise`` and no ``vcpus``: how many it has, which is left out where it is not known.
    """

    flavor: str
    masks: dict[str, str]
    promise: NotRequired[SampledPromise]
    vcpus: NotRequired[int]


class SampledHost(TypedDict):
    """What is known of the host. ``memory_seconds`` and ``memory_cycles``: how long a line from idle memory takes.

    ``bandwidth_unit`` is what it limits memory bandwidth in, ``%`` or ``MB/s``; ``None`` where it can't limit it.
    Where that is per cent, limits are multiples of ``bandwidth_gran``, and ``min_bandwidth`` at least. An earlier agent
    does not tell these.
    """

    caches: dict[str, SampledCache]
    vms: dict[str, SampledVm]
    memory_seconds: float
    memory_cycles: float
    bandwidth_unit: NotRequired[str | None]
    bandwidth_gran: NotRequired[int]
    min_bandwidth: NotRequired[int]


class NeighbourCounts(TypedDict):
    """Hardware events of a VM's tasks, a second."""

    cycles: float
    instructions: float
    references: float
    misses: float


class NeighbourSample(TypedDict):
    """One VM in one interval, which ends at ``time`` (seconds since 1970).

    ``occupancy`` are the bytes held at its end, by cache id, ``bandwidth`` bytes a second from and to memory,
    ``cpu_time`` the CPU seconds that its QEMU process ran, a second. An earlier agent says nothing of the last.
    """

    time: float
    occupancy: dict[str, float]
    bandwidth: float | None
    counts: NeighbourCounts | None
    cpu_time: NotRequired[float]


class NeighbourSamples(TypedDict):
    """What :class:`Neighbours` is judged by; the samples are by UUID, the oldest first."""

    host: SampledHost
    samples: dict[str, list[NeighbourSample]]
