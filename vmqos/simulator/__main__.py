# SPDX-License-Identifier: Apache-2.0
"""``python -m vmqos.simulator MOUNTPOINT --profile NAME``: the simulator without the ``vmqos`` command."""

from __future__ import annotations

import argparse

from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.service import serve


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m vmqos.simulator", description="Simulate an RDT machine.")
    parser.add_argument("mountpoint")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="cascade-lake")
    parser.add_argument("--mount-options", default="")
    parser.add_argument("--sysfs", help="where to write the caches' CPUs")
    parser.add_argument("--log", help="a file that gets one JSON line for each operation")
    arguments = parser.parse_args()
    try:
        serve(arguments.mountpoint, arguments.profile, arguments.mount_options, arguments.sysfs, arguments.log)
    except OSError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
