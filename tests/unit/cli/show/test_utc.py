# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.top.rows import frame, text
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.cli.show import utc

MOMENT = 1790000042.5
"""2026-09-21, 14:14:02 UTC."""


@pytest.fixture(autouse=True)
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user whose clocks are nearly six hours ahead of UTC."""
    monkeypatch.setenv("TZ", "XYZ-5:45")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("moment", "now", "told"),
    [
        (MOMENT, MOMENT + 3600.0, "14:14:02 UTC"),
        (MOMENT, MOMENT + 35000.0, "14:14:02 UTC"),
        (MOMENT, MOMENT + 86400.0, "2026-09-21 14:14:02 UTC"),
        (MOMENT, None, "2026-09-21 14:14:02 UTC"),
        (None, MOMENT, "-"),
        (1e20, MOMENT, "1e+20"),
        (float("nan"), MOMENT, "nan"),
        (MOMENT, 1e20, "1.79e+09"),
    ],
)
def test_a_moment_is_told_in_utc_with_the_day_where_that_is_another_one(
    moment: float | None, now: float | None, told: str
) -> None:
    assert utc.clock(moment, now) == told


def test_top_and_vm_show_tell_times_in_utc(agent: FakeAgent, run: Run) -> None:
    assert ", 14:14:02 UTC, " in text(replace(frame(), taken_at=MOMENT))[0]
    agent.answers["/v1/vms"]["vms"][0]["since"] = MOMENT
    listed = run("vm", "list", "-f", "value", "--long", "-c", "Since").out
    assert "2026-09-21 14:14:02 UTC\n" in listed
