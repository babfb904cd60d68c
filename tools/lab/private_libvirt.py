# SPDX-License-Identifier: Apache-2.0
"""A libvirtd of our own, which can't see the host's VMs, sockets, configuration or D-Bus, nor they it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import urllib.parse
import uuid
from collections.abc import Callable
from pathlib import Path

import libvirt

from tools.lab import processes
from tools.lab.workspace import CHECKOUT, Workspace

CACHE = CHECKOUT / "build" / "lab" / "qemu-capabilities"
"""What libvirtd found out about this host's QEMU; seconds of work that later starts are spared."""

NAMESPACE = Path(__file__).with_name("private_namespace.sh")
START_TIMEOUT = 180.0
STOP_TIMEOUT = 120.0

DAEMON_CONF = """\
listen_tls = 0
listen_tcp = 0
auth_unix_ro = "none"
auth_unix_rw = "none"
unix_sock_group = "root"
host_uuid = "{uuid}"
log_outputs = "3:stderr"
"""

TCP_CONF = "listen_tls = 0\nlisten_tcp = 0\n"

# hugetlbfs_mount: libvirtd would make directories in the host's /dev/hugepages.
# max_core: libvirtd raises it, which fails where a login has lowered the hard limit (su, sudo).
# capability_filters: libvirt would ask for each of the CPU's 460 features in a call of its own, which under an emulated
# CPU takes most of a VM's start.
QEMU_CONF = """\
user = "root"
group = "root"
dynamic_ownership = 0
security_driver = "none"
namespaces = []
stdio_handler = "file"
hugetlbfs_mount = []
max_core = 0
capability_filters = ["cpu-unavailable-features"]
"""

DAEMONS = ("libvirtd", "virtqemud")
"""The monolithic daemon, and what takes its place where a distribution has dropped it."""


class PrivateLibvirt:
    """A private libvirt daemon with the QEMU driver.

    :param workspace: owns the daemon, its VMs and its files.
    :param hostname: what libvirt calls the host; as the host is called, if empty.
    :raises FileNotFoundError: if neither libvirtd nor virtqemud is installed.
    :ivar uri: for ``libvirt.open`` and ``[libvirt] uri``.
    :ivar socket: where the daemon listens.
    :ivar run_dir: where the VMs' PID files are, for ``[libvirt] run_dir``.
    :ivar pid: of the daemon; ``None`` while it is stopped.
    """

    def __init__(self, workspace: Workspace, hostname: str = "") -> None:
        # libvirt-python prints every error to stderr unless told otherwise.
        libvirt.registerErrorHandler(lambda *_: None, None)
        self._workspace = workspace
        self._daemon = _find_daemon()
        self._holder: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: libvirt.virConnect | None = None
        for name in ("etc", "run", "lib", "log", "cache", "dbus"):
            (workspace.path / name).mkdir()
        name = Path(self._daemon).name
        # By its UUID a daemon knows another host from its own; two here would share the machine's.
        conf = DAEMON_CONF.format(uuid=uuid.uuid4())
        (workspace.path / "etc" / "daemon.conf").write_text(conf if name == "libvirtd" else conf.replace(TCP_CONF, ""))
        (workspace.path / "etc" / "qemu.conf").write_text(QEMU_CONF)
        if hostname:
            (workspace.path / "hostname").write_text(hostname)
        _write_accounts(workspace.path)
        if CACHE.is_dir():
            shutil.copytree(CACHE, workspace.path / "cache" / "qemu" / "capabilities")
        self.run_dir = workspace.path / "run" / "qemu"
        self.log = workspace.path / "log" / "daemon.log"
        self.socket = workspace.path / "run" / f"{name.replace('libvirtd', 'libvirt')}-sock"
        self.uri = f"qemu+unix:///system?socket={urllib.parse.quote(str(self.socket))}"

    @property
    def pid(self) -> int | None:
        """PID of the running daemon."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the daemon and wait until it answers.

        :raises RuntimeError: if it ends or does not answer within three minutes, with the end of its log.
        """
        if self._holder is None:
            self._holder = self._spawn("hold")
            self._wait_for((self._workspace.path / "ready").exists, self._holder)
        self.socket.unlink(missing_ok=True)
        daemon = [self._daemon, "-f", "/etc/libvirt/daemon.conf", "-p", "/run/libvirt/daemon.pid"]
        self._process = self._spawn("run", str(self._holder.pid), *daemon)
        self._wait_for(self._answers, self._process)
        if not CACHE.is_dir():
            self._keep_capabilities()

    def _spawn(self, verb: str, *arguments: str) -> subprocess.Popen[bytes]:
        # NOTIFY_SOCKET and the LISTEN_ variables belong to whatever service we may run in.
        environment = {k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET" and not k.startswith("LISTEN_")}
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [str(NAMESPACE), verb, str(self._workspace.path), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._workspace.record_process(process.pid)
        return process

    def _wait_for(self, condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not condition():
            if process.poll() is not None or time.monotonic() > deadline:
                log_end = self.log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"the private {Path(self._daemon).name} did not start:\n{log_end}")
            time.sleep(processes.POLL_INTERVAL)

    def connect(self) -> libvirt.virConnect:
        """A new connection, which the caller closes."""
        return libvirt.open(self.uri)

    def connection(self) -> libvirt.virConnect:
        """A connection that lives: the last one, or a new one where the daemon was restarted since."""
        try:
            if self._connection:
                self._connection.getLibVersion()
                return self._connection
        except libvirt.libvirtError:
            pass
        self._connection = self.connect()
        return self._connection

    def stop(self) -> None:
        """Stop the daemon; its VMs go on, as they do on a real host."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the daemon by SIGKILL; its VMs go on."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(STOP_TIMEOUT)
        self._workspace.forget_process(self._process.pid)
        self._process = None

    def _answers(self) -> bool:
        if not self.socket.exists():
            return False
        try:
            self.connect().close()
        except libvirt.libvirtError:
            return False
        return True

    def _keep_capabilities(self) -> None:
        connection = self.connect()
        # Has libvirtd probe QEMU, which it otherwise does at a VM's first start.
        connection.getCapabilities()
        connection.close()
        found = self._workspace.path / "cache" / "qemu" / "capabilities"
        if not found.is_dir():
            return
        partial = CACHE.with_name(f"{CACHE.name}.{os.getpid()}")
        shutil.copytree(found, partial)
        owner = CHECKOUT.stat()
        for path in (CHECKOUT / "build", CACHE.parent, partial, *partial.iterdir()):
            # Root's work in a user's source tree.
            os.chown(path, owner.st_uid, owner.st_gid)
        try:
            partial.rename(CACHE)
        except OSError:
            # Another of us was faster.
            shutil.rmtree(partial)


def _write_accounts(directory: Path) -> None:
    """Write the accounts files that ``private_namespace.sh`` lays over the host's, where the host's lack something.

    Debian and Ubuntu build libvirt with the user libvirt-qemu and the group libvirt-qemu or kvm; the daemon does not
    start without them, even if ``qemu.conf`` names others.
    """
    for name, wanted in (
        ("passwd", {"libvirt-qemu": "x:64055:64055:::/usr/sbin/nologin"}),
        ("group", {"libvirt-qemu": "x:64055:", "kvm": "x:64056:"}),
    ):
        text = Path("/etc", name).read_text()
        present = {line.partition(":")[0] for line in text.splitlines()}
        missing = [f"{account}:{rest}\n" for account, rest in wanted.items() if account not in present]
        if missing:
            (directory / name).write_text(text.rstrip("\n") + "\n" + "".join(missing))


def _find_daemon() -> str:
    for name in DAEMONS:
        found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")
        if found:
            return found
    raise FileNotFoundError("neither libvirtd nor virtqemud is installed; tools/test and tools/demo install it")
