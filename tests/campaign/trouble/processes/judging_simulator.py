# SPDX-License-Identifier: Apache-2.0
"""The simulator with the judge in it: ``PROFILE MOUNTPOINT SYSFS LOG FOLDER``.

In the folder, ``truth.json`` has the VMs as they really are; whoever writes it puts a new file in its place. The judge
looks after each single write and appends what is wrong to ``verdicts``. The file ``countdown`` has the number of writes
after which the next writer is killed; so it dies before it learns that the last one was carried out. Whoever takes
that file away locks it first (flock). While the file ``faults`` is there, no counter can be read.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from tests.campaign.trouble.simulated import SimulatedHardware
from tests.campaign.trouble.vm import Vm
from tests.campaign.trouble.writes import Writes
from vmqos.simulator import record, service
from vmqos.simulator import sysfs as sysfs_files
from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.machine import Machine
from vmqos.simulator.procfs import ProcFs
from vmqos.simulator.record import Record

TRUTH, VERDICTS, COUNTDOWN, FAULTS = "truth.json", "verdicts", "countdown", "faults"
JUDGED = ("write", "mkdir", "rmdir", "rename")


class Court:
    """The judge, and what it knows.

    :param folder: see the module.
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine = machine
        self._folder = folder
        self._judge = Writes(SimulatedHardware(machine), self._vms, lambda: False)

    def look(self, one: Record) -> None:
        """Look after one operation, and kill who made it if it is time."""
        if one.op not in JUDGED:
            return
        self._set_faults("Unavailable" if (self._folder / FAULTS).exists() else None)
        with self._machine.lock:
            found = list(self._judge.after(one.op, one.path.lstrip("/"), one.data))
        if found:
            with (self._folder / VERDICTS).open("a") as verdicts:
                verdicts.writelines(f"{text}\n" for text in found)
        if one.errno is None:
            self._count_down(one.pid)

    def _count_down(self, pid: int) -> None:
        """Count a write, and kill who made it if it is time."""
        countdown = self._folder / COUNTDOWN
        try:
            file = countdown.open("r+")
        except FileNotFoundError:
            return
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_nlink:
                return
            left = int(file.read()) - 1
            if left > 0:
                file.seek(0)
                file.truncate()
                file.write(str(left))
                # Before the lock is given back.
                file.flush()
            else:
                countdown.unlink()
                os.kill(pid, signal.SIGKILL)

    def _set_faults(self, text: str | None) -> None:
        with self._machine.lock:
            hardware = self._machine.hardware
            for group in self._machine.mounted.every_group():
                for domain in hardware.l3_online:
                    hardware.counters.set_fault(group.rmid, domain, text)

    def _vms(self) -> list[Vm]:
        told = json.loads((self._folder / TRUTH).read_text())
        return [Vm(**{**one, "cpus": frozenset(one["cpus"])}) for one in told]


def main(profile: str, mountpoint: str, sysfs: str, log: str, folder: str) -> None:
    """Serve until it is unmounted."""
    chosen = PROFILES[profile]
    chosen = replace(chosen, topology=chosen.topology.fitted(os.sched_getaffinity(0)))
    machine = Machine(chosen, ProcFs())
    machine.mount("")
    sysfs_files.write(sysfs, chosen.topology)
    court = Court(machine, Path(folder))
    with open(log, "a", encoding="utf-8") as file:
        note = record.to_file(file)

        def observe(one: Record) -> None:
            note(one)
            court.look(one)

        service.mount(machine, mountpoint, observe)


if __name__ == "__main__":
    main(*sys.argv[1:])
