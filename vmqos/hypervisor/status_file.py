# SPDX-License-Identifier: Apache-2.0
"""What libvirt's status file says of a VM that is being started, while libvirt itself answers nobody.

libvirt's QEMU driver keeps one for each VM that runs, ``<run_dir>/<name>.xml``, to know the VM again when libvirtd is
restarted (``virDomainObjSave`` in src/conf/domain_conf.c). The file is replaced at each change. It is there before QEMU
is forked, with the PID 0, and has QEMU's PID some 20 ms before QEMU's program begins, 50 ms before the first thread of
a vCPU is made. The format is libvirt's own, and may change: what can't be read is no status.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vmqos.hypervisor import bounded_xml, domain_xml, exceptions, run_files
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


def read(path: str) -> DomainStatus | None:
    """The status of a VM; ``None`` where there is no such file, or no one that we understand."""
    content = run_files.read(path, bounded_xml.LONGEST)
    if content is None:
        return None
    try:
        return parse(content.decode())
    except (exceptions.UnreadableDescription, UnicodeDecodeError):
        return None


def parse(xml: str) -> DomainStatus:
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
