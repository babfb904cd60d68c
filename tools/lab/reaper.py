# SPDX-License-Identifier: Apache-2.0
"""Waits for the death of a workspace's owner, then removes the workspace: ``python -m tools.lab.reaper PATH``.

Standard input is a pipe whose other end only the owner holds; even SIGKILL closes it.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tools.lab import workspace


def main() -> None:
    """Outlive whatever ends the owner's terminal or process group, wait for end of file, clean."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while sys.stdin.buffer.read(1):
        pass
    workspace.remove(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
