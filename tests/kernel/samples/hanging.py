# SPDX-License-Identifier: Apache-2.0
"""A test with which its guest falls silent: not even its time limit ends it."""

from __future__ import annotations

import os
import signal

import pytest

pytestmark = pytest.mark.guest(machines="milan-kvm", kernels="6.12")


@pytest.mark.timeout(1, func_only=True)
def test_hangs() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def test_after() -> None:
    pass
