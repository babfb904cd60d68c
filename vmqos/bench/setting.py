# SPDX-License-Identifier: Apache-2.0
"""The setting of an experiment on this host: the cache, the ways and the two parties. Nothing is changed to find it."""

from __future__ import annotations

from dataclasses import dataclass

from vmqos.bench import exceptions, parties, place, reality, vms, ways
from vmqos.bench.load import LINE
from vmqos.bench.place import Place
from vmqos.bench.ways import Loan, Policy
from vmqos.hypervisor.model import VirtualMachine
from vmqos.resctrl import mount, topology
from vmqos.resctrl.filesystem import Filesystem


@dataclass(frozen=True, slots=True)
class Host:
    """Where things are on this host, and what its operator allows.

    :ivar resctrl: where resctrl is mounted.
    :ivar sysfs_cpu: where the kernel says which CPUs share which cache.
    :ivar lock_timeout: seconds to wait for resctrl's lock.
    :ivar libvirt_uri: libvirt's connection URI.
    :ivar run_dir: where libvirt keeps the VMs' PID files.
    """

    resctrl: str
    sysfs_cpu: str
    lock_timeout: float
    policy: Policy
    libvirt_uri: str
    run_dir: str


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the operator wants; ``None`` and empty leave the choice to us.

    :ivar cache: the id of the L3.
    :ivar ways: how many ways the victim gets.
    :ivar neighbors: how many neighbours there are at most, 1 or more.
    :ivar noise: ``auto``, ``builtin``, ``stream`` or ``cache``.
    :ivar working_set: bytes that the built-in victim works on.
    :ivar vm: the VM that is the victim.
    :ivar neighbor_vm: the VM that is the neighbour.
    """

    cache: int | None = None
    ways: int | None = None
    neighbors: int = 3
    noise: str = "auto"
    working_set: int | None = None
    vm: str = ""
    neighbor_vm: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """The experiment as it will be.

    :ivar loan: the ways that the victim will get.
    :ivar total_ways: how many the cache has.
    :ivar noise: the kind of the built-in neighbour.
    :ivar working_set: bytes that the built-in victim works on.
    :ivar vm: the VM that is the victim, if one is.
    :ivar neighbor_vm: the VM that is the neighbour, if one is.
    :ivar meaningless: why the figures mean nothing; empty if they mean something.
    :ivar remarks: what else is to be known.
    """

    filesystem: Filesystem
    place: Place
    loan: Loan
    total_ways: int
    noise: str
    working_set: int
    vm: VirtualMachine | None
    neighbor_vm: VirtualMachine | None
    meaningless: str
    remarks: tuple[str, ...]


def find(host: Host, wishes: Wishes) -> Setting:
    """Look at the host.

    :raises vmqos.bench.exceptions.BenchError: if the experiment can't be made here, with what it would take.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there or can't be read.
    """
    mounted = mount.find(host.resctrl)
    filesystem = Filesystem(mounted.path)
    noise = parties.noise(wishes.noise)
    vm = vms.find(host.libvirt_uri, host.run_dir, wishes.vm) if wishes.vm else None
    neighbor_vm = vms.find(host.libvirt_uri, host.run_dir, wishes.neighbor_vm) if wishes.neighbor_vm else None
    caches = topology.read_caches(3, host.sysfs_cpu)
    victims, neighbors = _cpus(vm, caches, mounted.simulated), _cpus(neighbor_vm, caches, mounted.simulated)
    if vm and neighbor_vm and victims & neighbors:
        shared = ", ".join(map(str, sorted(victims & neighbors)))
        raise exceptions.VmsShareCpus(one=vm.name, other=neighbor_vm.name, cpus=shared)
    with filesystem.lock(exclusive=False, timeout=host.lock_timeout):
        taken = topology.parse_cpu_list(ways.cpus_of_others(filesystem))
        where = place.choose(
            caches,
            min(topology.cache_sizes(host.sysfs_cpu, 2).values(), default=0),
            place.own_cpus() - taken,
            wishes.cache,
            wishes.neighbors,
            victim=victims,
            neighbors=neighbors,
            simulated=mounted.simulated,
        )
        loan, capabilities, _ = ways.look(filesystem, where.cache, wishes.ways, host.policy)
    total = max(resource.way_count for resource in ways.l3_resources(capabilities))
    size = wishes.working_set or _half(where, loan, total, host.sysfs_cpu)
    return Setting(
        filesystem=filesystem,
        place=where,
        loan=loan,
        total_ways=total,
        noise=noise,
        working_set=size,
        vm=vm,
        neighbor_vm=neighbor_vm,
        meaningless=reality.why_not(mounted.simulated),
        remarks=tuple(_remarks(where, loan, total, size, vm)),
    )


def _cpus(vm: VirtualMachine | None, caches: dict[int, topology.Cache], simulated: bool) -> frozenset[int]:
    """The CPUs that a VM is confined to, which must be those of one cache.

    :raises vmqos.bench.exceptions.VmNotConfined: if they are not.
    """
    if vm is None:
        return frozenset()
    cpus = vms.cpus_of(vm)
    on = [cache.id for cache in caches.values() if cache.cpus & cpus]
    if len(on) != 1 and not simulated:
        text = ",".join(map(str, sorted(cpus)))
        raise exceptions.VmNotConfined(name=vm.name, cpus=text, caches=", ".join(map(str, on)) or "none")
    return cpus


def _half(where: Place, loan: Loan, total: int, sysfs: str) -> int:
    """Half of what the ways hold: lines fall into the sets by chance, and a set that is full is missed in.

    :raises vmqos.bench.exceptions.UnknownSize: if the kernel does not say what a way holds.
    """
    if where.size is None:
        raise exceptions.UnknownSize(cache=where.cache, sysfs=sysfs)
    return max(where.size // total * loan.mask.count // 2 // LINE, 2) * LINE


def _remarks(where: Place, loan: Loan, total: int, size: int, vm: VirtualMachine | None) -> list[str]:
    remarks = []
    if not where.is_real:
        remarks.append("the simulated machine has no two cores of one L3 here, so the loads run on cores of any")
    if vm is None and size <= where.l2_size:
        remarks.append(
            f"the victim's {size >> 10} KiB fit into its core's own L2 cache of {where.l2_size >> 10} KiB, so that no "
            "L3 makes a difference: take more --ways or a larger --working-set"
        )
    if vm is None and where.size is not None and size > where.size // total * loan.mask.count:
        remarks.append("the victim's working set is larger than its ways: it can't be as fast in them as alone")
    return remarks
