# SPDX-License-Identifier: Apache-2.0
"""A node of DevStack: its own functions, and real services of vmqos.

What stands in are commands: ``sudo`` does what follows, ``systemctl`` is :mod:`tests.devstack.real.units`, ``pip``,
``edit-constraints`` and ``openstack`` only write down what was asked. The machine's own resctrl, if it has one, is
hidden from ``mountpoint`` and ``find``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.devstack.real import checkout
from tests.devstack.stack import FILTERS
from tools.lab import processes
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.workspace import CHECKOUT, Workspace

TIMEOUT = 600.0
RUN_PHASES = Path(__file__).with_name("run_phases.sh")
PASSED_ON = ("PIP_", "SSL_CERT_FILE", "PBR_VERSION", "HTTP", "NO_PROXY", "http", "no_proxy")

SERVICES = "key,n-api,n-sch,n-cpu,placement-api,ceilometer-acompute,ceilometer-anotification"


class Node:
    """A machine that DevStack may stack, unstack and clean.

    :param workspace: owns it.
    :param name: tells several of one workspace apart.
    :param libvirt: where its VMs are.
    :param local: further variables in ``local.conf``.
    :ivar root: where everything is.
    :ivar state: the directory of the agent's socket.
    :ivar gateway_socket: the gateway's.
    """

    def __init__(self, workspace: Workspace, name: str, libvirt: PrivateLibvirt, local: Mapping[str, str]) -> None:
        self.root = root = workspace.path / name
        self.systemd = root / "systemd"
        self.agent_conf = root / "etc" / "vmqos" / "vmqos.conf"
        self.nova_conf = root / "etc" / "nova" / "nova.conf"
        self.ceilometer = root / "etc" / "ceilometer"
        self.venv = root / "data" / "venv"
        self.resctrl = root / "sim" / "resctrl"
        self.state = root / "state"
        self.gateway_socket = root / "data" / "vmqos" / "gateway.sock"
        workspace.record_mount(self.resctrl)
        checkout.copy(root / "devstack")
        for directory in (self.systemd, self.nova_conf.parent, self.ceilometer, root / "logs", root / "stack"):
            directory.mkdir(parents=True)
        (root / "stack" / "vmqos").symlink_to(CHECKOUT)
        self._write_commands()
        self._write_others_files()
        self._write_local_conf(libvirt, local)

    def run(self, *phases: str) -> str:
        """Run phases as one of DevStack's scripts does; the result is what was said.

        :raises RuntimeError: if it fails, with what was said.
        """
        passed_on = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        done = subprocess.run(
            ["bash", str(RUN_PHASES), str(self.root), *phases],
            env={
                # A tree without git has no version.
                "PBR_VERSION": "0.0.1.dev0",
                **passed_on,
                "HOME": str(self.root),
                "PATH": f"{self.root}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "LC_ALL": "C.UTF-8",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        )
        if done.returncode:
            logs = "\n".join(path.read_text() for path in self.root.glob("devstack@*.log"))
            raise RuntimeError(f"{phases}: exit status {done.returncode}\n{done.stdout}\n{logs}")
        return done.stdout

    def calls(self, command: str) -> list[str]:
        """What one of the commands was asked, in order."""
        file = self.root / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.split()[0] == command]

    def vmqos(self, *arguments: str) -> str:
        """What the command ``vmqos`` says to the node's user.

        :raises subprocess.CalledProcessError: if it fails.
        """
        command = [str(self.venv / "bin" / "vmqos"), "--config-file", str(self.agent_conf), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    def vmqos_runs(self) -> bool:
        """Whether a service of vmqos runs."""
        started = (int(file.read_text()) for file in (self.root / "units").glob("*.pid"))
        return any(processes.start_time(pid) is not None for pid in started)

    def make_real_environment(self) -> None:
        """Have ``pip`` install a copy of the source tree into a virtual environment, as DevStack makes it."""
        shutil.rmtree(self.venv)
        subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", self.venv], check=True, timeout=TIMEOUT)
        tree = self.root / "stack" / "vmqos"
        tree.unlink()
        # Building leaves files in the tree.
        shutil.copytree(CHECKOUT, tree, symlinks=True, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info"))
        (self.root / "stack" / "requirements" / "upper-constraints.txt").touch()

    def _write_commands(self) -> None:
        python = f"PYTHONPATH={shlex.quote(str(CHECKOUT))} exec {shlex.quote(sys.executable)}"
        calls = shlex.quote(str(self.root / "calls"))
        note = f'echo "${{0##*/}} $*" >>{calls}'
        programs = {
            "bin/sudo": 'exec "$@"',
            "bin/systemctl": f'{python} -m tests.devstack.real.units {self.root} "$@"',
            "bin/openstack": note,
            "bin/mountpoint": '[ "$2" != /sys/fs/resctrl ] && exec /usr/bin/mountpoint "$@"',
            "bin/find": '[ "$1" = /sys/fs/resctrl ] || exec /usr/bin/find "$@"',
            "data/venv/bin/pip": note,
            "data/venv/bin/vmqos": f'{python} -m vmqos.cli.main "$@"',
            "data/venv/bin/vmqos-agent": f'{python} -m vmqos.agent.main "$@"',
            "data/venv/bin/vmqos-gateway": f'{python} -m vmqos.gateway.main "$@"',
            "stack/requirements/.venv/bin/edit-constraints": note,
        }
        for name, text in programs.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)

    def _write_others_files(self) -> None:
        """What Nova and Ceilometer have written by the time that the plugin configures."""
        self.nova_conf.write_text(f"\n[filter_scheduler]\nenabled_filters = {FILTERS}\n")
        (self.ceilometer / "ceilometer.conf").write_text("\n[DEFAULT]\ndebug = True\n")
        (self.ceilometer / "polling.yaml").write_text('---\nsources:\n    - name: all\n      meters:\n        - "*"\n')
        shipped = self.root / "stack" / "ceilometer" / "ceilometer" / "publisher" / "data"
        shipped.mkdir(parents=True)
        (shipped / "gnocchi_resources.yaml").write_text(
            "---\nresources:\n  - resource_type: instance\n    metrics:\n      cpu:\n"
        )

    def _write_local_conf(self, libvirt: PrivateLibvirt, local: Mapping[str, str]) -> None:
        variables = {
            "DEST": f"{self.root}/stack",
            "DATA_DIR": f"{self.root}/data",
            "DEVSTACK_VENV": str(self.venv),
            "GLOBAL_VENV": "True",
            "STACK_USER": self.root.owner(),
            "HOST_IP": "127.0.0.1",
            "SERVICE_HOST": "127.0.0.1",
            "ADMIN_PASSWORD": "secret",
            "DATABASE_PASSWORD": "secret",
            "RABBIT_PASSWORD": "secret",
            "SERVICE_PASSWORD": "secret",
            "ENABLED_SERVICES": SERVICES,
            "CEILOMETER_DIR": f"{self.root}/stack/ceilometer",
            "CEILOMETER_CONF_DIR": str(self.ceilometer),
            "CEILOMETER_CONF": f"{self.ceilometer}/ceilometer.conf",
            "CEILOMETER_BACKENDS": "gnocchi",
            "VMQOS_CONF_DIR": str(self.agent_conf.parent),
            "VMQOS_SIMULATE": "True",
            "VMQOS_SIMULATOR_DIR": str(self.resctrl.parent),
            "VMQOS_LIBVIRT_URI": libvirt.uri,
            **local,
        }
        lines = ["[[local|localrc]]", *(f"{name}={value}" for name, value in variables.items())]
        lines += ["enable_plugin vmqos https://vmqos.example/vmqos"]
        lines += ["[[post-config|$VMQOS_CONF]]", "[agent]", f"state_path = {self.state}"]
        lines += ["audit_interval = 0.2", "full_audit_interval = 2.0", "retry_delay_min = 0.1"]
        lines += ["[libvirt]", f"run_dir = {libvirt.run_dir}"]
        lines += ["[api]", f"socket = {self.state}/agent.sock", "[http]", "port = 0", ""]
        (self.root / "devstack" / "local.conf").write_text("\n".join(lines))
