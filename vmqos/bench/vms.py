# SPDX-License-Identifier: Apache-2.0
"""The operator's own VMs in the experiment; libvirt's library is loaded where there is one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from vmqos.bench import exceptions
from vmqos.hypervisor import exceptions as hypervisor_exceptions
from vmqos.hypervisor import processes, vm_tasks
from vmqos.hypervisor.model import VirtualMachine


def find(uri: str, run_dir: str, wanted: str) -> VirtualMachine:
    """The running VM of that UUID, libvirt name or Nova instance name.

    :param run_dir: where libvirt keeps the VMs' PID files.
    :raises vmqos.bench.exceptions.NoLibvirt: if libvirt can't be asked.
    :raises vmqos.bench.exceptions.NoSuchVm: if there is none.
    :raises vmqos.bench.exceptions.AmbiguousVm: if several have that name.
    """
    try:
        from vmqos.hypervisor.connection import Connection
    except ImportError as error:
        raise exceptions.NoLibvirt(uri=uri, wanted=wanted, problem="libvirt-python is not installed") from error
    connection = Connection(uri, lambda _: None, run_dir)
    connection.start(wait=True)
    try:
        running = [vm for uuid in sorted(connection.list_running()) if (vm := connection.describe(uuid)) is not None]
    except hypervisor_exceptions.HypervisorError as error:
        raise exceptions.NoLibvirt(uri=uri, wanted=wanted, problem=error) from error
    finally:
        connection.close()
    found = [vm for vm in running if vm.uuid == wanted.lower()] or [
        vm for vm in running if wanted in (vm.name, vm.metadata.instance_name if vm.metadata else "")
    ]
    if not found:
        raise exceptions.NoSuchVm(wanted=wanted)
    if len(found) > 1:
        raise exceptions.AmbiguousVm(wanted=wanted, matches=", ".join(vm.uuid for vm in found))
    return found[0]


def tasks_of(vm: VirtualMachine) -> frozenset[int]:
    """All its tasks.

    :raises vmqos.bench.exceptions.LoadFailed: if it has ended.
    """
    try:
        return frozenset(vm_tasks.all_tasks(vm))
    except hypervisor_exceptions.HypervisorError as error:
        raise exceptions.LoadFailed(what=f"VM {vm.name}", problem=error) from error


def cpus_of(vm: VirtualMachine) -> frozenset[int]:
    """The CPUs that any of its tasks may use."""
    return processes.cpu_affinity(tasks_of(vm))


def pause(uri: str, uuid: str) -> None:
    """Stop the VM's CPUs; its memory stays.

    :raises vmqos.bench.exceptions.LoadFailed: if libvirt refuses.
    """
    with _domain(uri, uuid) as domain:
        domain.suspend()


def resume(uri: str, uuid: str) -> None:
    """Have a paused VM go on; one that runs, or is gone, is left alone.

    :raises vmqos.bench.exceptions.LoadFailed: if libvirt refuses.
    """
    import libvirt

    try:
        with _domain(uri, uuid) as domain:
            if domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
                domain.resume()
    except exceptions.LoadFailed as error:
        if not _is_of_no_vm(error.__cause__):
            raise


def is_running(uri: str, uuid: str) -> bool:
    """Whether its CPUs run.

    :raises vmqos.bench.exceptions.LoadFailed: if libvirt does not say.
    """
    import libvirt

    with _domain(uri, uuid) as domain:
        return bool(domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING)


def is_paused(uri: str, uuid: str) -> bool:
    """Whether its CPUs are stopped; one that is gone is not paused.

    :raises vmqos.bench.exceptions.LoadFailed: if libvirt does not say.
    """
    import libvirt

    try:
        with _domain(uri, uuid) as domain:
            return bool(domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED)
    except exceptions.LoadFailed as error:
        if _is_of_no_vm(error.__cause__):
            return False
        raise


def _is_of_no_vm(error: BaseException | None) -> bool:
    """Whether libvirt has no such VM."""
    import libvirt

    return isinstance(error, libvirt.libvirtError) and bool(error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN)


@contextlib.contextmanager
def _domain(uri: str, uuid: str) -> Iterator[Any]:
    import libvirt

    libvirt.registerErrorHandler(lambda *_: None, None)
    try:
        connection = libvirt.open(uri)
        try:
            yield connection.lookupByUUIDString(uuid)
        finally:
            connection.close()
    except libvirt.libvirtError as error:
        raise exceptions.LoadFailed(what=f"VM {uuid}", problem=error) from error
