# SPDX-License-Identifier: Apache-2.0
"""Booting a guest, and what it says while it runs.

The guest has virtual serial ports that QEMU writes to files (``stdout``, ``stderr``, ``events``, ``out.tar``,
``bytecode.tar``), its console in ``serial``, the plugin's log in ``msr.jsonl``, and what its model of the caches
counted in ``cache.jsonl``: all in one directory, readable while it runs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.kernel.cachemodel import log as counted
from tests.kernel.lab import bytecode, needs, trace
from tests.kernel.lab import job as jobs
from tests.kernel.lab.build import ready
from tests.kernel.lab.cache import Cache
from tests.kernel.lab.errors import GuestDied
from tests.kernel.lab.job import Job
from tests.kernel.lab.machines import Machine

COMMAND_LINE = (
    "console=ttyS0 panic=-1 mitigations=off"
    # On a busy machine the kernel waits in vain for the emulated timer, and panics: don't try it.
    " no_timer_check"
    # The kernel would take a performance counter for a watchdog; the emulated ones make no interrupt.
    " nmi_watchdog=0"
    # The kernel leaves some features off on CPUs with known errata, unless told otherwise.
    " rdt=cmt,mbmtotal,mbmlocal,l3cat,l3cdp,l2cat,l2cdp,mba"
)
ARCHIVES = ("out", "bytecode")
PORTS = ("stdout", "stderr", "events", *ARCHIVES)
CHATTER = "TCG doesn't support requested feature"
"""QEMU's warning of each of a CPU model's features that it can't emulate."""

BOOT_PATIENCE = 90.0
"""Seconds from QEMU's start to the first word of the guest's process 1: a few, or half a minute on a busy machine."""
BOOTS = 3
"""How often to try. Once in a while the emulated CPUs hang while the kernel brings them up, before anything of ours."""
POLL = 0.05

TAIL = 60
"""Lines of the console that an error shows."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a guest left.

    :ivar status: the job's exit status.
    :ivar path: the directory of all of it; what the job left in ``$VMQOS_GUEST_OUT`` is in ``out/``.
    """

    status: int
    path: Path

    @property
    def stdout(self) -> str:
        """What the job wrote."""
        return self._text("stdout")

    @property
    def stderr(self) -> str:
        """What the job wrote to standard error."""
        return self._text("stderr")

    @property
    def msr(self) -> list[trace.MsrWrite]:
        """All writes of registers of RDT, from the boot to the end."""
        return trace.read(self.path / "msr.jsonl")

    @property
    def cache(self) -> list[counted.Snapshot]:
        """What the model of the caches counted, at each moment that somebody asked, and at the end."""
        return counted.read(self.path / "cache.jsonl")

    def _text(self, name: str) -> str:
        return (self.path / name).read_text(errors="replace")


class Guest:
    """A guest that runs a job, from :meth:`start` to :meth:`wait` or :meth:`kill`.

    :param kernel: one of :data:`tests.kernel.lab.machines.KERNELS`.
    :param path: an existing directory for what it leaves.
    :param append: more of the kernel's command line.
    :param plugin: arguments of the plugin over the machine's.
    """

    def __init__(
        self,
        machine: Machine,
        kernel: str,
        job: Job,
        path: Path,
        *,
        append: str = "",
        plugin: Mapping[str, object] | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.machine = machine
        self.kernel = kernel
        self.path = path
        self._job = job
        self._append = append
        self._plugin = {"sockets": machine.sockets, **machine.plugin, **(plugin or {})}
        self._cache = cache or Cache()
        self._process: subprocess.Popen[bytes] | None = None
        self._open_parts: list[int] = []
        self._digests: Mapping[str, str] = {}
        self._read = 0
        self._partial = b""
        self.status: int | None = None

    def __enter__(self) -> Guest:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Boot, and return when the guest is up or has ended; a boot that hangs is tried again.

        :raises NotBuilt: where the cache lacks a part.
        :raises Lacking: where the machine lacks a program.
        """
        needs.insist("to boot a guest", needs.for_guests())
        parts = ready(self._cache)
        self._open_parts = [part.open() for part in parts.values()]
        paths = {name: part.path for name, part in parts.items()}
        self._digests = jobs.write(self._job, self.path / "job.tar", self._cache.bytecode)
        command = _command(self, paths, self._append, self._plugin)
        for number in range(1, BOOTS):
            process = self._boot(command)
            if process.poll() is not None or self._is_up:
                return
            process.kill()
            process.wait()
            with suppress(FileNotFoundError):
                (self.path / "serial").rename(self.path / f"serial.hung{number}")
        # Whoever waits for the guest gives up in time.
        self._boot(command)

    def _boot(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start QEMU, and wait until the guest is up, or has ended, or takes too long."""
        console = None if self._job.interactive else subprocess.DEVNULL
        with (self.path / "qemu.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=console, stdout=None if console is None else log, stderr=log)
        self._process = process
        deadline = time.monotonic() + BOOT_PATIENCE
        while process.poll() is None and not self._is_up and time.monotonic() < deadline:
            time.sleep(POLL)
        return process

    @property
    def _is_up(self) -> bool:
        events = self.path / "events"
        return events.exists() and bool(events.stat().st_size)

    @property
    def running(self) -> bool:
        """Whether QEMU runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def console(self) -> str:
        """What the kernel wrote to its console until now."""
        return self._text("serial")

    def events(self) -> Iterator[Mapping[str, Any]]:
        """What came since the last call, without waiting."""
        if not (self.path / "events").exists():
            return
        with (self.path / "events").open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            event: Mapping[str, Any] = json.loads(line)
            if event["event"] == "exit":
                self.status = int(event["status"])
            yield event

    def wait(self, timeout: float) -> Result:
        """Wait for the job's end.

        :param timeout: seconds.
        :raises GuestDied: if the guest ends without the job's having ended, or does not end in time: it is killed then.
        """
        assert self._process is not None
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise GuestDied(self.obituary(f"did not end within {timeout:.0f} s and was killed")) from None
        for _ in self.events():
            pass
        self._close()
        if self.status is None:
            raise GuestDied(self.obituary(f"ended (QEMU: {self._process.returncode}) before its job did"))
        # What is not plain files and directories is left out.
        with tarfile.open(self.path / "out.tar", errorlevel=0) as archive:
            # Python 3.11.2, Debian 12's, has no filters yet and ignores the attribute.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(self.path / "out")
        bytecode.keep(self._cache.bytecode, self.path / "bytecode.tar", self._digests)
        for port in ARCHIVES:
            (self.path / f"{port}.tar").unlink()
        return Result(self.status, self.path)

    def kill(self) -> None:
        """End it at once; nothing happens if it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._close()

    def obituary(self, fate: str) -> str:
        """An error's text: what happened, and the last lines of the console and of QEMU."""
        shown = [f"the guest {self.machine.name} with the kernel {self.kernel} {fate}; see {self.path}"]
        for name in ("qemu.log", "serial", "stderr"):
            lines = [line for line in self._text(name).splitlines() if CHATTER not in line][-TAIL:]
            shown.extend([f"--- {name}", *lines] if lines else [])
        return "\n".join(shown)

    def _text(self, name: str) -> str:
        """What came through that port until now."""
        file = self.path / name
        return file.read_text(errors="replace") if file.exists() else ""

    def _close(self) -> None:
        for descriptor in self._open_parts:
            os.close(descriptor)
        self._open_parts = []
        (self.path / "job.tar").unlink(missing_ok=True)


def _command(guest: Guest, parts: Mapping[str, Path], append: str, plugin: Mapping[str, object]) -> list[str]:
    root = parts["qemu"] / "root"
    libraries = root / "usr/lib/x86_64-linux-gnu"
    linux = parts[f"linux-{guest.kernel}"]
    files = {"log": guest.path / "msr.jsonl", "counts": guest.path / "cache.jsonl"}
    arguments = ",".join(f"{name}={value}" for name, value in {**files, **plugin}.items())
    disks = (
        ("root", parts["image"] / "image.ext4", "snapshot=on"),
        ("modules", linux / "modules.ext4", "readonly=on"),
        ("job", guest.path / "job.tar", "readonly=on"),
    )
    command = [
        # The guest must not outlive us, whatever ends us: also before the kernel is told so.
        *("setpriv", "--pdeathsig=KILL", "sh", "-c", 'test "$PPID" = "$0" && exec "$@"', str(os.getpid())),
        str(root / "usr/lib64/ld-linux-x86-64.so.2"),
        *("--library-path", f"{libraries}:{libraries}/pulseaudio"),
        str(root / "usr/bin/qemu-system-x86_64"),
        *(part for name in ("qemu", "seabios") for part in ("-L", str(root / "usr/share" / name))),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *("-M", "q35", "-accel", "tcg,thread=multi", "-cpu", guest.machine.cpu),
        *("-smp", guest.machine.smp, "-m", str(guest.machine.memory)),
        *("-plugin", f"file={parts['plugin'] / 'rdt.so'},{arguments}"),
        *("-kernel", str(linux / "vmlinuz"), "-initrd", str(linux / "initrd")),
        *("-append", f"{COMMAND_LINE} {append}".strip()),
        *("-serial", "mon:stdio" if guest._job.interactive else f"file:{guest.path / 'serial'}"),
        *("-device", "virtio-serial-pci"),
    ]
    for name, path, how in disks:
        # Where the host's disk is full the guest is told so; QEMU's own way is to stop it without a word.
        command += ["-drive", f"if=none,id={name},file={path},format=raw,{how},werror=report"]
        command += ["-device", f"virtio-blk-pci,drive={name},serial={name}"]
    for number, name in enumerate(PORTS, 1):
        file = guest.path / (f"{name}.tar" if name in ARCHIVES else name)
        command += ["-chardev", f"file,id={name},path={file}"]
        command += ["-device", f"virtserialport,chardev={name},name={name},nr={number}"]
    return command


def run(machine: Machine, kernel: str, job: Job, path: Path, timeout: float = 300.0, **options: Any) -> Result:
    """Boot, wait for the job's end, and collect what it left.

    :param path: a directory; made if need be.
    :param timeout: seconds, for the job alone.
    :param options: of :class:`Guest`.
    :raises GuestDied: if the guest ends without a result.
    :raises NotBuilt: where the cache lacks a part.
    """
    path.mkdir(parents=True, exist_ok=True)
    with Guest(machine, kernel, job, path, **options) as guest:
        return guest.wait(timeout)


@contextmanager
def kept_of_the_dead() -> Iterator[Path]:
    """A directory for what a guest leaves; it is kept if the guest died, because the error names it."""
    path = Path(tempfile.mkdtemp(prefix="vmqos-guest-"))
    died = False
    try:
        yield path
    except GuestDied:
        died = True
        raise
    finally:
        if not died:
            shutil.rmtree(path)
