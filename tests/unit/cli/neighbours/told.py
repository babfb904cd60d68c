# SPDX-License-Identifier: Apache-2.0
"""An agent that tells a host and its history, as its API does."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from tests.unit.local_api import examples
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.insight import History, Host, LimitedIn, Sample


def sample(of: Sample) -> dict[str, Any]:
    counts = None if of.counts is None else asdict(of.counts)
    occupancy = {str(cache): held for cache, held in of.occupancy.items()}
    told = {"time": of.time, "occupancy": occupancy, "bandwidth": of.bandwidth, "counts": counts}
    return told if of.cpu_time is None else {**told, "cpu_time": of.cpu_time}


def samples(host: Host, history: History, since: float = -1.0) -> dict[str, Any]:
    vms = {
        uuid: {
            "flavor": vm.flavor,
            "masks": {str(cache): f"{mask:x}" for cache, mask in vm.masks.items()},
            "promise": asdict(vm.promise),
            **({"vcpus": vm.vcpus} if vm.vcpus else {}),
        }
        for uuid, vm in host.vms.items()
    }
    return {
        "host": {
            "caches": {str(number): asdict(cache) for number, cache in host.caches.items()},
            "vms": vms,
            "memory_seconds": host.memory_seconds,
            "memory_cycles": host.memory_cycles,
            **({} if host.limited_in is LimitedIn.UNKNOWN else {"bandwidth_unit": host.limited_in.value}),
            **(
                {"bandwidth_gran": host.percent_steps.gran, "min_bandwidth": host.percent_steps.least}
                if host.percent_steps
                else {}
            ),
        },
        "samples": {uuid: [sample(one) for one in series if one.time > since] for uuid, series in history.items()},
    }


def serve(agent: FakeAgent, host: Host, history: History, seconds: int = 1 << 30) -> None:
    """Have the agent tell a history: at first so many seconds of it, and one more with each later question."""
    known = seconds

    def answer(query: dict[str, list[str]]) -> tuple[str, bytes]:
        nonlocal known
        now = {uuid: [one for one in series if one.time < known] for uuid, series in history.items()}
        known += 1
        since = float(query["since"][0]) if "since" in query else -1.0
        return "200 OK", json.dumps(samples(host, now, since)).encode()

    agent.answers["/v1/neighbours/samples"] = answer
    agent.answers["/v1/neighbours"] = examples.neighbours(interval=1.0)
