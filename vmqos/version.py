# SPDX-License-Identifier: Apache-2.0
"""Which vmqos this is."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """The installed version; ``unknown`` where vmqos runs from a tree that was never installed."""
    try:
        return importlib.metadata.version("vmqos")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
