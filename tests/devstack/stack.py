# SPDX-License-Identifier: Apache-2.0
"""DevStack runs of the plugin on a machine that consists of stand-ins."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
STAND_INS = Path(__file__).with_name("stand_ins.sh")

ALL_IN_ONE = "key,n-api,n-sch,n-cpu,placement-api,ceilometer-acompute,ceilometer-anotification"
CONTROLLER = "key,n-api,n-sch,placement-api,ceilometer-anotification"
COMPUTE = "n-cpu,placement-client,ceilometer-acompute"

STACK = ("stack pre-install", "stack install", "stack post-config", "stack extra", "stack test-config")

FILTERS = "ComputeFilter,ImagePropertiesFilter"

Call = tuple[str, ...]


class Refused(Exception):
    """The plugin died; the message is its own."""


class Stack:
    """A machine with DevStack, and vmqos' plugin enabled.

    :param root: a directory of its own, for everything.
    :param services: ``ENABLED_SERVICES`` of ``local.conf``.
    :param variables: other variables that DevStack or ``local.conf`` sets.
    """

    def __init__(self, root: Path, services: str = ALL_IN_ONE, **variables: str) -> None:
        self.root = root
        self.systemd = root / "systemd"
        self.agent_conf = root / "etc" / "vmqos" / "vmqos.conf"
        self.nova_conf = root / "etc" / "nova" / "nova.conf"
        self.ceilometer = root / "etc" / "ceilometer"
        for directory in (root / "bin", root / "etc" / "nova", self.ceilometer, self.systemd, root / "stack"):
            directory.mkdir(parents=True)
        (root / "stack" / "vmqos").symlink_to(CHECKOUT)
        command = root / "bin" / "vmqos"
        command.write_text(f'#!/bin/sh\nIFS="\t"; printf "%s\\n" "vmqos\t$*" >>{root}/calls\n')
        command.chmod(0o755)
        self.nova_conf.touch()
        (self.ceilometer / "polling.yaml").write_text('---\nsources:\n    - name: all\n      meters:\n        - "*"\n')
        shipped = root / "stack" / "ceilometer" / "ceilometer" / "publisher" / "data"
        shipped.mkdir(parents=True)
        (shipped / "gnocchi_resources.yaml").write_text("resources: []\n")
        self.set_option("nova.conf", "filter_scheduler", "enabled_filters", FILTERS)
        self.variables = {
            "ROOT": str(root),
            "DEST": str(root / "stack"),
            "DATA_DIR": str(root / "data"),
            "SYSTEMD_DIR": str(self.systemd),
            "SYSTEMCTL": "systemctl",
            "STACK_USER": str(root.owner()),
            "ENABLED_SERVICES": services,
            "DISABLED_SERVICES": "",
            "DEVSTACK_PLUGINS": ",ceilometer,vmqos",
            "VIRT_DRIVER": "libvirt",
            "RDT": "False",
            "GROUPS_LEFT": "",
            "USE_VENV": "False",
            "USER_UNITS": "False",
            "GLOBAL_VENV": "True",
            "ENABLE_DEBUG_LOG_LEVEL": "True",
            "REGION_NAME": "RegionOne",
            "SSL_BUNDLE_FILE": "/bundle.pem",
            "NOVA_CONF": str(self.nova_conf),
            "NOVA_FILTERS": FILTERS,
            "CEILOMETER_DIR": str(root / "stack" / "ceilometer"),
            "CEILOMETER_CONF_DIR": str(self.ceilometer),
            "CEILOMETER_CONF": str(self.ceilometer / "ceilometer.conf"),
            "CEILOMETER_BACKENDS": "gnocchi",
            "VMQOS_CONF_DIR": str(self.agent_conf.parent),
            "VMQOS_SIMULATOR_DIR": str(root / "run" / "vmqos-sim"),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            **variables,
        }

    def run(self, *phases: str) -> list[Call]:
        """Run phases as one script of DevStack does; the result is what the plugin called meanwhile.

        :param phases: the arguments of ``plugin.sh``, such as ``stack install``.
        :raises Refused: if the plugin died.
        :raises AssertionError: if a command failed, or the shell's options are not as before.
        """
        calls = self.root / "calls"
        calls.write_text("")
        # Of DevStack's scripts, only stack.sh ends at the first failure.
        strict = "set -o errexit" if phases[0].startswith("stack ") else ":"
        plugin = CHECKOUT / "devstack" / "plugin.sh"
        script = [strict, f"source {STAND_INS}", f"source {plugin.with_name('settings')}", "before=$-"]
        for phase in phases:
            script += [f"source {plugin} {phase}", '[[ "$-" == "$before" ]] || exit 3']
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)], env=self.variables, capture_output=True, text=True, timeout=60
        )
        made = [tuple(line.split("\t")) for line in calls.read_text().splitlines()]
        for name, *words in made:
            if name == "die":
                raise Refused(words[0])
        assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr, made)
        return made

    def stack(self) -> list[Call]:
        """What ``stack.sh`` runs."""
        return self.run(*STACK)

    def options(self, file: str) -> dict[tuple[str, str], str]:
        """The options of an INI file: section and name, and the value, with a line for each of several."""
        directory = self.root / "ini" / file
        found = directory.glob("*/*") if directory.is_dir() else []
        return {(path.parent.name, path.name): path.read_text().rstrip("\n") for path in found}

    def set_option(self, file: str, section: str, name: str, value: str) -> None:
        """Set an option as somebody else would."""
        path = self.root / "ini" / file / section / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n")

    def files(self) -> set[str]:
        """Every file of the machine, without what stands in for it."""
        inside = (path.relative_to(self.root) for path in self.root.rglob("*") if not path.is_dir())
        return {str(path) for path in inside if path.parts[0] not in ("calls", "ini", "mounts", "bin", "stack")}


def names(calls: Iterable[Call], *wanted: str) -> list[str]:
    """The calls of some functions as lines."""
    return [" ".join(call) for call in calls if call[0] in wanted]
