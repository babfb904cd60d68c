# SPDX-License-Identifier: Apache-2.0
"""A directory for a program whose processes may outlive its end for a moment, and write into it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.lab import processes

PATIENCE = 60.0
"""Seconds in which the last of them has ended on any machine."""


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A directory for as long as the block runs; removed again and again until it is gone.

    :raises TimeoutError: if something is written into it for longer than :data:`PATIENCE`.
    """
    path = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield path
    finally:
        processes.wait_until(lambda: _is_removed(path), f"the removal of {path}", PATIENCE)


def _is_removed(path: Path) -> bool:
    shutil.rmtree(path, ignore_errors=True)
    return not path.exists()
