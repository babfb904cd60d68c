# SPDX-License-Identifier: Apache-2.0
"""Answers of an agent, by its contract: two caches of 11 ways, five VMs in every state."""

from __future__ import annotations

from typing import Any

WEB = "4f2c1a9e-0f0b-4a55-9c1e-2b6d7a90c3aa"
DB = "7d01e4c2-55b1-4a0e-8f5b-c7b3a4ab1111"
BATCH = "9b3ddc10-1111-4222-8333-944455556666"
HUGE = "9b3ddc11-2222-4222-8333-944455557777"
PLAIN = "b0b0b0b0-2222-4222-8333-944455557777"


def vm(uuid: str, instance_name: str, **changes: Any) -> Any:
    return {
        "uuid": uuid,
        "name": f"instance-{uuid[:8]}",
        "instance_name": instance_name,
        "flavor": "m1.cache",
        "project": "8d1f2ad9",
        "state": "kept",
        "reason": "",
        "policy": "exclusive",
        "ways_requested": 2,
        "masks": {},
        "group": "",
        "monitoring_group": None,
        "unmonitored_reason": "",
        "tasks": 11,
        "tasks_in_place": 11,
        "pid": 4321,
        "caches": [0, 1],
        "outside_at_start": 0.0004,
        "outside_later": 0.0,
        "since": 1794000000.5,
        "last_error": None,
        "retry_in": None,
    } | changes


def vms() -> list[Any]:
    return [
        vm(WEB, "web-1", masks={"0": "3", "1": "3"}, group=f"vmqos.{WEB}", tasks_in_place=10),
        vm(DB, "db-1", masks={"0": "3c"}, group=f"vmqos.{DB}", ways_requested=4, caches=[0]),
        vm(BATCH, "batch", masks={"0": "c0", "1": "c0"}, group="vmqos.shared-ways2", policy="shared"),
        vm(
            HUGE,
            "huge",
            state="pending",
            ways_requested=8,
            reason="needs 8 free ways on cache 0, only 3 are free",
            last_error="write /sys/fs/resctrl/vmqos.x/schemata 'L3:0=ff' failed with EINVAL",
            retry_in=12.0,
        ),
        vm(PLAIN, "plain", state="none", policy=None, ways_requested=None),
    ]


def tasks(group: str) -> list[Any]:
    return [
        {"tid": 4321, "pid": 4321, "comm": "qemu-system-x86", "group": "", "in_place": False},
        {"tid": 4322, "pid": 4321, "comm": "CPU 0/KVM", "group": group, "in_place": True},
    ]


def group(name: str, owner: str, mask: str, **changes: Any) -> Any:
    return {"name": name, "owner": owner, "mask": mask, "mode": "shareable", "vm": None, "vm_name": None} | changes


def vm_group(uuid: str, mask: str, name: str | None) -> Any:
    return group(f"vmqos.{uuid}", "vm", mask, mode="exclusive", vm=uuid, vm_name=name)


def cache(cache_id: int, groups: list[Any], ways: int = 11, **changes: Any) -> Any:
    return {
        "resource": "L3",
        "id": cache_id,
        "cbm_mask": f"{(1 << ways) - 1:x}",
        "ways": ways,
        "way_bytes": 1572864,
        "size_bytes": 1572864 * ways,
        "shareable_bits": "600",
        "cpus": f"{cache_id}",
        "free_ways": 3,
        "largest_free_run": 3,
        "groups": groups,
    } | changes


def caches() -> list[Any]:
    shared = group("vmqos.shared-ways2", "class", "c0")
    return [
        cache(0, [group("", "default", "7c0"), vm_group(WEB, "3", "web-1"), vm_group(DB, "3c", "db-1"), shared]),
        cache(1, [group("", "default", "7fc"), vm_group(WEB, "3", "web-1"), vm_group(DB, "7fc", "db-1"), shared]),
    ]


def capabilities() -> Any:
    return {
        "num_closids": 8,
        "caches": {
            "L3": {
                "num_closids": 16,
                "cbm_mask": "7ff",
                "ways": 11,
                "min_cbm_bits": 1,
                "shareable_bits": "600",
                "sparse_masks": False,
                "cache_ids": [0, 1],
            }
        },
        "bandwidths": {
            "MB": {
                "num_closids": 8,
                "min_bandwidth": 10,
                "bandwidth_gran": 10,
                "delay_linear": True,
                "unit": "percent",
                "cache_ids": [0, 1],
            }
        },
        "monitoring": {"num_rmids": 192, "events": ["llc_occupancy"], "max_threshold_occupancy": 98304},
    }


def control_group(name: str = "", owner: str = "default", **changes: Any) -> Any:
    return {
        "name": name,
        "owner": owner,
        "mode": "shareable",
        "schemata": {"MB": {"0": "100"}, "L3": {"0": "7fc", "1": "7ff"}},
        "tasks": 12,
        "cpus": "",
        "rmid": None,
        "closid": None,
        "monitoring_groups": [],
        "vms": [],
        **changes,
    }


def health() -> Any:
    return {
        "status": "ok",
        "version": "1.0",
        "uptime_seconds": 12.0,
        "resctrl": {"path": "/sys/fs/resctrl", "mounted": True, "error": None, "simulated": False},
        "libvirt": {
            "uri": "qemu:///system",
            "connected": True,
            "error": None,
            "unanswered": None,
            "starts_watched": True,
            "watch_error": None,
        },
        "passes": 3,
        "last_pass_ms": 1.2,
        "last_error": None,
        "vms": {"kept": 3, "pending": 1, "degraded": 0, "none": 1},
        "revision": "5f1c.17",
        "last_event": "5f1c.4",
    }


def plan() -> Any:
    return {
        "verdict": {"state": "kept", "reason": "", "group": "vmqos.new", "masks": {"0": "1c0", "1": "1c"}},
        "steps": ["give the default group the L3 ways 0=600", "create the control group vmqos.new"],
        "moves": [WEB],
    }


def counters(**changes: Any) -> Any:
    return {
        "group": "",
        "policy": "exclusive",
        "ways": {"0": 2, "1": 2},
        "allocated_bytes": 6291456,
        "caches": {},
        "packages": {},
        "totals": {"llc_occupancy": 3145728, "mbm_total_bytes": 10**9, "mbm_local_bytes": 10**8},
        "missing": {},
        "rates": {"total": 4194304.5, "local": 3145728.0, "remote": 1048576.5},
        "rates_missing": {},
    } | changes


def telemetry() -> Any:
    """The counters of all but PLAIN, which is not monitored; those of BATCH have no bandwidth."""
    names = ("total", "local", "remote")
    unassigned = {"rates": dict.fromkeys(names), "rates_missing": dict.fromkeys(names, "unassigned")}
    return {
        "taken_at": 1794000000.25,
        "interval": 2.0,
        "sweep_seconds": 0.001,
        "vms": {
            WEB: counters(),
            DB: counters(totals={"llc_occupancy": 5 << 20}, rates={"total": 9e8, "local": 8e8, "remote": 1e8}),
            BATCH: counters(policy="shared", **unassigned),
            HUGE: counters(policy=None, ways={}, allocated_bytes=None, totals={"llc_occupancy": 0}),
        },
        "host": {"ways": {"0": 11, "1": 11}, "cache_bytes": {"0": 17301504, "1": 17301504}, "rmids_used": 6},
    }


def hardware_events() -> Any:
    """What all but PLAIN execute, which is not counted, and BATCH, which came a moment ago."""
    names = ("cycles", "instructions", "cache_references", "cache_misses")

    def vm(**changes: Any) -> Any:
        counts = dict(zip(names, (4 * 10**15, 10**15, 10**9, 10**6), strict=True))
        rates = dict(zip(names, (4e9, 1e9, 2e6, 1.5e6), strict=True))
        told = {"since": 1793999000.0, "counts": counts, "rates": rates, "share": 1.0, "reason": "", "reason_code": ""}
        return told | changes

    nothing = dict.fromkeys(names)
    reason = {"reason": "it has 2000 tasks", "reason_code": "too-many-tasks"}
    return {
        "taken_at": 1794000000.5,
        "interval": 2.0,
        "age_seconds": 0.5,
        "unavailable": "",
        "unavailable_code": "",
        "vms": {
            WEB: vm(),
            DB: vm(rates=dict.fromkeys(names, 0.0), share=None),
            BATCH: vm(rates=nothing, share=None),
            HUGE: vm(share=0.75),
            PLAIN: vm(since=None, counts=nothing, rates=nothing, share=None, **reason),
        },
    }


def cycles_of_packages(why: str) -> Any:
    """The same where perf counts nothing, and packages count the cycles of WEB."""
    told = hardware_events()
    web = told["vms"][WEB]
    counts = {name: count if name == "cycles" else None for name, count in web["counts"].items()}
    of_packages = {"counts": counts, "share": None, "source": "aet", "reason": why, "reason_code": "no-perf"}
    return told | {"vms": {WEB: web | of_packages}}


def events() -> dict[str, Any]:
    """A VM that came, libvirt that failed, and a promise that was broken."""

    def promise(number: int, before: str, state: str, reason: str = "", code: str = "") -> dict[str, Any]:
        told = {"state": state, "before": before, "reason": reason, "reason_code": code}
        return {"number": number, "time": 1000.0 + number, "kind": "promise", "uuid": WEB, "name": "web-1", **told}

    host = {"uuid": "", "name": "libvirt", "state": "fails", "before": "works", "reason": "gone", "reason_code": ""}
    found = [
        promise(4, "", "kept"),
        {"number": 5, "time": 1005.0, "kind": "host", **host},
        promise(6, "kept", "degraded", "another program changed it", "changed-outside"),
    ]
    return {"epoch": "e1", "first": 4, "last": 6, "events": found}


def found_size(**changes: Any) -> Any:
    """A VM with two ways that needs four."""
    curve = {2: (0.9, 1.6102), 3: (0.5, 1.2712), 4: (0.2, 1.0169), 5: (0.18, 1.0)}
    return {
        "ways": 4,
        "at_least": False,
        "counted": True,
        "steady": True,
        "part": "",
        "curve": [
            {"ways": ways, "missed": missed, "traffic_part": None, "slower": slower}
            for ways, (missed, slower) in curve.items()
        ],
    } | changes


def neighbours(**changes: Any) -> dict[str, Any]:
    """What is judged of four VMs: BATCH slows WEB, HUGE is slow of itself, DB lacks cache."""
    return {
        "time": 1794000065.0,
        "interval": 1.0,
        "samples": 118,
        "counted": True,
        "traffic_counted": True,
        "vms": [
            judged(WEB, "fits", 0.95, ["it holds 4.0 MiB of the 6.0 MiB that it may fill"]),
            judged(
                DB,
                "starves",
                0.7,
                ["it holds 11.8 MiB of the 12.0 MiB that it may fill", "31 % of its references to the cache miss"],
                "vmqos flavor set m1.cache-NEW --cache-ways 5",
            ),
            judged(
                BATCH,
                "fills-without-gain",
                0.8,
                ["it holds 20.0 MiB of the 33.0 MiB that it may fill", "97 % of its references to the cache miss"],
                "vmqos flavor set m1.batch-NEW --cache-ways 2 --policy shared",
            ),
            judged(
                HUGE,
                "unknown",
                0.3,
                ["it holds 1.0 MiB of the 33.0 MiB that it may fill"],
                sufferings=[
                    {
                        "slower": 1.37,
                        "beside": "own past",
                        "cause": "neither",
                        "confidence": 0.9,
                        "evidence": [
                            "it takes 1.37 cycles for an instruction, 1.00 before at the same work",
                            "it misses 0.21 times in 1 000 instructions, there 0.20 times",
                        ],
                    }
                ],
            ),
        ],
        "pairs": [
            {
                "culprit": BATCH,
                "victim": WEB,
                "cause": "cache",
                "since": 1794000000.0,
                "until": None,
                "slower": 2.04,
                "taken": 6291456.0,
                "confidence": 0.94,
                "evidence": [
                    "the neighbour's traffic with memory rose from 95 MiB/s to 7629 MiB/s; of all that rose, 97 % is "
                    "its own",
                    "it held 10.0 MiB and lost 6.0 MiB; the neighbour gained 19.0 MiB",
                ],
                "advice": "vmqos flavor set m1.batch-NEW --cache-ways 2 --policy shared",
            }
        ],
    } | changes


def judged(uuid: str, use: str, confidence: float, evidence: list[str], advice: str = "", **changes: Any) -> Any:
    known = {"uuid": uuid, "use": use, "confidence": confidence, "evidence": evidence, "advice": advice}
    return known | {"sufferings": []} | changes
