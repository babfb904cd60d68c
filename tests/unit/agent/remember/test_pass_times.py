# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from vmqos.agent.remember.pass_times import BOUNDS, PassTimes


def test_each_bucket_counts_all_up_to_its_bound() -> None:
    times = PassTimes()
    for seconds in (0.0005, 0.001, 0.004, 3.0, 100.0):
        times.add(seconds, failed=False)
    found = times.durations()
    assert dict(found["buckets"])[0.001] == 2
    assert dict(found["buckets"])[0.005] == 3
    assert dict(found["buckets"])[5.0] == 4
    assert tuple(bound for bound, _ in found["buckets"]) == BOUNDS
    assert (found["count"], found["sum"]) == (5, 103.0055)


def test_failed_passes_are_counted_and_timed_as_well() -> None:
    times = PassTimes()
    times.add(1.0, failed=True)
    times.add(1.0, failed=False)
    assert (times.failed, times.durations()["count"]) == (1, 2)
