# SPDX-License-Identifier: Apache-2.0
"""A test that takes its guest's kernel down."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.guest(machines="milan-kvm", kernels="6.12")


def test_before() -> None:
    pass


def test_panics() -> None:
    Path("/proc/sysrq-trigger").write_text("c")


def test_after() -> None:
    pass
