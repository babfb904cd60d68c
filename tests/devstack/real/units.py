# SPDX-License-Identifier: Apache-2.0
"""``systemctl`` for the units of a directory, on a machine whose systemd is not ours to use.

::

    python -m tests.devstack.real.units ROOT COMMAND [UNIT]

The units are in ``ROOT/systemd``; of what they say, ``ExecStart`` is done; nothing is mounted. ``ROOT/units`` has an
empty file for each one that is enabled, and a file with the PID for each that was started. Every call is a line of
``ROOT/calls``. ``ROOT`` is in a :class:`tools.lab.workspace.Workspace`, which ends what is left running.
"""

from __future__ import annotations

import configparser
import shlex
import subprocess
import sys
from pathlib import Path

from tools.lab import processes

STOP_TIMEOUT = 30.0


def main(root: Path, command: str, unit: str = "") -> int:
    """Do as ``systemctl``; the result is the exit status."""
    with (root / "calls").open("a") as calls:
        calls.write(" ".join(filter(None, ["systemctl", command, unit])) + "\n")
    state = root / "units"
    state.mkdir(exist_ok=True)
    enabled, pid = state / f"{unit}.enabled", state / f"{unit}.pid"
    match command:
        case "enable":
            enabled.touch()
        case "disable":
            enabled.unlink()
        case "is-enabled":
            return 0 if enabled.exists() else 1
        case "start":
            if unit.endswith(".service") and not _running(pid):
                _start(root / "systemd" / unit, pid)
        case "stop":
            _stop(pid)
        case "daemon-reload":
            pass
        case _:
            print(f"systemctl {command} is not one of this stand-in's commands", file=sys.stderr)
            return 2
    return 0


def _running(file: Path) -> bool:
    return file.exists() and processes.start_time(int(file.read_text())) is not None


def _start(unit: Path, file: Path) -> None:
    root = unit.parent.parent
    # A unit may have a key several times; the last one counts.
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.read_string(unit.read_text())
    with (root / f"{unit.name}.log").open("ab") as log:
        process = subprocess.Popen(
            shlex.split(parser["Service"]["ExecStart"]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    file.write_text(str(process.pid))
    # As Workspace.record_process: whoever ends the workspace ends the process.
    (root.parent / "processes" / str(process.pid)).write_text(f"{processes.start_time(process.pid)}\n")


def _stop(file: Path) -> None:
    if not _running(file):
        return
    pid = int(file.read_text())
    started = processes.start_time(pid)
    processes.end(pid, lambda found: processes.start_time(found) == started, polite_for=STOP_TIMEOUT)
    file.unlink()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
