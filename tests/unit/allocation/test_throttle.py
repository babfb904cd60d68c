# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.allocation.machines import machine
from vmqos.allocation import throttle
from vmqos.extra_specs import CacheRequest
from vmqos.reason import NO_REASON
from vmqos.resctrl.capabilities import BandwidthUnit, Capabilities, Monitoring

PERCENT, MBPS, EIGHTHS = BandwidthUnit.PERCENT, BandwidthUnit.MBPS, BandwidthUnit.EIGHTH_GBPS


@pytest.mark.parametrize(
    ("unit", "percent", "mbps", "value"),
    [
        (PERCENT, 50, None, 50),
        (PERCENT, 51, None, 60),
        (PERCENT, 1, None, 10),
        (PERCENT, 100, None, 100),
        (MBPS, None, 1, 1),
        (MBPS, None, 4321, 4321),
        (EIGHTHS, None, 1000, 8),
        (EIGHTHS, None, 1001, 9),
        (EIGHTHS, None, 1, 1),
        (EIGHTHS, None, 10**6, 2048),
        (PERCENT, None, None, None),
    ],
)
def test_a_request_is_rounded_up_to_what_the_machine_knows(
    unit: BandwidthUnit, percent: int | None, mbps: int | None, value: int | None
) -> None:
    wants = CacheRequest(bandwidth_percent=percent, bandwidth_mbps=mbps)
    found = throttle.read(machine(unit=unit), wants)
    assert (found.value, found.fault) == (value, NO_REASON)


@pytest.mark.parametrize(
    ("unit", "asked", "remark"),
    [
        (PERCENT, 51, "gets 60 % of the memory bandwidth for the 51 % asked for"),
        (PERCENT, 50, ""),
        (EIGHTHS, 1001, "gets 1125 MB/s of memory bandwidth for the 1001 MB/s asked for"),
        (EIGHTHS, 1000, ""),
        (EIGHTHS, 10**6, "gets 256000 MB/s"),
        (MBPS, 51, ""),
    ],
)
def test_what_it_comes_to_is_said_where_it_is_something_else(unit: BandwidthUnit, asked: int, remark: str) -> None:
    wants = CacheRequest(bandwidth_percent=asked) if unit is PERCENT else CacheRequest(bandwidth_mbps=asked)
    found = throttle.read(machine(unit=unit), wants).remark
    assert found.text.startswith(remark) and bool(found) == bool(remark)


def test_what_the_machine_does_not_know_is_refused_with_what_helps() -> None:
    percent, mbps = CacheRequest(bandwidth_percent=50), CacheRequest(bandwidth_mbps=50)
    counted = replace(machine(), monitoring=Monitoring(8, ("mbm_total_bytes", "mbm_local_bytes"), 0))
    by_mbps, amd = machine(unit=MBPS), machine(unit=EIGHTHS)
    for capabilities, wants, words in (
        (counted, mbps, "to be mounted with mba_MBps: 'sudo vmqos doctor' tells how"),
        (machine(), mbps, "without counters of bandwidth"),
        (by_mbps, percent, "to be mounted without mba_MBps: 'sudo vmqos doctor' tells how"),
        (amd, percent, "ask for hw:mem_bandwidth_mbps"),
        (Capabilities(), mbps, "can't be throttled by resctrl"),
        (Capabilities(), percent, "can't be throttled by resctrl"),
    ):
        found = throttle.read(capabilities, wants)
        assert found.value is None and words in found.fault.text


@pytest.mark.parametrize(
    ("unit", "value", "found"),
    [
        (PERCENT, 60, CacheRequest(2, bandwidth_percent=60)),
        (MBPS, 7, CacheRequest(2, bandwidth_mbps=7)),
        (EIGHTHS, 3, CacheRequest(2, bandwidth_mbps=375)),
        (MBPS, None, CacheRequest(2)),
    ],
)
def test_a_class_is_named_by_the_real_limit(unit: BandwidthUnit, value: int | None, found: CacheRequest) -> None:
    assert throttle.with_limit(CacheRequest(2), machine(unit=unit).memory_bandwidth, value) == found
