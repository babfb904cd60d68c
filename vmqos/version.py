# SPDX-License-Identifier: Apache-2.0
"""Which vmqos this is."""

from __future__ import annotations

import functools
import importlib.metadata


@functools.cache
def version() -> str:
    """The installed version; ``unknown`` where vmqos runs from a tree that was never installed.

    It is looked for once: that takes longer than all else that is told of an agent's health.
    """
    try:
        return importlib.metadata.version("vmqos")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
