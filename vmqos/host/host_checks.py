# SPDX-License-Identifier: Apache-2.0
"""The doctor's look at the host: its CPUs, kernel, limits and libvirt. Each check is one function."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import threading
from collections.abc import Collection

from vmqos.host.finding import Finding, Status, count_of

FEW_DESCRIPTORS = 4096
"""Descriptors that the counters of some hundred VMs need: one for each group, cache and event."""

LIBVIRT_PATIENCE = 10.0
"""Seconds to wait for a libvirt that takes the connection and does not answer."""

LIBVIRT_SOCKETS = "/run/libvirt"
"""Where libvirt's daemons listen: the monolithic one on ``libvirt-sock``; that for QEMU, where each driver has a daemon
(the default of Fedora, RHEL 9 and openSUSE), on ``virtqemud-sock``."""

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin"

_FLAGS = {
    "cat_l3": "L3 allocation",
    "cqm_llc": "monitoring",
    "mba": "bandwidth allocation",
    "cdp_l3": "code/data split",
}


def cpu_flags(present: Collection[str], simulated: bool) -> Finding:
    """Whether the CPUs have Intel RDT or AMD PQoS, by the flags of ``/proc/cpuinfo``."""
    seen = [f"{flag} ({meaning})" for flag, meaning in _FLAGS.items() if flag in present]
    if "cat_l3" in present:
        return Finding("CPU", Status.OK, f"has {', '.join(seen)}")
    detail = "has no cat_l3: the L3 cache can't be partitioned" + (f", only {', '.join(seen)}" if seen else "")
    if simulated:
        return Finding("CPU", Status.OK, f"{detail}; the simulator stands in for it")
    if "hypervisor" in present:
        detail += ". This is a virtual machine, and hypervisors do not pass RDT on"
    return Finding("CPU", Status.PROBLEM, detail, "vmqos simulate --list-profiles   # to try vmqos out on this host")


def kernel_support(filesystems: str, simulated: bool) -> Finding:
    """Whether the kernel offers resctrl: it registers the filesystem only where the CPU has something to control."""
    if re.search(r"\bresctrl$", filesystems, re.MULTILINE):
        return Finding("Kernel", Status.OK, "offers the resctrl filesystem")
    detail = f"Linux {platform.release()} offers no resctrl: the CPU lacks it, or CONFIG_X86_CPU_RESCTRL is off"
    if simulated:
        return Finding("Kernel", Status.OK, f"{detail}; the simulator stands in for it")
    return Finding("Kernel", Status.PROBLEM, detail, 'grep X86_CPU_RESCTRL "/boot/config-$(uname -r)"')


def kernel_command_line(text: str) -> Finding:
    """Whether ``rdt=`` turns anything off (Documentation/admin-guide/kernel-parameters: ``rdt=!l3cat``)."""
    words = [word for word in text.split() if word.startswith("rdt=")]
    off = [name[1:] for word in words for name in word[4:].split(",") if name.startswith("!")]
    if not off:
        return Finding("Kernel command line", Status.OK, f"has {' '.join(words)}" if words else "turns nothing off")
    status = Status.PROBLEM if "l3cat" in off else Status.WARNING
    command = (
        f"edit GRUB_CMDLINE_LINUX in /etc/default/grub to be without {' '.join(words)}, then update-grub and reboot"
    )
    return Finding("Kernel command line", status, f"{' '.join(words)} turns off {', '.join(off)}", command)


def libvirt_answers(uri: str, patience: float = LIBVIRT_PATIENCE) -> Finding:
    """Whether libvirt tells which VMs run, within some seconds."""
    found: list[Finding] = []
    # A call to a libvirtd that hangs can't be called off, only be left alone.
    asking = threading.Thread(target=lambda: found.append(_ask_libvirt(uri)), daemon=True)
    asking.start()
    asking.join(patience)
    if found:
        return found[0]
    detail = f"{uri}: libvirt takes the connection, but does not answer within {patience:.0f} s"
    return Finding("libvirt", Status.PROBLEM, detail, f"systemctl restart {libvirt_daemon()}")


def libvirt_daemon(sockets: str = LIBVIRT_SOCKETS, path: str = _SBIN) -> str:
    """The unit of the libvirt daemon that has the VMs: the one that listens, else the one that is installed.

    Never do both: ``virtqemud.service`` conflicts with ``libvirtd.service``.
    """
    for name, socket in (("virtqemud", "virtqemud-sock"), ("libvirtd", "libvirt-sock")):
        if os.path.exists(f"{sockets}/{socket}"):
            return name
    modular = shutil.which("virtqemud", path=path) and not shutil.which("libvirtd", path=path)
    return "virtqemud" if modular else "libvirtd"


def _ask_libvirt(uri: str) -> Finding:
    title = "libvirt"
    try:
        import libvirt
    except ImportError:
        return Finding(title, Status.PROBLEM, "libvirt-python is not installed", "pip install 'vmqos[agent]'")
    libvirt.registerErrorHandler(lambda *_: None, None)
    try:
        connection = libvirt.openReadOnly(uri)
        count, version = connection.numOfDomains(), connection.getLibVersion()
        connection.close()
    except libvirt.libvirtError as error:
        return Finding(title, Status.PROBLEM, f"{uri}: {error}", f"systemctl start {libvirt_daemon()}")
    release = f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"
    return Finding(title, Status.OK, f"{release} answers on {uri}, {count_of(count, 'running VM')}")


def pid_files(directory: str) -> Finding:
    """Whether the PID files of libvirt's VMs can be read; the agent learns there which VMs are being started, too."""
    try:
        # driver.pid is the daemon's own.
        count = sum(name.endswith(".pid") and name != "driver.pid" for name in os.listdir(directory))
    except OSError as error:
        command = (
            "sudo vmqos doctor" if isinstance(error, PermissionError) else "set [libvirt] run_dir, if it is elsewhere"
        )
        detail = f"{directory}: {error.strerror}"
        if isinstance(error, FileNotFoundError):
            detail += ". A VM that starts gets its ways only once it runs"
        return Finding("QEMU PID files", Status.WARNING, detail, command)
    return Finding("QEMU PID files", Status.OK, f"{directory} can be read, {count_of(count, 'PID file')}")


def cgroups(mounts: str) -> Finding:
    """Which cgroup version tells the tasks of a VM."""
    # A mount point may hold every other break of lines, and every blank but the ordinary one.
    found = (line.split(" ") for line in mounts.split("\n"))
    kinds = {fields[2] for fields in found if len(fields) > 3}
    versions = [name for kind, name in (("cgroup", "v1"), ("cgroup2", "v2")) if kind in kinds]
    if not versions:
        detail = "not mounted: helper processes of a VM (swtpm, virtiofsd) can't be found"
        return Finding("cgroups", Status.WARNING, detail, "mount -t cgroup2 none /sys/fs/cgroup")
    return Finding("cgroups", Status.OK, " and ".join(versions) + (" (hybrid)" if len(versions) > 1 else ""))


def descriptors(limit: int) -> Finding:
    """Whether the agent can keep its counters open (``RLIMIT_NOFILE``, the hard limit)."""
    if limit == resource.RLIM_INFINITY or limit >= FEW_DESCRIPTORS:
        return Finding("Open files", Status.OK, "unlimited" if limit == resource.RLIM_INFINITY else f"up to {limit}")
    command = f"set LimitNOFILE={FEW_DESCRIPTORS} or more by 'systemctl edit vmqos-agent'"
    return Finding("Open files", Status.WARNING, f"no more than {limit}: too few for the counters of many VMs", command)
