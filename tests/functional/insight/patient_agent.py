# SPDX-License-Identifier: Apache-2.0
"""The agent, with a lease of a trial that outlasts any time for which a busy machine keeps its client from asking."""

from __future__ import annotations

import sys
from unittest.mock import patch

from vmqos.agent import trial
from vmqos.agent.main import main as run

LEASE = 50.0
"""Seconds: less than a trial lasts at most."""


def main() -> int:
    """Run it."""
    with patch.object(trial, "LEASE", LEASE):
        return run()


if __name__ == "__main__":
    sys.exit(main())
