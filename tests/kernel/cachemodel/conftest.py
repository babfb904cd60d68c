# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the model as a library."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tests.kernel.cachemodel import library


@pytest.fixture(scope="session")
def replay(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The model, compiled for this machine."""
    return library.build(Path(tmp_path_factory.mktemp("model")))
