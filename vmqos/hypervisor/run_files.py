# SPDX-License-Identifier: Apache-2.0
"""The files that libvirt keeps of each running VM in its run directory, such as ``/run/libvirt/qemu``.

The status file, ``<run_dir>/<name>.xml``, tells of a VM that is being started, while libvirt itself answers no client.
libvirt's QEMU driver keeps it to know the VM again when libvirtd is restarted (``virDomainObjSave`` in
src/conf/domain_conf.c). The file is replaced at each change. It is there before QEMU is forked, with the PID 0, and has
QEMU's PID some 20 ms before QEMU's program begins, 50 ms before the first thread of a vCPU is made. The format is
libvirt's own, and may change: what can't be read is no status.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass

from vmqos.hypervisor import bounded_xml, domain_xml, exceptions
from vmqos.hypervisor.domain_xml import DomainDescription, Pinning


@dataclass(frozen=True, slots=True)
class DomainStatus:
    """A VM as its status file shows it.

    :ivar domain: what its domain XML says.
    :ivar pinning: where its threads are to run.
    :ivar pid: QEMU's PID; 0 before QEMU is forked.
    :ivar is_starting: whether libvirt is starting it: the guest does not run yet.
    :ivar is_incoming: whether it comes by a migration, and its memory is yet to come.
    """

    domain: DomainDescription
    pinning: Pinning
    pid: int
    is_starting: bool
    is_incoming: bool


def read(path: str, most: int) -> bytes | None:
    """A regular file that root, or the user that the agent runs as, has written; ``None`` where it is none.

    :param most: bytes; a longer file is none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()) or status.st_size > most:
            return None
        content = os.read(descriptor, status.st_size + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content


def read_status(path: str) -> DomainStatus | None:
    """The status of a VM; ``None`` where there is no such file, or no one that we understand."""
    content = read(path, bounded_xml.LONGEST)
    if content is None:
        return None
    try:
        return parse_status(content.decode())
    except (exceptions.UnreadableDescription, UnicodeDecodeError):
        return None


def parse_status(xml: str) -> DomainStatus:
    """Read a status file (``virDomainObjFormat``, ``qemuDomainObjPrivateXMLFormat``).

    :raises vmqos.hypervisor.exceptions.UnreadableDescription: if it is none.
    """
    status = bounded_xml.parse(xml)
    pid, domain = status.get("pid", ""), status.find("domain")
    if status.tag != "domstatus" or domain is None or not re.fullmatch("[0-9]{1,7}", pid, re.ASCII):
        raise exceptions.UnreadableDescription(error="it is no status of a domain")
    job = status.find("job")
    return DomainStatus(
        domain=domain_xml.read(domain),
        pinning=domain_xml.read_pinning(domain),
        pid=int(pid),
        is_starting=(status.get("state"), status.get("reason")) == ("paused", "starting up"),
        is_incoming=job is not None and job.get("async") == "migration in",
    )
