# SPDX-License-Identifier: Apache-2.0
"""The JSON that the agent's local API answers with, as this command reads it.

Fields that a later agent adds are kept and shown by ``-f json``; fields listed here must be there.
"""

# No "from __future__ import annotations" here: it would hide NotRequired from __required_keys__.
from typing import Literal, NotRequired, TypedDict

State = Literal["kept", "pending", "degraded", "none"]


class Task(TypedDict):
    """One thread of a VM; ``group`` is the control group it is in: empty for the default one, ``None`` for none."""

    tid: int
    pid: int
    comm: str
    group: str | None
    in_place: bool


class Vm(TypedDict):
    """A running VM and how its promise stands; masks (hexadecimal) and bandwidth are by cache id."""

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
    masks: dict[str, str]
    code_masks: NotRequired[dict[str, str]]
    data_masks: NotRequired[dict[str, str]]
    l2_ways_requested: NotRequired[int | None]
    l2_masks: NotRequired[dict[str, str]]
    bandwidth_requested: NotRequired[int | None]
    bandwidth_requested_unit: NotRequired[str | None]
    bandwidth: NotRequired[dict[str, int]]
    bandwidth_unit: NotRequired[str | None]
    group: str
    monitoring_group: str | None
    rest_monitoring_group: NotRequired[str | None]
    unmonitored_reason: str
    tasks: int
    tasks_in_place: int
    pid: int
    caches: list[int]
    since: float
    last_error: str | None
    retry_in: float | None


class DetailedVm(Vm):
    """A VM with its threads, as asked for one by one."""

    task_list: list[Task]


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


class Verdict(TypedDict):
    """How a promise would stand."""

    state: State
    reason: str
    reason_code: NotRequired[str]
    group: str
    masks: dict[str, str]
    code_masks: NotRequired[dict[str, str]]
    data_masks: NotRequired[dict[str, str]]
    l2_masks: NotRequired[dict[str, str]]
    bandwidth: NotRequired[dict[str, int]]
    bandwidth_unit: NotRequired[str | None]


class Plan(TypedDict):
    """What a VM with the given extra specs would get: the steps, and the VMs whose ways would move."""

    verdict: Verdict
    steps: list[str]
    moves: list[str]


class VmTelemetry(TypedDict):
    """One VM's counters: bytes by event, bytes a second, each ``None`` where there is no number, and then why."""

    ways: dict[str, int]
    policy: str | None
    allocated_bytes: int | None
    totals: dict[str, float | None]
    missing: dict[str, str]
    rates: dict[str, float | None]
    rates_missing: dict[str, str]
    caches: NotRequired[dict[str, dict[str, float | None]]]


class HostTelemetry(TypedDict):
    """The ways and bytes of each L3, by cache id."""

    ways: dict[str, int]
    cache_bytes: dict[str, int]


class Telemetry(TypedDict):
    """One look at all counters, by VM UUID; seconds since 1970, and seconds between two looks."""

    taken_at: float
    interval: float
    age_seconds: NotRequired[float | None]
    vms: dict[str, VmTelemetry]
    host: HostTelemetry


class ResctrlHealth(TypedDict):
    """The agent's view of resctrl."""

    path: str
    mounted: bool | None
    error: str | None
    simulated: bool


class UnansweredCall(TypedDict):
    """What libvirt does not answer, and since how many seconds."""

    call: str
    seconds: float


class LibvirtHealth(TypedDict):
    """The agent's view of libvirt."""

    uri: str
    connected: bool
    error: str | None
    unanswered: NotRequired[UnansweredCall | None]


class Health(TypedDict):
    """How the agent itself fares; how the VMs do is in ``vms``, counts by state.

    ``ages`` are seconds since the last complete look at the VMs (``vms``), the last pass that ended well (``pass``) and
    the last look at the counters (``counters``), ``None`` before the first; ``stale`` names those that are too great.
    ``unserved`` has the reason why a VM that libvirt lists is not served, by UUID.
    """

    status: Literal["starting", "ok", "degraded", "failing"]
    version: str
    uptime_seconds: float
    ages: NotRequired[dict[str, float | None]]
    stale: NotRequired[list[str]]
    unserved: NotRequired[dict[str, str]]
    resctrl: ResctrlHealth
    libvirt: LibvirtHealth
    passes: int
    last_pass_ms: float
    last_error: str | None
    vms: dict[str, int]
