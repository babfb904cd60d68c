# SPDX-License-Identifier: Apache-2.0
"""Tests that take their guest's kernel down: one if the test before it is in the same guest, one always."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.guest(machines="milan-kvm", kernels="6.12")


def test_before() -> None:
    pass


def test_panics_once() -> None:
    if any("test_before" in name for name in json.loads(Path(os.environ["VMQOS_GUEST_ITEMS"]).read_text())):
        panic()


def test_panics() -> None:
    panic()


def test_after() -> None:
    pass


def panic() -> None:
    """Have the kernel crash."""
    Path("/proc/sysrq-trigger").write_text("c")
