# SPDX-License-Identifier: Apache-2.0
"""What the agent's API answers on a host that a test makes up."""

from __future__ import annotations

import json
from typing import Any, cast

from tests.unit.local_api import examples
from vmqos.agent.serve.counters import Counters
from vmqos.gateway.metrics.agent_answers import Answers
from vmqos.local_api import contract
from vmqos.telemetry import Snapshot

_EXAMPLE: contract.Health = examples.health()

HEALTH: contract.Health = {
    **_EXAMPLE,
    "version": "1.2.3",
    "hostname": "compute-7",
    "pid": 4711,
    "uptime_seconds": 60.0,
    "ages": {"vms": 1.5, "pass": 0.5, "counters": 2.5},
    "stale": [],
    "unserved": {"u8": "no PID file", "u9": "no PID file"},
    "resctrl": {
        **_EXAMPLE["resctrl"],
        "groups": {"default": 1, "vm": 1, "class": 0, "foreign": 0},
        "closids": 16,
        "closids_used": 2,
        "rmids": 192,
        "rmids_used": 3,
    },
    "passes": 5,
    "last_pass_ms": 2.0,
    "failed_passes": 1,
    "pass_seconds": {"buckets": [(0.1, 3), (1.0, 4)], "count": 5, "sum": 12.5},
    "vms": {"kept": 1},
}
"""As the agent tells it."""

PLACEMENT: contract.PlacementHealth = {
    "where": "Placement",
    "error": None,
    "told_at": 1000.0,
    "inventories": {"CUSTOM_LLC_WAYS": 9},
    "traits": [],
    "changes": 1,
    "failures": 2,
}

NOVA: contract.NovaHealth = {"error": "Nova can't be reached", "waiting": 3}

NOTIFICATIONS: contract.NotificationsHealth = {
    "where": "rabbit://192.0.2.1:5672/",
    "error": "connection refused",
    "sent_at": 1000.0,
    "sent": 4,
    "failures": 5,
    "waiting": 6,
    "lost": 7,
}

KEPT: contract.Vm = {
    "uuid": "u",
    "name": "instance-00000001",
    "instance_name": "db-1",
    "flavor": "gold",
    "project": "p",
    "state": "kept",
    "reason": "",
    "reason_code": "",
    "policy": "exclusive",
    "ways_requested": 2,
    "masks": {"0": "3"},
    "l2_masks": {"3": "f0"},
    "bandwidth": {"0": 50},
    "bandwidth_unit": "%",
    "group": "vmqos.u",
    "monitoring_group": None,
    "unmonitored_reason": "",
    "tasks": 3,
    "tasks_in_place": 3,
    "pid": 100,
    "caches": [0],
    "outside_at_start": 0.25,
    "outside_later": 0.0,
    "since": 1000.0,
    "state_changes": 3,
    "promised_seconds": 90.0,
    "kept_seconds": 60.5,
    "last_error": None,
    "retry_in": None,
}

IN_BYTES: contract.Vm = {**KEPT, "bandwidth": {"0": 4000}, "bandwidth_unit": "MB/s"}
"""A VM whose host limits bandwidth in MB/s."""

CACHE: contract.Cache = {
    "resource": "L3",
    "id": 0,
    "cbm_mask": "7ff",
    "ways": 11,
    "way_bytes": 1 << 20,
    "size_bytes": 11 << 20,
    "shareable_bits": "0",
    "cpus": "0-3",
    "free_ways": 7,
    "largest_free_run": 4,
    "groups": [],
}

L2_CACHE: contract.Cache = {**CACHE, "resource": "L2", "cbm_mask": "ff", "ways": 8, "free_ways": 4}
"""It has the L3's id: an id is one of its level's."""

EXECUTED: contract.VmHardwareEvents = {
    "since": 900.0,
    "counts": {"cycles": 9e15 + 1, "instructions": 8000, "cache_references": 70, "cache_misses": 6},
    "rates": {"cycles": 4.0, "instructions": 3.0, "cache_references": 2.0, "cache_misses": 1.5},
    "share": 0.75,
    "source": "perf",
    "reason": "",
    "reason_code": "",
}

HARDWARE: contract.HardwareEvents = {
    "taken_at": 1000.0,
    "interval": 2.0,
    "age_seconds": 0.5,
    "unavailable": "",
    "unavailable_code": "",
    "vms": {"u": EXECUTED},
}

NOTHING_EXECUTED: contract.VmHardwareEvents = {
    "since": None,
    "counts": dict.fromkeys(EXECUTED["counts"]),
    "rates": dict.fromkeys(EXECUTED["rates"]),
    "share": None,
    "reason": "it has 2000 tasks",
    "reason_code": "too-many-tasks",
}
"""What is told of a VM that is not counted."""

NEIGHBOURS: contract.Neighbours = {
    "time": 1000.0,
    "interval": 2.0,
    "samples": 90,
    "counted": True,
    "vms": [
        {
            "uuid": uuid,
            "use": "starves",
            "confidence": 0.7,
            "evidence": ["31 % of its references to the cache miss"],
            "advice": "",
            "sufferings": [],
        }
        for uuid in ("u", "v", "gone")
    ],
    "pairs": [
        {
            "culprit": "v",
            "victim": "u",
            "cause": "cache",
            "since": 900.0,
            "until": None,
            "slower": 1.5,
            "taken": 1048576.0,
            "confidence": 0.9,
            "evidence": ["the neighbour's traffic rose"],
            "advice": "",
        }
    ],
}
"""What is judged of VMs, one of which has ended since."""

TOLD = Answers(
    {**HEALTH, "placement": PLACEMENT, "nova": NOVA, "notifications": NOTIFICATIONS},
    [KEPT],
    [CACHE, L2_CACHE],
    None,
    HARDWARE,
    NEIGHBOURS,
)
"""What is told of the host beside its counters."""


def telemetry(found: Snapshot, age: float = 0.0, interval: float = 2.0) -> contract.Telemetry:
    """A look at the counters, as it comes over the socket."""
    told = {**Counters().telemetry(found, None, interval), "age_seconds": age}
    return cast(contract.Telemetry, over_the_socket(told))


def over_the_socket(value: Any) -> Any:
    """A value as its JSON says it."""
    return json.loads(json.dumps(value))
