# SPDX-License-Identifier: Apache-2.0
"""The simulator of a machine on which things happen when a test says so: ``PROFILE MOUNTPOINT SYSFS LOG``.

Each line on standard input is carried out and then repeated on standard output:

* ``online 1`` and ``offline 1`` switch a CPU of the machine (the host's own stay as they are);
* ``open NAME`` opens the device of a pseudo-locked group, ``close 0`` unlocks what is left in
  cache 0, which no kernel up to 7.2 does when the device is closed (``tests/kernel/locks/test_left_locked.py``).
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tools.lab.simulator import Simulator
from vmqos.simulator import record
from vmqos.simulator import sysfs as sysfs_files
from vmqos.simulator.hardware.profiles import PROFILES, Profile
from vmqos.simulator.machine import Machine
from vmqos.simulator.procfs import ProcFs
from vmqos.simulator.service import _host_cpus, mount

Steer = Callable[[str], None]
"""Gives one command and waits until it is carried out."""


@contextmanager
def steered(simulator: Simulator, profile: str) -> Iterator[Steer]:
    """Replaces the simulator by one that can be steered, as long as the block runs."""
    module, files = "tests.functional.agent.steered_simulator", (simulator.root, simulator.sysfs, simulator.log)

    def steer(text: str) -> None:
        assert machine.stdin is not None and machine.stdout is not None
        machine.stdin.write(f"{text}\n")
        machine.stdin.flush()
        assert machine.stdout.readline() == f"{text}\n"

    with simulator.replaced(module, profile, *files, pipes=True) as machine:
        yield steer
    machine.communicate()


class Steering:
    """Carries the commands out."""

    def __init__(self, profile: Profile, sysfs: str) -> None:
        self._topology = profile.topology.fitted(_host_cpus())
        self._sysfs = sysfs
        self.machine = Machine(replace(profile, topology=self._topology), ProcFs())
        self.machine.mount("")
        sysfs_files.write(sysfs, self._topology)

    def run(self) -> None:
        """Read commands until there are no more; one that fails is answered by what went wrong."""
        for line in sys.stdin:
            verb, argument = line.split()
            try:
                getattr(self, verb)(argument)
            except Exception as error:
                line = f"{error!r}\n"
            print(line, end="", flush=True)

    def online(self, cpu: str) -> None:
        sysfs_files.write(self._sysfs, self._topology)
        self.machine.set_online(int(cpu), True)

    def offline(self, cpu: str) -> None:
        shutil.rmtree(Path(self._sysfs) / f"cpu{cpu}" / "cache")
        self.machine.set_online(int(cpu), False)

    def open(self, name: str) -> None:
        (region,) = (group.region for group in self.machine.mounted.groups if group.directory.name == name)
        assert region is not None
        region.device_open = True

    def close(self, cache: str) -> None:
        with self.machine.lock:
            for resource in self.machine.hardware.resources:
                for domain in resource.domains:
                    if domain.id == int(cache):
                        domain.region = None


def main(profile: str, mountpoint: str, sysfs: str, log: str) -> None:
    """Serve until it is unmounted."""
    steering = Steering(PROFILES[profile], sysfs)
    threading.Thread(target=steering.run, daemon=True).start()
    with open(log, "a", encoding="utf-8") as file:
        mount(steering.machine, mountpoint, record.to_file(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
