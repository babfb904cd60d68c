# SPDX-License-Identifier: Apache-2.0
"""Finding the VM that an experiment left paused, because it was killed together with its guardian.

A file says that a VM is paused for an experiment, for as long as it is. It is gone after a reboot, as the VM is.
"""

from __future__ import annotations

import json
import os
import shlex
from contextlib import suppress
from dataclasses import dataclass

from vmqos.bench import exceptions

DIRECTORY = "/run/vmqos"
"""Where the lock of an experiment is, too."""

_PREFIX = "bench-paused-"
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class LeftPaused:
    """A VM that was left paused.

    :ivar uri: libvirt's connection URI.
    :ivar uuid: the VM's UUID.
    :ivar name: its libvirt name.
    """

    uri: str
    uuid: str
    name: str

    @property
    def command(self) -> str:
        """The shell command that lets it run."""
        return shlex.join(["virsh", "--connect", self.uri, "resume", self.uuid])

    def __str__(self) -> str:
        return (
            f"VM {self.name} was paused for an experiment of 'vmqos bench', which was killed together with its guardian"
        )


def note(vm: LeftPaused) -> None:
    """Note that a VM is about to be paused for the experiment.

    :raises vmqos.bench.exceptions.LoadFailed: if that can't be written.
    """
    path = _path(vm.uuid)
    try:
        os.makedirs(DIRECTORY, mode=0o755, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"uri": vm.uri, "uuid": vm.uuid, "name": vm.name}, file)
    except OSError as error:
        raise exceptions.LoadFailed(what=f"the note that VM {vm.name} is paused", problem=f"{path}: {error}") from error


def forget(uuid: str) -> None:
    """Note that a VM is not paused for an experiment any more."""
    with suppress(OSError):
        os.unlink(_path(uuid))


def find() -> list[LeftPaused]:
    """The VMs that are noted and paused, or of which libvirt does not say whether they are; while no experiment runs.

    A VM that runs, or is gone, is noted no more.
    """
    found = []
    with suppress(OSError):
        for name in sorted(os.listdir(DIRECTORY)):
            if name.startswith(_PREFIX) and (vm := _read(os.path.join(DIRECTORY, name))) is not None:
                if _may_be_paused(vm):
                    found.append(vm)
                else:
                    forget(vm.uuid)
    return found


def _path(uuid: str) -> str:
    return os.path.join(DIRECTORY, f"{_PREFIX}{uuid}")


def _read(path: str) -> LeftPaused | None:
    try:
        with open(path, encoding="utf-8") as file:
            told = json.loads(file.read(_LONGEST))
        return LeftPaused(str(told["uri"]), str(told["uuid"]), str(told["name"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _may_be_paused(vm: LeftPaused) -> bool:
    try:
        from vmqos.bench import vms

        return vms.is_paused(vm.uri, vm.uuid)
    except (ImportError, exceptions.LoadFailed):
        return True
