# SPDX-License-Identifier: Apache-2.0
"""One test of each outcome."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kernel.pytest_guest import GuestMachine, MountResctrl

pytestmark = pytest.mark.guest(machines="milan-kvm", kernels="newest")


@pytest.fixture(scope="session")
def once() -> list[str]:
    return []


@pytest.fixture
def broken() -> None:
    raise RuntimeError("a fixture on purpose")


def test_passes(guest_machine: GuestMachine, once: list[str]) -> None:
    print("said inside")
    assert os.environ["VMQOS_GUEST"] == "milan-kvm:newest"
    assert guest_machine.name == "milan-kvm"
    assert (os.geteuid(), os.uname().nodename) == (0, "guest")
    once.append("passes")
    Path(os.environ["VMQOS_GUEST_OUT"], "left").write_text("by a test")


@pytest.mark.parametrize("said", ["passes", "with a / and [brackets]@"])
def test_sees_the_session(once: list[str], said: str) -> None:
    assert once[0] == "passes"
    once.append(said)


def test_fails() -> None:
    assert 6 * 7 == 41, "on purpose"


def test_has_a_broken_fixture(broken: None) -> None:
    raise AssertionError("not reached")


def test_mounts(mount_resctrl: MountResctrl) -> None:
    assert "L3:" in (mount_resctrl() / "schemata").read_text()


def test_leaves_resctrl_mounted() -> None:
    subprocess.run(["mount", "-t", "resctrl", "resctrl", "/sys/fs/resctrl"], check=True)


def test_finds_resctrl_unmounted() -> None:
    assert "resctrl /sys/fs/resctrl" not in Path("/proc/mounts").read_text()


@pytest.mark.timeout(2)
def test_takes_too_long() -> None:
    subprocess.run(["sleep", "100"], check=True)
