# SPDX-License-Identifier: Apache-2.0
"""What runs on the hosts that the tests show."""

from __future__ import annotations

import time

from tests.page.played_host import PlayedHost


def few(host: PlayedHost) -> None:
    """Four VMs, and nothing is wrong."""
    host.add("database", 3)
    host.add("web-1", 2)
    host.add("batch-1", 2, "shared")
    host.add("mail-1")


def troubled(host: PlayedHost) -> None:
    """Nine VMs: some have what they ask for, one waits, one has a bad flavor, one has no number."""
    for number, ways in enumerate((2, 1, 1, 1)):
        host.add(f"web-{number}", ways)
    host.add("batch-1", 2, "shared")
    host.add("mail-1")
    host.add("big-1", ways_requested=6, state="pending", reason="L3 cache 0 has 2 ways to give", retry_in=12.0)
    host.add("typo-1", state="degraded", reason="hw:cache_ways='two'", last_error="write failed with EINVAL")
    silent = host.add("silent")
    host.missing[silent["uuid"]] = {"mbm_total_bytes": "unassigned"}
    changed(host)


LONG_NAMES = (
    "kubernetes-worker-node-pool-frankfurt-a",
    "customer-4711-production-postgresql-replica",
    "telco.user-plane-function.edge-7.example.net",
    "web",
)


def crowded(host: PlayedHost, number: int) -> None:
    """So many VMs, three of them with ways. Many have names that differ at their ends only. All is counted."""
    host.ways, host.unavailable, host.packages = 16, "", True
    host.add("database-primary-of-the-billing-department-production", 3, flavor="general-purpose.large.with-local-nvme")
    host.add("radio", 2)
    host.add("batch-1", 2, "shared")
    host.add("big-1", ways_requested=6, state="pending", reason="L3 cache 0 has 5 ways to give", retry_in=12.0)
    while len(host.vms) < number:
        name = LONG_NAMES[len(host.vms) % len(LONG_NAMES)]
        host.add(f"{name}-{len(host.vms):03}", flavor="general-purpose.large.with-local-nvme")
    changed(host)


def changed(host: PlayedHost) -> None:
    """Changes of every kind, on a host with some VMs."""
    first, *_, last = host.vms
    seen = time.time() - 90_000.0
    for vm in host.vms:
        host.happen(vm, "none", "", time=seen)
    gone = {"uuid": "9b0d7e52-3c1a-4f68-8e4d-2f6a1c9b7d03", "instance_name": "gone-1", "name": ""}
    host.happen(gone, "", "kept", 300.0, kind="ended")
    host.happen(first, "degraded", "kept", 240.0, reason="1 of 9 tasks is elsewhere", reason_code="tasks-elsewhere")
    host.happen(first, "kept", "degraded", 180.0)
    host.happen(last, "none", "none", 120.0)
    nothing = {"uuid": "", "instance_name": "resctrl", "name": ""}
    host.happen(nothing, "fails", "works", 100.0, kind="host", reason="resctrl is not mounted")
    host.happen(nothing, "works", "fails", 60.0, kind="host")


def rich(host: PlayedHost) -> None:
    """A machine that has everything, and VMs with some of it."""
    host.cdp, host.l2_caches, host.bandwidth_unit, host.locks = True, 64, "%", {"vmqos.lock-table": 0x80}
    host.add(
        "database", 6, code_masks={"0": "3", "1": "3"}, data_masks={"0": "3c", "1": "3c"},
        code_ways_requested=2, data_ways_requested=4,
        bandwidth={"0": 60, "1": 60}, bandwidth_unit="%", bandwidth_requested=55, bandwidth_requested_unit="%",
    )  # fmt: skip
    radio = host.add("radio", l2_ways_requested=3, l2_masks={"5": "7", "6": "7"}, vcpus_requested="0-1", vcpus="0-1")
    half = host.add("half", bandwidth={"0": 50, "1": 50}, bandwidth_unit="%", bandwidth_requested=50)
    for vm in (radio, half):
        vm |= {"group": f"vmqos.{vm['uuid']}", "state": "kept"}
    host.add("mail-1")
