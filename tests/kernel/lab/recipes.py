# SPDX-License-Identifier: Apache-2.0
"""The parts of the lab, and how each is made.

- ``qemu``: a QEMU from Debian testing, in a directory of its own; the plugin needs its plugin API 7 (QEMU 11.1).
- ``linux-6.12``, ``linux-newest``: a kernel, its modules as a disk, and an initial RAM disk.
- ``image``: the guest's Debian 13 as a disk.
- ``plugin``: compiled with this machine's gcc.
"""

from __future__ import annotations

import hashlib
import inspect
import lzma
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.lab import debian, initrd
from tests.kernel.lab.debian import Packages
from tests.kernel.lab.errors import BuildFailed

KERNEL_TESTS = Path(__file__).resolve().parents[1]
INITRAMFS = KERNEL_TESTS / "inside/initramfs.sh"
PLUGIN = KERNEL_TESTS / "plugin"
OLDER = "trixie"
NEWER = "forky"

QEMU = Packages(NEWER, ("qemu-system-x86", "seabios"), unpack_only=True)
# busybox runs the initial RAM disk; depmod, which comes with the kernel, loads liblzma if it is there.
KERNEL_AND_TOOLS = ("linux-image-cloud-amd64", "busybox-static", "liblzma5")
LINUX = {
    "6.12": Packages(OLDER, KERNEL_AND_TOOLS, unpack_only=True),
    "newest": Packages(NEWER, KERNEL_AND_TOOLS, unpack_only=True),
}
IMAGE = Packages(
    OLDER,
    (
        # The system.
        *("busybox-static", "iproute2", "kmod", "procps", "psmisc", "strace"),
        # What starts the services of a host: only the tests of our units boot it.
        *("libvirt-daemon-system-systemd", "systemd"),
        # What the tests run: libvirt with VMs, pqos, C programs.
        *("dbus", "gcc", "intel-cmt-cat", "libc6-dev", "libvirt-clients", "libvirt-daemon-driver-qemu"),
        *("libvirt-daemon-system", "qemu-system-x86", "seabios"),
        # What vmqos imports: setup.cfg's extras "agent" and "cli".
        *("python3-cliff", "python3-libvirt", "python3-msgspec", "python3-oslo.config", "python3-oslo.log"),
        *("python3-prometheus-client", "python3-rich", "python3-waitress"),
        # setup.cfg's extra "test".
        *("python3-hypothesis", "python3-pytest", "python3-pytest-timeout", "python3-yaml"),
    ),
)
SPARE_SPACE = 1 << 30
"""Bytes that are free on the guest's disk."""

Run = Callable[[Sequence[str], Path], None]
"""Run a command; its output is appended to a log."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a part is made.

    :ivar name: of the part.
    :ivar description: one line for people.
    :ivar packages: whose versions say whether there is something newer; ``None`` where none are used.
    :ivar make: fills an empty directory, given a way to run commands and their log; returns versions by package.
    :ivar inputs: what decides what comes out beside the packages' names and the code of ``make``.
    """

    name: str
    description: str
    packages: Packages | None
    make: Callable[[Path, Run, Path], Mapping[str, str]]
    inputs: tuple[bytes, ...] = ()

    @property
    def digest(self) -> str:
        """What tells recipes of one name apart: 12 hexadecimal digits."""
        code = "".join(inspect.getsource(part) for part in (self.make, _make_disk, debian.install))
        text = f"{self.packages} {debian.NOT_INSTALLED} {code}".encode()
        return hashlib.sha256(b"\0".join((text, *self.inputs))).hexdigest()[:12]


def recipes() -> tuple[Recipe, ...]:
    """All of them, the one that takes longest first."""
    initramfs = (Path(initrd.__file__).read_bytes(), INITRAMFS.read_bytes())
    return (
        Recipe("image", "the guest's Debian, with libvirt and Python", IMAGE, _make_image),
        Recipe("qemu", "QEMU 11.1 or newer", QEMU, _make_qemu),
        *(
            Recipe(f"linux-{name}", f"the kernel {name}", packages, _make_linux_of(packages), initramfs)
            for name, packages in LINUX.items()
        ),
        plugin(),
    )


def plugin() -> Recipe:
    """The one that needs neither root nor a network, and is made whenever its source changed."""
    sources = tuple(path.read_bytes() for path in sorted((*PLUGIN.glob("*.c"), *PLUGIN.glob("*.h"))))
    return Recipe("plugin", "the plugin of QEMU that gives a CPU its RDT", None, _make_plugin, sources)


def _make_qemu(scratch: Path, run: Run, log: Path) -> Mapping[str, str]:
    versions = debian.install(QEMU, scratch / "root", log, run)
    for name in ("doc", "icons", "locale", "man"):
        shutil.rmtree(scratch / "root/usr/share" / name, ignore_errors=True)
    return versions


def _make_linux_of(packages: Packages) -> Callable[[Path, Run, Path], Mapping[str, str]]:
    def make(scratch: Path, run: Run, log: Path) -> Mapping[str, str]:
        root = scratch / "root"
        versions = debian.install(packages, root, log, run)
        (modules,) = (path for base in ("lib", "usr/lib") for path in (root / base / "modules").glob("*/"))
        # The kernel's dependencies brought kmod, but not base-files, which has these ways to the dynamic loader.
        for name in ("bin", "sbin", "lib", "lib64"):
            if not (root / name).exists():
                (root / name).symlink_to(f"usr/{name}")
        run([*debian.CONTAINED, "chroot", str(root), "depmod", modules.name], log)
        if ".ko.xz: kernel/" not in (modules / "modules.dep").read_text():
            raise BuildFailed(f"depmod found no dependency between the modules of {modules.name}; see {log}")
        (kernel,) = (*(root / "boot").glob("vmlinuz-*"), *modules.glob("vmlinuz"))
        shutil.copy(kernel, scratch / "vmlinuz")
        for name in ("vmlinuz", "System.map"):
            (modules / name).unlink(missing_ok=True)
        _make_disk(modules.parent, scratch / "modules.ext4", run, log)
        (virtio_blk,) = modules.glob("**/virtio_blk.ko.xz")
        initrd.write(
            scratch / "initrd",
            {
                "init": INITRAMFS.read_bytes(),
                "bin/busybox": (root / "usr/bin/busybox").read_bytes(),
                "virtio_blk.ko": lzma.decompress(virtio_blk.read_bytes()),
            },
        )
        shutil.rmtree(root)
        return {**versions, "linux": modules.name}

    return make


def _make_image(scratch: Path, run: Run, log: Path) -> Mapping[str, str]:
    root = scratch / "root"
    versions = debian.install(IMAGE, root, log, run)
    _make_disk(root, scratch / "image.ext4", run, log, SPARE_SPACE)
    shutil.rmtree(root)
    return versions


def _make_plugin(scratch: Path, run: Run, log: Path) -> Mapping[str, str]:
    sources = sorted(str(path) for path in PLUGIN.glob("*.c"))
    flags = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC")
    run(["gcc", *flags, "-o", str(scratch / "rdt.so"), *sources, "-lm"], log)
    return {}


def _make_disk(content: Path, image: Path, run: Run, log: Path, spare: int = 0) -> None:
    """An ext4 file system of ``content``; the file takes no more room than what is in it."""
    used = sum((path.lstat().st_size + 4095) // 4096 * 4096 + 512 for path in content.glob("**/*"))
    size = (used * 105 // 100 + spare + (16 << 20)) >> 10
    run(
        [
            "mke2fs",
            "-q",
            "-t",
            "ext4",
            "-O",
            "^has_journal",
            "-E",
            "lazy_itable_init=1",
            "-d",
            str(content),
            str(image),
            str(size),
        ],
        log,
    )
    if not image.stat().st_size:
        raise BuildFailed(f"mke2fs made an empty {image.name}")
