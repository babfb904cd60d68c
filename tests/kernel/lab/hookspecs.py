# SPDX-License-Identifier: Apache-2.0
"""Hooks that a conftest can implement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kernel.lab.guest import Result


def pytest_guest_finished(config: pytest.Config, machine: str, kernel: str, result: Result) -> None:
    """Look at what a guest left, after the last of its tests, outside (with xdist: in the worker).

    :param result: what tests left in ``$VMQOS_GUEST_OUT`` is in ``result.path / "out"``; removed after this hook unless
        a test failed or ``--guest-out`` is given.
    """
