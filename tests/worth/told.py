# SPDX-License-Identifier: Apache-2.0
"""What the product tells of VMs' counters, beside what the cache model counted.

All VMs stand still while they are looked at. What one holds of the cache can then only become less, by what the host
does, and its traffic only more, by what is written back of it: so what is told must lie between two readings of the
model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tests.functional.telemetry.scraped import Scrape, scrape
from tests.kernel.cachemodel import switch
from tests.kernel.cachemodel.counts import Counts
from tests.worth.node import Node, Worker
from tests.worth.window import ANY_CPU

NO_MORE_SHARED = 1.1
"""Seconds after which the agent looks again: one look serves all who ask within a second."""
TOP_TIMEOUT = 120.0
SCRAPE_TIMEOUT = 120.0
MOVED, HELD = "vmqos_vm_memory_bytes_total", "vmqos_vm_llc_occupancy_bytes"


@dataclass(frozen=True, slots=True)
class Told:
    """One VM's counters at one moment.

    :ivar first: the model's, before the product was asked.
    :ivar last: the same after it.
    :ivar bytes: moved to and from memory since the boot, by the metrics.
    :ivar occupancy: bytes held, by the metrics.
    :ivar api: what the agent's API says of it, the basis of ``vmqos top``.
    :ivar taken_at: seconds since 1970: when the API's counters were read.
    """

    first: Counts
    last: Counts
    bytes: float
    occupancy: float
    api: dict[str, Any]
    taken_at: float


def ask(node: Node, workers: Collection[Worker]) -> dict[str, Told]:
    """Stop the VMs, ask the metrics, the API and the model, and let them go on; by name."""
    rmids = {worker: node.rmid(worker) for worker in workers}
    time.sleep(NO_MORE_SHARED)
    for worker in workers:
        worker.pause()
    first = {worker: switch.counts(ANY_CPU, rmid) for worker, rmid in rmids.items()}
    metrics, api = _scraped(node, workers), node.agent.get("/v1/telemetry")
    last = {worker: switch.counts(ANY_CPU, rmid) for worker, rmid in rmids.items()}
    for worker in workers:
        worker.resume()
    return {worker.vm.name: _told(worker, first[worker], last[worker], metrics, api) for worker in workers}


def _scraped(node: Node, workers: Collection[Worker]) -> Scrape:
    """The metrics, once they have the workers' counters: they leave them out for a while if the agent reads slowly.

    :raises TimeoutError: if they never have them.
    """
    deadline = time.monotonic() + SCRAPE_TIMEOUT
    while time.monotonic() < deadline:
        found = scrape(node.agent.metrics)
        if all(found.find(name, uuid=worker.uuid) for worker in workers for name in (MOVED, HELD)):
            return found
        time.sleep(NO_MORE_SHARED)
    raise TimeoutError(f"no counters of all workers in the metrics within {SCRAPE_TIMEOUT:.0f} s:\n{found.text}")


def _told(worker: Worker, first: Counts, last: Counts, metrics: Scrape, api: dict[str, Any]) -> Told:
    return Told(
        first,
        last,
        sum(one.value for one in metrics.find(MOVED, uuid=worker.uuid, scope="total")),
        sum(one.value for one in metrics.find(HELD, uuid=worker.uuid)),
        api["vms"][worker.uuid],
        api["taken_at"],
    )


@dataclass(frozen=True, slots=True)
class Top:
    """What ``vmqos top -f json`` says, which looks again.

    :ivar vms: by name.
    :ivar seconds: since the look before, over which its bandwidths are.
    :ivar first: the model's counts, before it was started; the VMs stood still from then on.
    """

    vms: dict[str, dict[str, Any]]
    seconds: float
    first: dict[str, Counts]


def top(node: Node, workers: Collection[Worker], before: Told) -> Top:
    """Stop the VMs, and run ``vmqos top`` once.

    :param before: any VM's of the look before, since which nobody looked.
    """
    rmids = {worker: node.rmid(worker) for worker in workers}
    for worker in workers:
        worker.pause()
    first = {worker.vm.name: switch.counts(ANY_CPU, rmid) for worker, rmid in rmids.items()}
    output = node.workspace.path / "top.json"
    arguments = ["--config-file", str(node.agent.config_file), "top", "--once", "-f", "json"]
    status = node.launch("vmqos.cli.main", arguments, output).wait(TOP_TIMEOUT)
    for worker in workers:
        worker.resume()
    if status:
        raise RuntimeError(f"vmqos top ended with {status}: {output.read_text()}")
    said = json.loads(output.read_text())
    names = {worker.uuid: worker.vm.name for worker in workers}
    vms = {names[vm["uuid"]]: vm for vm in said["vms"] if vm["uuid"] in names}
    return Top(vms, said["taken_at"] - before.taken_at, first)
