# SPDX-License-Identifier: Apache-2.0
"""The program that reads counters by goresctrl: built where Go is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def build() -> bytes | None:
    """The program, which needs no library; ``None``, with the reason on standard error, where it can't be built."""
    go = shutil.which("go")
    if go is None:
        print("goresctrl is left out: there is no Go here", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory(prefix="vmqos-goresctrl-") as path:
        program = Path(path) / "goresctrl"
        command = [go, "build", "-trimpath", "-buildvcs=false", "-o", str(program), "."]
        done = subprocess.run(
            command,
            cwd=Path(__file__).parent,
            env={**os.environ, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(f"goresctrl is left out: {' '.join(command)}: {done.stderr.strip()}", file=sys.stderr)
            return None
        return program.read_bytes()
