# SPDX-License-Identifier: Apache-2.0
"""Which machines can be booted: a CPU model of QEMU, and what the plugin gives it.

The names are those of the simulator's profiles (:mod:`vmqos.simulator.hardware.profiles`). What decides how a kernel
treats a CPU is its vendor, family and model (``arch/x86/kernel/cpu/resctrl/core.c``, ``pseudo_lock.c``), so these are
the real ones; the rest of the model is what QEMU's software emulation can do. ``level`` raises the highest CPUID leaf,
without which the kernel does not look at the leaves 0xF and 0x10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tests.kernel.lab.errors import NoSuchMachine

KERNELS = ("6.12", "newest")
"""The kernel of Debian 13, and that of Debian testing."""

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine.

    :ivar name: as in tests and on the command line.
    :ivar description: one line for people.
    :ivar cpu: QEMU's CPU model and its properties.
    :ivar sockets: one L3 cache each.
    :ivar cores: CPUs of one socket.
    :ivar plugin: arguments of the plugin but ``sockets``, over its defaults (``tests/kernel/plugin/options.c``).
    :ivar kvm: whether VMs inside the guest can use KVM: the software emulation has AMD's SVM only.
    :ivar memory: MiB of RAM.
    """

    name: str
    description: str
    cpu: str
    sockets: int
    cores: int
    plugin: Mapping[str, int] = field(default_factory=dict)
    kvm: bool = False
    memory: int = 3072

    @property
    def cpus(self) -> int:
        """How many CPUs the guest has, numbered socket by socket."""
        return self.sockets * self.cores

    @property
    def ways(self) -> int:
        """Bits of an L3 mask."""
        return self.plugin.get("l3ways", 11)

    @property
    def smp(self) -> str:
        """QEMU's ``-smp``."""
        return f"{self.cpus},sockets={self.sockets},cores={self.cores},threads=1"


_CASCADE_LAKE = Machine(
    "cascade-lake",
    "2 sockets, 11 ways, CDP, MBA per cent, L3 monitoring",
    cpu="Cascadelake-Server-v5,level=0x16",
    sockets=2,
    cores=2,
)
_BROADWELL = Machine(
    "broadwell",
    "2 sockets, 20 ways, cache pseudo-locking, no MBA, performance counters",
    cpu="Broadwell-v4,model=79,stepping=1,level=0x16",
    sockets=2,
    cores=2,
    plugin={"l3ways": 20, "l3shared": 0xC0000, "l3clos": 16, "mba": 0, "rmids": 48, "pmu": 1},
)
_SAPPHIRE_RAPIDS = Machine(
    "sapphire-rapids",
    "2 sockets, 15 ways, masks with gaps, L2 allocation, MBA per cent",
    cpu="Cascadelake-Server-v5,model=143,stepping=4,level=0x20",
    sockets=2,
    cores=2,
    plugin={
        "l3ways": 15,
        "l3shared": 0x6000,
        "l3clos": 15,
        "l3noncont": 1,
        "l2": 1,
        "l2cdp": 1,
        "l2ways": 16,
        "l2clos": 8,
        "l2noncont": 1,
        "mbaclos": 15,
        "rmids": 64,
    },
)
_GOLDMONT = Machine(
    "goldmont",
    "1 socket, L2 allocation and pseudo-locking, no L3, no monitoring",
    cpu="Denverton-v2,model=92,stepping=9,level=0x15",
    sockets=1,
    cores=4,
    plugin={
        "l3": 0,
        "mba": 0,
        "cmt": 0,
        "mbmt": 0,
        "mbml": 0,
        "l2": 1,
        "l2ways": 8,
        "l2clos": 4,
        "l2shared": 0,
    },
)
# One CPU a socket: the software emulation lacks TOPOEXT, without which the kernel gives each CPU of an AMD socket an L3
# of its own (cacheinfo.c: get_cache_id). The plugin has it for machines that need CPUs that share one.
_MILAN = Machine(
    "milan",
    "AMD, 4 sockets of 1 CPU, 16 ways, empty and sparse masks, MBA in 1/8 GB/s, configurable events",
    cpu="EPYC-Milan,xlevel=0x80000022,level=0x10",
    sockets=4,
    cores=1,
    plugin={
        "amd": 1,
        "l3size": 32 * MIB,
        "l3ways": 16,
        "l3shared": 0,
        "l3noncont": 0,
        "mbaclos": 16,
        "bmec": 1,
        "mbmoff": 20,
        "rmids": 64,
    },
)
_GENOA = replace(
    _MILAN,
    name="genoa",
    description="milan with SMBA and ways for devices (io_alloc)",
    plugin={**_MILAN.plugin, "smba": 1, "sdciae": 1},
)
_MILAN_KVM = replace(
    _MILAN,
    name="milan-kvm",
    description="milan with 2 sockets of 1 CPU, and KVM for VMs in the guest",
    cpu=f"{_MILAN.cpu},+svm",
    sockets=2,
    kvm=True,
)
_MILAN_SHARED = replace(
    _MILAN_KVM,
    name="milan-shared",
    description="milan-kvm with 1 socket of 4 CPUs, which share an L3 of 4 MiB, and performance counters",
    sockets=1,
    cores=4,
    # Counters in whole pages: they are to be compared.
    plugin={**_MILAN.plugin, "topoext": 1, "pmu": 1, "l3size": 4 * MIB, "upscale": 4096},
)
_MILAN_ABMC = replace(
    _MILAN_KVM,
    name="milan-abmc",
    description="milan-kvm with 6 counters of memory traffic for each cache, which have to be assigned (ABMC)",
    plugin={**_MILAN.plugin, "abmc": 6},
)
_ALL = (
    _CASCADE_LAKE,
    _BROADWELL,
    _SAPPHIRE_RAPIDS,
    _GOLDMONT,
    _MILAN,
    _GENOA,
    _MILAN_KVM,
    _MILAN_SHARED,
    _MILAN_ABMC,
)
MACHINES: Mapping[str, Machine] = MappingProxyType({machine.name: machine for machine in _ALL})


CORE = (
    "goldmont-6.12",
    "milan-kvm-6.12",
)
"""The guests of which CI runs the tests each time: either vendor, KVM, L2 allocation and cache pseudo-locking."""

APART = (*CORE, "cascade-lake-6.12")
"""The guests whose long tests are a part of their own."""

CORE_PART, LONG_PART = "core", "long"
PARTS = (
    CORE_PART,
    LONG_PART,
    *(f"{LONG_PART}-{guest}" for guest in APART),
    *(f"{name}-{kernel}" for name in MACHINES for kernel in KERNELS if f"{name}-{kernel}" not in CORE),
)
"""The parts of the tests in guests, for the option ``--guests``: each test is in one of them. ``long`` has the long
tests that need no guest, or start one for themselves."""


def machine(name: str) -> Machine:
    """Look a machine up.

    :raises NoSuchMachine: where there is none of this name; the message lists those that there are.
    """
    try:
        return MACHINES[name]
    except KeyError:
        raise NoSuchMachine(f"there is no machine {name!r}; there are: {', '.join(MACHINES)}") from None


def kernel(name: str) -> str:
    """Check a kernel's name.

    :raises NoSuchMachine: where there is none of this name.
    """
    if name not in KERNELS:
        raise NoSuchMachine(f"there is no kernel {name!r}; there are: {', '.join(KERNELS)}")
    return name
