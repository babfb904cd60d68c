# SPDX-License-Identifier: Apache-2.0
"""A live migration from one private libvirtd to another, as libvirt does it for Nova."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType

import libvirt

from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.vms import RunningVm

FLAGS = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER | libvirt.VIR_MIGRATE_PERSIST_DEST
"""Nova's flags but for ``VIR_MIGRATE_UNDEFINE_SOURCE`` (``LibvirtDriver._prepare_migration_flags``)."""

GIVE_UP = 60.0
"""Seconds to wait at most for what mostly takes a part of one."""
POLL = 0.01

NOTHING_TO_ABORT = (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN)


class Migration:
    """A migration that is under way from :meth:`__enter__`; :meth:`__exit__` waits for its end.

    There is no network between the two, so the memory comes through a Unix socket.

    :param vm: the VM where it runs now.
    :param target: the libvirtd that it goes to.
    :param undefines: whether the source forgets the VM afterwards, as Nova has it.
    :param bandwidth: MiB of memory a second at most; 0 for no limit.
    :ivar arriving: the VM on the target. Its process is there, or the migration has ended.
    :ivar error: why the migration failed.
    """

    def __init__(self, vm: RunningVm, target: PrivateLibvirt, *, undefines: bool, bandwidth: int) -> None:
        self.arriving = RunningVm(vm.uuid, vm.name, target)
        self.error: libvirt.libvirtError | None = None
        self._vm = vm
        self._flags = FLAGS | (libvirt.VIR_MIGRATE_UNDEFINE_SOURCE if undefines else 0)
        self._parameters: dict[str, object] = {libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{target.run_dir}/incoming.sock"}
        if bandwidth:
            self._parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = bandwidth
        self._thread = threading.Thread(target=self._migrate, name="migration")

    def __enter__(self) -> Migration:
        self._thread.start()
        until = time.monotonic() + GIVE_UP
        while not self.has_begun and self._thread.is_alive() and time.monotonic() < until:
            time.sleep(POLL)
        return self

    @property
    def has_begun(self) -> bool:
        """Whether the process that gets the memory is there; one that has ended is not."""
        try:
            return bool(self.arriving.pid)
        except FileNotFoundError:
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.join()

    def join(self) -> None:
        """Wait for its end, well or ill."""
        self._thread.join(GIVE_UP)
        assert not self._thread.is_alive(), f"the migration of {self._vm.name} does not end"

    def cancel(self) -> None:
        """Have libvirt end it, if it has not ended."""
        try:
            self._vm.domain.abortJob()
        except libvirt.libvirtError as error:
            if error.get_error_code() not in NOTHING_TO_ABORT:
                raise

    def _migrate(self) -> None:
        try:
            # Two threads on one connection may hang in libvirt's own library (CVE-2024-4418).
            with contextlib.closing(self._vm.host.connect()) as connection:
                domain = connection.lookupByUUIDString(self._vm.uuid)
                domain.migrateToURI3(self.arriving.host.uri, self._parameters, self._flags)
        except libvirt.libvirtError as error:
            self.error = error
