# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.unit.cli.top.rows import frame, row, text
from vmqos.cli.top.rest import LONGEST, Rest, rate_between
from vmqos.local_api import contract

Groups = Mapping[str, tuple[str, Sequence[float | None]]]


def look(taken_at: float, groups: Groups) -> contract.Telemetry:
    """A look at groups of these generations, and the bytes that they have moved on each cache."""
    told: dict[str, contract.GroupTelemetry] = {
        name: {
            "owner": "foreign" if name else "default",
            "generation": generation,
            "caches": {
                str(cache): {"mbm_total_bytes": count, "llc_occupancy": 1, "mbm_local_bytes": 1}
                for cache, count in enumerate(counts)
            },
        }
        for name, (generation, counts) in groups.items()
    }
    host: contract.HostTelemetry = {"ways": {}, "cache_bytes": {}, "groups": told}
    return {"taken_at": taken_at, "interval": 2.0, "vms": {}, "host": host}


@pytest.mark.parametrize(
    ("before", "now", "rate"),
    [
        ({"": ("a", (1, 2))}, {"": ("a", (5, 8))}, 5.0),
        ({"": ("a", (1,)), "pqos": ("b", (0,))}, {"": ("a", (1,)), "pqos": ("b", (6,))}, 3.0),
        # A VM has ended, and what it moved is gone from the default group.
        ({"": ("a", (9, 2))}, {"": ("a", (5, 8))}, 3.0),
        # Another group of the same name, and a new one, may have moved that long ago.
        ({"": ("a", (1,)), "pqos": ("b", (0,))}, {"": ("a", (3,)), "pqos": ("c", (6,)), "new": ("d", (7,))}, 1.0),
        ({"pqos": ("b", (0,))}, {"pqos": ("c", (6,))}, None),
        ({"": ("a", (1, None))}, {"": ("a", (5, 8))}, None),
        ({"": ("a", (1, 1))}, {"": ("a", (5, None))}, None),
        ({}, {}, None),
    ],
)
def test_what_is_in_no_vms_group_moves_as_much_as_its_counters_grow(
    before: Groups, now: Groups, rate: float | None
) -> None:
    assert rate_between(look(10.0, before), look(12.0, now)) == rate


def test_nothing_is_told_of_a_long_time_or_of_an_agent_that_tells_no_groups() -> None:
    then, now = {"": ("a", (0,))}, {"": ("a", (60,))}
    assert rate_between(look(0.0, then), look(LONGEST, now)) == 60 / LONGEST
    assert rate_between(look(0.0, then), look(LONGEST + 1, now)) is None
    earlier = look(12.0, {})
    del earlier["host"]["groups"]
    assert rate_between(look(10.0, then), earlier) is None
    assert rate_between(earlier, look(14.0, now)) is None


def test_the_same_look_again_changes_nothing() -> None:
    rest = Rest()
    told = [rest.hear(look(taken_at, {"": ("a", (10 * taken_at,))})) for taken_at in (1.0, 1.0, 3.0, 3.0)]
    assert told == [None, None, 10.0, 10.0]


def test_it_stands_behind_what_the_vms_move() -> None:
    assert text(frame(row("a")))[1].endswith("memory 1.5 GiB/s")
    assert text(frame(row("a"), rest=12.0 * (1 << 20)))[1].endswith("memory 1.5 GiB/s, and 12 MiB/s outside of VMs")
