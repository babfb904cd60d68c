# SPDX-License-Identifier: Apache-2.0
"""Serving a simulated machine at a mount point until it is unmounted or the process is told to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace

from vmqos.simulator import record
from vmqos.simulator import sysfs as sysfs_files
from vmqos.simulator.filesystem import Observer, ResctrlFilesystem, run
from vmqos.simulator.hardware.profiles import PROFILES, Profile
from vmqos.simulator.kernel.cpus import parse_list
from vmqos.simulator.machine import Machine
from vmqos.simulator.procfs import ProcFs

_MANY_CPUS = 1 << 16
_ENDING = (signal.SIGTERM, signal.SIGINT)


def serve(
    mountpoint: str,
    profile: Profile | str,
    mount_options: str = "",
    sysfs: str | None = None,
    log: str | None = None,
    observer: Observer | None = None,
    announce: Callable[[], None] | None = None,
) -> None:
    """Mount a simulated machine of this host's CPUs and serve it; returns when it is unmounted.

    SIGTERM and SIGINT unmount it. Call it from the main thread of a process that has nothing else to do.

    :param mountpoint: an existing directory.
    :param profile: one of :data:`vmqos.simulator.hardware.profiles.PROFILES`, or its name.
    :param mount_options: resctrl's own, joined by commas: ``cdp``, ``cdpl2``, ``mba_MBps``, ``debug``.
    :param sysfs: where to write the caches' CPUs (see :func:`vmqos.simulator.sysfs.write`).
    :param log: a file that gets one JSON line for each operation that could change something.
    :param observer: called for the same operations.
    :param announce: called once the mount works.
    :raises KeyError: if there is no profile of that name.
    :raises OSError: ``EINVAL`` if the machine cannot give a mount option, ``EIO`` if FUSE cannot mount, others if
        a file cannot be written.
    """
    chosen = PROFILES[profile] if isinstance(profile, str) else profile
    chosen = replace(chosen, topology=chosen.topology.fitted(_host_cpus()))
    machine = Machine(chosen, ProcFs())
    machine.mount(mount_options)
    if sysfs is not None:
        sysfs_files.write(sysfs, chosen.topology)
    with ExitStack() as stack:
        observers = [observer] if observer is not None else []
        if log is not None:
            observers.append(record.to_file(stack.enter_context(open(log, "a", encoding="utf-8"))))
        mount(machine, mountpoint, _all(observers), announce)


def mount(
    machine: Machine,
    mountpoint: str,
    observer: Observer | None = None,
    announce: Callable[[], None] | None = None,
) -> None:
    """Serve a machine that is mounted at ``mountpoint`` until FUSE ends, then unmount the machine too.

    :raises OSError: ``EIO`` if FUSE cannot mount.
    """
    options = str(machine.mounted.options)
    # FUSE ends in order on these signals where no other code handles them, and once it does: until then they wait.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)

    def ready() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def begun() -> None:
        ready()
        if announce is not None:
            announce()

    source = "+".join(["resctrl", *filter(None, options.split(","))])
    try:
        run(ResctrlFilesystem(machine, observer, begun), mountpoint, source)
    finally:
        machine.unmount()
        ready()


def _all(observers: Iterable[Observer]) -> Observer:
    def tell(one: record.Record) -> None:
        for observer in observers:
            observer(one)

    return tell


def _host_cpus() -> frozenset[int]:
    """The CPUs that are online; they need not be numbered without gaps."""
    with open("/sys/devices/system/cpu/online", encoding="ascii") as file:
        return parse_list(file.read(), _MANY_CPUS)
