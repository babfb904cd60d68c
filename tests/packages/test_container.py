# SPDX-License-Identifier: Apache-2.0
"""The image: built of its Containerfile, on a Debian that mmdebstrap makes, and run as the guide runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.functional.conftest import MakeVm, WaitFor
from tests.kernel.lab import needs
from tests.packages import contained, tree
from tests.packages.debian_packages import version
from tests.packages.debian_root import DebianRoot, run
from tools.lab import unix_http
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.program import Program
from tools.lab.simulator import Simulator
from tools.lab.workspace import CHECKOUT, Workspace

CONTAINERFILE = "packaging/container/Containerfile"
GATEWAY = 642
CONF = """\
[agent]
audit_interval = 0.2
[http]
port = 0
[resctrl]
readers_group =
[notifications]
transport_url = rabbit://vmqos:secret@127.0.0.1:{broker}/
"""


@dataclass(frozen=True, slots=True)
class Image:
    """The image.

    :ivar files: its root.
    :ivar command: what it runs.
    """

    files: Path
    command: tuple[str, ...]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    scratch = tmp_path_factory.mktemp("container")
    missing = needs.for_packages(scratch)
    missing.extend(["the program buildah: apt install buildah"] if not shutil.which("buildah") else [])
    if missing:
        pytest.fail(f"these tests need: {'; '.join(missing)}; tools/test installs packages.", pytrace=False)
    policy = scratch / "policy.json"
    policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    # A storage of its own, which needs nothing of the kernel.
    storage = [f"--root={scratch / 'storage'}", f"--runroot={scratch / 'run'}", "--storage-driver=vfs"]

    def buildah(command: str, *words: str) -> str:
        trust = [f"--signature-policy={policy}"] if command in ("build", "commit", "from") else []
        return run(["buildah", *storage, command, *trust, *words]).strip()

    # What the first line of the Containerfile names.
    base = DebianRoot.make(scratch / "base", ["ca-certificates"])
    made = buildah("from", "scratch")
    buildah("add", made, str(base.path), "/")
    buildah("commit", "--quiet", made, "localhost/debian:trixie-slim")
    buildah("rm", made)
    context = tree.copy_to(scratch / "tree")
    # Registries are never asked.
    never = ("--pull-never", "--isolation=chroot")
    buildah("build", *never, f"--file={context / CONTAINERFILE}", "--tag=vmqos:test", str(context))
    made = buildah("from", "--pull-never", "localhost/vmqos:test")
    described = json.loads(buildah("inspect", "--type=image", "localhost/vmqos:test"))
    try:
        yield Image(Path(buildah("mount", made)), tuple(described["OCIv1"]["config"]["Cmd"]))
    finally:
        buildah("umount", made)


@dataclass(frozen=True, slots=True)
class Host:
    """What the containers have of their host.

    :ivar path: its directories, with the API's sockets among them.
    :ivar agent: the agent's process.
    :ivar gateway: the gateway's process.
    """

    path: Path
    agent: Program
    gateway: Program


@pytest.fixture
def broker() -> Iterator[socket.socket]:
    """A port where the gateway takes a message bus to be. Who connects to it waits in vain."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60.0)
        yield listening


@pytest.fixture
def host(
    image: Image, simulator: Simulator, libvirt_host: PrivateLibvirt, workspace: Workspace, broker: socket.socket
) -> Iterator[Host]:
    """A host with both containers; what they said is in the report of a test that failed."""
    path = workspace.path / "containers"
    for name in ("vmqos", "vmqos-gateway", "etc"):
        (path / name).mkdir(parents=True)
    os.chown(path / "vmqos-gateway", GATEWAY, GATEWAY)
    conf = path / "etc/vmqos.conf"
    conf.write_text(CONF.format(broker=broker.getsockname()[1]))
    conf.chmod(0o640)
    os.chown(conf, 0, GATEWAY)
    volumes = {
        "/sys/fs/resctrl": simulator.root,
        "/sys/fs/cgroup": Path("/sys/fs/cgroup"),
        "/run/libvirt": libvirt_host.socket.parent,
        "/run/vmqos": path / "vmqos",
        "/run/vmqos-gateway": path / "vmqos-gateway",
        "/etc/vmqos": path / "etc",
    }
    started = []
    try:
        for name, asked in sorted(contained.runs().items()):
            log = path / f"{name}.log"
            process = contained.start(image.files, asked, image.command, host=volumes, cpus=simulator.sysfs, log=log)
            workspace.record_process(process.pid)
            started.append(process)
        yield Host(path, *started)
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait(20)
            workspace.forget_process(process.pid)
        for log in path.glob("*.log"):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-8000:]}")
        shutil.rmtree(path)


def status(process: Program) -> dict[str, str]:
    """What the kernel says of a process."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def capabilities(*numbers: int) -> str:
    """Capabilities as the kernel writes them, by the numbers of capability.h."""
    return f"{sum(1 << number for number in numbers):016x}"


CAP_CHOWN, CAP_SYS_PTRACE = 0, 19


def test_with_what_the_guide_gives_them_a_vm_becomes_kept(host: Host, make_vm: MakeVm, wait_for: WaitFor) -> None:
    vm = make_vm({"hw:cache_ways": "2"})
    # Only the gateway's answer: so the agent's socket was its to open.
    gateway = host.path / "vmqos-gateway/gateway.sock"
    wait_for(
        lambda: unix_http.get(gateway, f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM's promise being kept", 60.0
    )
    health = unix_http.get(host.path / "vmqos/agent.sock", "/v1/health")
    assert health["version"] == version() and health["pid"] == host.agent.pid

    agent = status(host.agent)
    assert agent["CapEff"] == agent["CapPrm"] == agent["CapBnd"] == capabilities(CAP_CHOWN, CAP_SYS_PTRACE)
    assert agent["NoNewPrivs"] == "1"
    assert Path(f"/proc/{host.agent.pid}/net/dev").read_text().count(":") == 1, "it has more than loopback"
    of_gateway = status(host.gateway)
    assert of_gateway["CapEff"] == of_gateway["CapPrm"] == of_gateway["CapBnd"] == capabilities()
    assert of_gateway["Uid"].split() == of_gateway["Gid"].split() == [str(GATEWAY)] * 4
    assert of_gateway["Groups"] == "" and of_gateway["NoNewPrivs"] == "1"


def test_with_a_transport_url_the_gateway_speaks_to_the_message_bus(
    host: Host, make_vm: MakeVm, broker: socket.socket
) -> None:
    make_vm({"hw:cache_ways": "2"})
    connection, _ = broker.accept()
    with connection:
        connection.settimeout(60.0)
        # What a client of RabbitMQ says first (AMQP 0-9-1, section 2.2.4).
        assert connection.recv(8) == b"AMQP\0\0\x09\x01"
    assert unix_http.get(host.path / "vmqos-gateway/gateway.sock", "/v1/health")["notifications"]["waiting"] > 0


def test_the_end_of_the_containers_leaves_the_vm_its_group(
    host: Host, make_vm: MakeVm, wait_for: WaitFor, simulator: Simulator
) -> None:
    vm = make_vm({"hw:cache_ways": "2"})
    agent = host.path / "vmqos/agent.sock"
    wait_for(lambda: unix_http.get(agent, f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM's promise being kept", 60.0)
    host.agent.send_signal(signal.SIGTERM)
    assert host.agent.wait(30) == 0
    assert str(vm.pid) in (simulator.root / f"vmqos.{vm.uuid}/tasks").read_text().split()


def test_the_image_has_the_programs_the_account_and_no_leftovers(image: Image) -> None:
    assert image.command == ("vmqos-agent", "--config-file", "/etc/vmqos/vmqos.conf")
    for program in ("vmqos", "vmqos-agent", "vmqos-gateway"):
        said = run(["chroot", str(image.files), program, "--version"])
        assert said.split()[-1] == version()
    accounts = (image.files / "etc/passwd").read_text()
    assert re.search(rf"^vmqos-gateway:x:{GATEWAY}:{GATEWAY}:.*nologin$", accounts, re.MULTILINE)
    assert not (image.files / "packages").exists()
    assert not list((image.files / "var/lib/apt/lists").iterdir())
    # The compiler and its like stay in the stage that built the packages.
    assert not (image.files / "usr/bin/dpkg-buildpackage").exists()


def test_the_guide_mounts_nothing_of_the_host_that_it_does_not_explain() -> None:
    page = contained.PAGE.read_text()
    agent, gateway = contained.runs()["vmqos-agent"], contained.runs()["vmqos-gateway"]
    table = page.partition("list-table::")[2].partition("Where SELinux")[0]
    for source, target, _ in agent.volumes:
        assert source == target
        assert source == "/etc/vmqos" or f"``{source}``" in table
    assert {f"CAP_{name}" for name in agent.capabilities} == set(re.findall(r"``(CAP_\w+)``", table))
    assert gateway.capabilities == () and gateway.user == "vmqos-gateway"


def test_the_containers_capabilities_are_those_of_the_units() -> None:
    for name, asked in contained.runs().items():
        unit = (CHECKOUT / f"etc/systemd/{name}.service").read_text()
        (allowed,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
        assert {f"CAP_{one}" for one in asked.capabilities} == set(allowed.split())
