# SPDX-License-Identifier: Apache-2.0
"""One experiment from its first look at the host to the last trace that is removed."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from vmqos.bench import experiment, guardian, ways
from vmqos.bench.experiment import Effort, Measured, Report
from vmqos.bench.parties import Chaser, Neighbor, Program, Streams, Victim, VmNeighbor, VmVictim
from vmqos.bench.setting import Host, Setting
from vmqos.resctrl import mount
from vmqos.resctrl.filesystem import Filesystem

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def clear(host: Host) -> list[str]:
    """Remove the groups of an experiment that was killed together with its guardian.

    :returns: their names.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there or the kernel refuses.
    """
    return ways.give_back(Filesystem(mount.find(host.resctrl).path), host.lock_timeout)


def run(host: Host, setting: Setting, command: str, effort: Effort, report: Report) -> Measured:
    """Make the experiment, and leave nothing behind, even when it is interrupted or killed.

    :param command: the operator's, which is measured; empty for the built-in victim.
    :raises vmqos.bench.exceptions.BenchError: if it can't be made, or says nothing.
    :raises vmqos.resctrl.exceptions.ResctrlError: if the kernel refuses something.
    """
    vm = (host.libvirt_uri, setting.neighbor_vm.uuid) if setting.neighbor_vm else ()
    with (
        _signals_raise(),
        guardian.watching(setting.filesystem.root, host.lock_timeout, vm) as tell,
        contextlib.ExitStack() as ends,
    ):
        neighbor = _neighbor(host, setting, tell)
        ends.callback(neighbor.end)
        victim = _victim(setting, command)
        ends.callback(victim.end)
        return experiment.run(
            setting.filesystem, victim, neighbor, setting.loan, host.policy, effort, host.lock_timeout, report
        )


def _victim(setting: Setting, command: str) -> Victim:
    if setting.vm is not None:
        return VmVictim(setting.vm, command)
    return Program(setting.place, command) if command else Chaser(setting.place, setting.working_set)


def _neighbor(host: Host, setting: Setting, tell: Callable[[bool], None]) -> Neighbor:
    if setting.neighbor_vm is not None:
        return VmNeighbor(host.libvirt_uri, setting.neighbor_vm, tell)
    return Streams(setting.noise, setting.place)


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Let a signal end the block as an exception does, so that everything in it is tidied up."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
