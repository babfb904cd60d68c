# SPDX-License-Identifier: Apache-2.0
"""What the replay does not hold against the simulator, each kind of difference with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.functional.replay.recording import Record
from tests.functional.replay.verdict import Difference, Rule

COUNTER_VALUE = "counter value"
EMPTY_WRITE = "empty write"
ENDED_THREAD = "thread that has just ended"
FILE_SYSTEM_TYPE = "file system type"
HARDWARE_NUMBER = "number of an RMID"

COUNTERS = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")

UNJUDGED: tuple[tuple[str, Callable[[Record], bool]], ...] = (
    (
        "no answer of resctrl's",
        lambda record: record["op"] in ("env", "cache", "stat-mountpoint", "dmesg", "script-error"),
    ),
    (
        "a measurement",
        lambda record: record["op"] in ("mbm-rate", "mba_MBps-rate"),
    ),
    (
        "/dev and debugfs are not resctrl's files",
        lambda record: str(record.get("path", "")).startswith(("/dev/", "/sys/kernel/debug")),
    ),
)
"""Records that say nothing about the simulator."""


def _is_counter(path: str) -> bool:
    return path.rpartition("/")[2] in COUNTERS


def _path_of(difference: Difference) -> str:
    if difference.what.startswith("after "):
        return difference.what.removeprefix("after ")
    return str(difference.record.get("path", ""))


def _both_numbers(difference: Difference) -> bool:
    values = (difference.recorded, difference.ours)
    return all(isinstance(value, str) and value.endswith("\n") and value[:-1].isdigit() for value in values)


def _without_numbers(result: dict[str, Any]) -> dict[str, Any]:
    return {**result, "stdout": re.sub(r"^\d+$", "number", result["stdout"], flags=re.MULTILINE)}


RULES = (
    Rule(
        COUNTER_VALUE,
        "what a counter counted is a measurement; that it is a number is judged",
        lambda one: _is_counter(_path_of(one)) and _both_numbers(one),
    ),
    Rule(
        COUNTER_VALUE,
        "the same, where a shell printed counters",
        lambda one: (
            one.record["op"] == "as-uid-1000"
            and one.record["path"].endswith(COUNTERS)
            and one.what == "ret"
            and _without_numbers(one.recorded) == _without_numbers(one.ours)
        ),
    ),
    Rule(
        ENDED_THREAD,
        "the recording caught the kernel before it had taken the thread off its list",
        lambda one: one.record.get("note") == "thread gone" and len(one.recorded) == 1 and one.ours == [],
    ),
    Rule(
        EMPTY_WRITE,
        "Linux does not tell a FUSE server of a write of no bytes: it returns 0 where resctrl says EINVAL",
        lambda one: (
            one.record["op"] == "write"
            and one.record["data"] == ""
            and (one.what, one.recorded, one.ours) == ("errno", "EINVAL", None)
        ),
    ),
    Rule(
        FILE_SYSTEM_TYPE,
        "statfs shows FUSE's magic number, not resctrl's",
        lambda one: one.what == "stat_f",
    ),
    Rule(
        HARDWARE_NUMBER,
        "which RMID has been free for the longest time depends on when the kernel's worker saw which one drained",
        lambda one: _path_of(one).endswith("mon_hw_id") and _both_numbers(one),
    ),
)
"""Differences that are explained, narrow enough to hide nothing else."""
