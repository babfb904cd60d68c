# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from vmqos.cli import simulate
from vmqos.simulator.hardware.profiles import PROFILES


def test_profiles_are_listed_with_what_they_are(run: Run) -> None:
    ran = run("simulate", "--list-profiles")
    assert ran.status == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == list(PROFILES)
    assert all(len(line.split()) > 3 for line in ran.out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a MOUNTPOINT and a --profile"),
        (("/tmp/x",), "name a MOUNTPOINT and a --profile"),
        (("/tmp/x", "--profile", "zx81"), "there is no simulated machine 'zx81'; there are: "),
    ],
)
def test_what_is_missing_is_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = run("simulate", *arguments)
    assert (ran.status, ran.out) == (1, "")
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


def test_the_configuration_to_write_is_told(tmp_path: Path) -> None:
    told = simulate.how_to_use("minimal", "/mnt/rdt", "/mnt/cpu")
    assert "    [resctrl]\n    path = /mnt/rdt\n    sysfs_cpu_path = /mnt/cpu\n" in told
    assert "Give --sysfs DIR as well" in simulate.how_to_use("minimal", "/mnt/rdt", None)
