# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with libvirt and /proc: one class a failure, its message what the operator should do."""

from __future__ import annotations

from vmqos.reason import Code


class HypervisorError(Exception):
    """The root of this package's errors; each subclass fills ``msg_fmt`` from its keyword arguments."""

    msg_fmt = "the hypervisor failed"
    code = Code.OTHER
    """What it is to a VM: see :class:`vmqos.reason.Reason`."""

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self.msg_fmt.format(**values))


class HypervisorUnreachable(HypervisorError):
    """There is no connection to libvirt now."""

    msg_fmt = (
        "libvirt can't be reached at {uri}: {error}. Check that libvirtd (or virtqemud) runs and that this user may "
        "connect, with: virsh --readonly --connect '{uri}' list"
    )


class NoHypervisor(HypervisorUnreachable):
    """No libvirt runs here, or none has started yet: its socket is not there."""


class HypervisorFailed(HypervisorError):
    """libvirt is there, but refused or failed a call."""

    msg_fmt = "libvirt at {uri} failed: {error}"


class UnreadableDescription(HypervisorError):
    """A domain XML that no libvirt would write."""

    msg_fmt = "the domain XML can't be read: {error}"
    code = Code.UNREADABLE


class ProcessVanished(HypervisorError):
    """A process or thread ended while it was looked at, or its ID is another one's by now."""

    msg_fmt = "process {pid} has ended"


class ProcessUnreadable(HypervisorError):
    """The kernel does not let this user see a process."""

    msg_fmt = "/proc/{pid} can't be read: {error}. Run as root, and mount /proc without hidepid"


class ProcessTooLong(ProcessUnreadable):
    """A process has a file in /proc that is longer than any honest process's."""

    code = Code.UNREADABLE
    msg_fmt = (
        "/proc/{pid}/{name} is longer than {most} bytes, which is more than the kernel lets a program begin with: "
        "process {pid} has changed it itself. Look at what runs there; if it is a VM's QEMU, end the VM"
    )


class TooManyThreads(ProcessUnreadable):
    """A process, or all processes of a VM, have more threads than are looked at."""

    code = Code.UNREADABLE
    msg_fmt = (
        "process {pid} and what belongs to it have {count} threads, more than the {most} that a VM may have. "
        "Look at what runs there; if the guest or a helper process made them, end the VM"
    )


class NoProcess(HypervisorError):
    """No process is the QEMU of a VM that libvirt lists."""

    code = Code.UNREADABLE
    msg_fmt = (
        "the QEMU process of VM {uuid} was not found: libvirt's PID file leads to none, and no process says "
        "'-uuid {uuid}'. It has ended just now, or has changed what it says; or [libvirt] run_dir is not where libvirt "
        "keeps the files"
    )


class SearchTooLong(NoProcess):
    """A VM's QEMU was not found among the host's processes in time."""

    msg_fmt = (
        "the QEMU process of VM {uuid} was not found within {seconds:g} s. Its PID file leads to no such process: "
        "check that [libvirt] run_dir is where libvirt keeps them, and that the agent sees the host's processes"
    )


class CgroupTooLarge(HypervisorError):
    """A VM's cgroup holds more than is looked at."""

    code = Code.UNREADABLE
    msg_fmt = (
        "{path} holds more than {most} {what}. Look at what made them; if a helper process of the VM did, end the VM"
    )


class CgroupUnreadable(HypervisorError):
    """The kernel does not let this user see a VM's cgroup."""

    msg_fmt = "{path} can't be read: {error}. Run as root"


class QemuRefused(HypervisorError):
    """QEMU refused a command of its monitor."""

    msg_fmt = (
        "QEMU refused {command}: {error}. A device that it may not open has to be named in cgroup_device_acl of "
        "/etc/libvirt/qemu.conf, and to be there, when the VM starts: leave it for the VM's next start (--next-start)"
    )


class DefinitionChanged(HypervisorError):
    """Another program changed a VM's definition while it was being changed here."""

    msg_fmt = "another program goes on changing the definition of VM {name}; what that program wrote was kept"


class NoFreePort(HypervisorError):
    """A running VM has no slot for another PCI device."""

    msg_fmt = (
        "it has no pcie-root-port without a device, and its first bus takes none while it runs: add a root port for "
        "its next start, or leave the device for then (--next-start)"
    )
