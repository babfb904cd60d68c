# SPDX-License-Identifier: Apache-2.0
"""A VM as the hypervisor shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """One process, told apart from a later one of the same PID by its start time.

    :ivar pid: its PID in the agent's PID namespace.
    :ivar start_time: clock ticks since boot (``/proc/<pid>/stat``, field 22 of proc(5)).
    """

    pid: int
    start_time: int


@dataclass(frozen=True, slots=True)
class NovaMetadata:
    """What Nova writes into the domain XML (``nova.virt.libvirt.config.LibvirtConfigGuestMetaNovaInstance``).

    :ivar instance_name: the server's display name.
    :ivar flavor: the flavor's name.
    :ivar project: the project's UUID, empty where Nova does not say.
    :ivar extra_specs: the flavor's extra specs; ``None`` where Nova wrote none (before 2025.2).
    """

    instance_name: str
    flavor: str
    project: str
    extra_specs: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class VirtualMachine:
    """A running VM.

    :ivar uuid: its libvirt UUID, which is the Nova server's too.
    :ivar name: its libvirt name, such as ``instance-0000002a``.
    :ivar libvirt_id: libvirt's number for this run of the VM; it changes at every start.
    :ivar process: its QEMU process.
    :ivar cgroup: the cgroup directory that holds all its processes; ``None`` where libvirt uses no cgroups.
    :ivar has_cachetune: whether libvirt itself placed it with ``<cachetune>`` or ``<memorytune>``.
    :ivar metadata: Nova's metadata; ``None`` for a VM that Nova did not make.
    :ivar metadata_error: what is wrong with the metadata, empty where nothing is.
    :ivar waiting_vcpus: the ids of the threads of its vCPUs while its memory comes from another host, and is to be kept
        out of its ways; otherwise ``None``.
    :ivar vcpus: how many vCPUs it had when libvirt was asked; 0 where that is not known.
    """

    uuid: str
    name: str
    libvirt_id: int
    process: Process
    cgroup: str | None
    has_cachetune: bool
    metadata: NovaMetadata | None
    metadata_error: str = ""
    waiting_vcpus: frozenset[int] | None = None
    vcpus: int = 0
