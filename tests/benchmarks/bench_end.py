# SPDX-License-Identifier: Apache-2.0
"""How soon the ways of a VM are others' again once its last task has ended, with 100 real VMs on the host.

The end of the task is told by the kernel (pidfd), the return of the ways by the simulator's log: the group's removal,
or the wider mask of the default group, whichever comes last.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
import time
from collections.abc import Iterator, Set

from tests.benchmarks.bench_start import load, wait_until_quiet, wait_until_settled
from tests.benchmarks.figures import Figure, percentile, spread
from tests.benchmarks.host import Host, host, standing
from tools.lab import vms
from tools.lab.vms import RunningVm

STANDING = 100
ENDS = 40
AT_ONCE = 4
LONGEST = 30.0
"""Seconds after which a benchmark gives up."""
UNASKED = 0.5
"""Seconds after an end in which the benchmark asks the agent nothing."""
OWN = vms.Flavor("ends", {"hw:cache_ways": "2"})


def run() -> Iterator[Figure]:
    """End VMs by libvirt and by SIGKILL, one at a time and four at once, beside 100 standing ones."""
    with contextlib.ExitStack() as leaving:
        ours = leaving.enter_context(host())
        ours.agent.start()
        connection = leaving.enter_context(contextlib.closing(ours.daemon.connect()))
        for number in range(STANDING):
            vms.start(connection, standing(number))
        wait_until_settled(ours.agent, STANDING)
        for name, count, is_killed, is_busy in (
            ("destroyed by libvirt", 1, False, False),
            ("killed", 1, True, False),
            ("killed, every CPU busy", 1, True, True),
            (f"{AT_ONCE} killed at once", AT_ONCE, True, False),
        ):
            with load(is_busy):
                delays = [delay for turn in range(ENDS // count) for delay in _ends(ours, turn, count, is_killed)]
            yield Figure(f"{name}: last task to ways given back, p99", percentile(delays, 0.99), "ms", 50.0,
                         spread(delays, "ms"))  # fmt: skip


def _ends(ours: Host, turn: int, count: int, is_killed: bool) -> list[float]:
    """Start some VMs, end them at the same moment; milliseconds until the ways of each are given back."""
    started = [vms.run(ours.daemon, vms.Vm(f"ends-{turn}-{number}", OWN)) for number in range(count)]
    wait_until_settled(ours.agent, STANDING + count)
    wait_until_quiet(ours)
    mark = os.stat(ours.simulator.log).st_size
    ended = dict[str, float]()
    with contextlib.ExitStack() as leaving:
        watching = []
        for vm in started:
            descriptor = os.pidfd_open(vm.pid)
            leaving.callback(os.close, descriptor)
            watching.append(threading.Thread(target=_note_end, args=(vm, descriptor, ended)))
            watching[-1].start()
        for vm in started:
            if is_killed:
                os.kill(vm.pid, signal.SIGKILL)
            else:
                threading.Thread(target=vm.domain.destroy).start()
        for thread in watching:
            thread.join()
        # To ask the agent just now would be to delay it.
        time.sleep(UNASKED)
        wait_until_settled(ours.agent, STANDING)
    groups = {vm.uuid: f"vmqos.{vm.uuid}" for vm in started}
    given_back = _all_given_back(ours, mark, set(groups.values()))
    for vm in started:
        vms.remove(ours.daemon.connection(), vm.uuid)
    return [(given_back[groups[vm.uuid]] - ended[vm.uuid]) * 1e3 for vm in started]


def _all_given_back(ours: Host, mark: int, groups: Set[str]) -> dict[str, float]:
    """Wait until these groups are gone and nothing changes any more; when the ways of each were others' again.

    :raises TimeoutError: if one is still there after :data:`LONGEST`.
    """
    deadline = time.monotonic() + LONGEST
    while time.monotonic() < deadline:
        wait_until_quiet(ours)
        found = _given_back(ours, mark)
        if groups <= found.keys():
            return found
    raise TimeoutError(f"the agent has not removed {', '.join(groups - found.keys())}")


def _note_end(vm: RunningVm, descriptor: int, ended: dict[str, float]) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()
    ended[vm.uuid] = time.time()


def _given_back(ours: Host, mark: int) -> dict[str, float]:
    """When the ways of each group that was removed were others' again, since the log had so many bytes."""
    found, waiting = dict[str, float](), set[str]()
    with ours.simulator.log.open() as log:
        log.seek(mark)
        for line in log:
            change = json.loads(line)
            if change["op"] == "rmdir":
                waiting.add(change["path"])
                found[change["path"]] = change["time"]
            elif change["op"] == "write" and change["path"] == "schemata":
                # The default group gets what was freed before.
                found |= dict.fromkeys(waiting, change["time"])
                waiting.clear()
    return found
