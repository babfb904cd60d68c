# SPDX-License-Identifier: Apache-2.0
"""The simulator of a machine whose CPUs can be switched: ``MOUNTPOINT SYSFS LOG``.

Each line on standard input, ``online 1`` or ``offline 1``, switches a CPU of it, and is repeated on standard output
when that is done. The host's own CPUs stay as they are.
"""

from __future__ import annotations

import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path

from vmqos.simulator import record
from vmqos.simulator import sysfs as sysfs_files
from vmqos.simulator.machine import Machine
from vmqos.simulator.procfs import ProcFs
from vmqos.simulator.profiles import PROFILES
from vmqos.simulator.service import _host_cpus, mount


def main(mountpoint: str, sysfs: str, log: str) -> None:
    """Serve until it is unmounted."""
    topology = PROFILES["cascade-lake"].topology.fitted(_host_cpus())
    machine = Machine(replace(PROFILES["cascade-lake"], topology=topology), ProcFs())
    machine.mount("")
    sysfs_files.write(sysfs, topology)

    def switch() -> None:
        for line in sys.stdin:
            action, cpu = line.split()
            if action == "offline":
                shutil.rmtree(Path(sysfs) / f"cpu{cpu}" / "cache")
            else:
                sysfs_files.write(sysfs, topology)
            machine.set_online(int(cpu), action == "online")
            print(line, end="", flush=True)

    threading.Thread(target=switch, daemon=True).start()
    with open(log, "a", encoding="utf-8") as file:
        mount(machine, mountpoint, record.to_file(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
