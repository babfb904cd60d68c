# SPDX-License-Identifier: Apache-2.0
"""A simulated machine in a process of its own that lasts over several mounts and obeys the replay.

The replay plays the hardware: it switches CPUs, makes counters unreadable and says which cache lines are gone.
Time stands still. One JSON request a line on standard input, one answer a line on standard output; the machine's
profile is the first line, pickled in base 64.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import pickle
import queue
import signal
import sys
import threading
from typing import Any

from vmqos.simulator.hardware.profiles import Profile
from vmqos.simulator.machine import Machine
from vmqos.simulator.procfs import ProcFs
from vmqos.simulator.service import mount


class Server:
    """Handlers of the requests."""

    def __init__(self, profile: Profile) -> None:
        self.machine = Machine(profile, ProcFs(), lambda: 0.0)
        self.to_mount: queue.Queue[str | None] = queue.Queue()

    def mount(self, mountpoint: str, options: str) -> None:
        """Mount the machine; FUSE follows in the main thread."""
        self.machine.mount(options)
        self.to_mount.put(mountpoint)

    def is_mounted(self) -> bool:
        """Whether it is."""
        return self.machine.is_mounted

    def set_online(self, cpu: int, online: bool) -> None:
        """Switch a CPU."""
        self.machine.set_online(cpu, online)

    def leave_limbo(self, count: int | None) -> None:
        """Let so many RMIDs leave limbo, or all, the lowest first: their lines are gone."""
        with self.machine.lock:
            rmids = self.machine.hardware.rmids
            for rmid in sorted(rmids.in_limbo[:count]):
                rmids.release(rmid)

    def rmids(self) -> dict[str, int]:
        """How many RMIDs are free and in limbo."""
        with self.machine.lock:
            rmids = self.machine.hardware.rmids
            return {"free": len(rmids.free), "limbo": len(rmids.in_limbo)}

    def fault(self, domain: int, text: str | None) -> None:
        """Make every counter of a cache unreadable, or readable again."""
        profile = self.machine.hardware.profile
        with self.machine.lock:
            for rmid in range(profile.monitoring.num_rmids if profile.monitoring else 0):
                self.machine.hardware.counters.set_fault(rmid, domain, text)

    def registers(self, wanted: list[tuple[int, int]]) -> list[int | str]:
        """What CPUs read from registers; the name of the error for one that they do not have."""
        found: list[int | str] = []
        for cpu, register in wanted:
            try:
                found.append(self.machine.read_register(cpu, register))
            except OSError as error:
                found.append(errno.errorcode[error.errno or errno.EIO])
        return found

    def hold_device(self, name: str, held: bool) -> None:
        """Hold the device of a pseudo-locked group open."""
        for group in self.machine.mounted.groups:
            if group.directory.name == name and group.region is not None:
                group.region.device_open = held


def main() -> None:
    """Serve until standard input ends."""
    profile: Profile = pickle.loads(base64.b64decode(sys.stdin.readline()))
    server = Server(profile)
    threading.Thread(target=_answer, args=(server,), daemon=True).start()
    while (mountpoint := server.to_mount.get()) is not None:
        mount(server.machine, mountpoint)


def _answer(server: Server) -> None:
    for line in sys.stdin:
        name, arguments = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = {"ret": getattr(server, name)(*arguments), "errno": None}
        except OSError as error:
            answer = {"ret": -1, "errno": errno.errorcode[error.errno or errno.EIO]}
        print(json.dumps(answer), flush=True)
    server.to_mount.put(None)
    if server.machine.is_mounted:
        # Whoever mounted it has died: nobody else will unmount it.
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
