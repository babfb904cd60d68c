# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import msgspec

from vmqos.agent.sample.hardware_counts import Look, Uncounted, VmCounts
from vmqos.agent.serve.api import Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.local_api import contract


def told(look: Look) -> Any:
    """What the API answers."""
    hardware = SimpleNamespace(interval=2.0, newest=lambda: look)
    api = Api(None, None, LiveReads(), hardware=hardware)  # type: ignore[arg-type]
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v1/telemetry/hardware-events", "QUERY_STRING": ""}
    (content,) = api(environ, lambda status, headers: None)
    found = json.loads(content)
    msgspec.convert(found, contract.HardwareEvents)
    return found


def test_a_vms_counts_are_told_by_event_with_rates_and_share() -> None:
    big = 1 << 60
    vm = VmCounts(900.0, (big, 3, 2, 1), (4.0, 3.0, 2.0, 1.5), 0.75)
    found = told(Look(time.monotonic() - 1, 1000.0, vms={"u": vm}))
    assert found["vms"]["u"] == {
        "since": 900.0,
        "counts": {"cycles": big, "instructions": 3, "cache_references": 2, "cache_misses": 1},
        "rates": {"cycles": 4.0, "instructions": 3.0, "cache_references": 2.0, "cache_misses": 1.5},
        "share": 0.75,
        "reason": "",
        "reason_code": "",
    }
    assert (found["taken_at"], found["interval"], found["unavailable"]) == (1000.0, 2.0, "")
    assert 1 <= found["age_seconds"] < 60


def test_a_vm_that_is_not_counted_has_a_reason_and_no_number() -> None:
    found = told(Look(1.0, 1000.0, vms={"u": Uncounted("refused", "not permitted")}))["vms"]["u"]
    assert set(found["counts"].values()) == set(found["rates"].values()) == {None}
    assert (found["reason"], found["reason_code"], found["share"], found["since"]) == (
        "not permitted",
        "refused",
        None,
        None,
    )


def test_before_the_first_look_there_is_nothing() -> None:
    assert told(Look()) == {"taken_at": None, "interval": 2.0, "age_seconds": None, "unavailable": "", "vms": {}}
