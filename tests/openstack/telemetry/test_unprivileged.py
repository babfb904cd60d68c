# SPDX-License-Identifier: Apache-2.0
"""The pollsters as the user that ``ceilometer-polling`` runs as on a compute node: nobody special."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.openstack.servers import settings
from tests.openstack.telemetry.node import CAPPED, GOLD, RUNNING, Node
from tools.lab.workspace import CHECKOUT, Workspace


def test_a_user_without_any_rights_gets_the_same_samples(workspace: Workspace, node: Node, tmp_path: Path) -> None:
    file = settings.write(
        tmp_path / "ceilometer.conf",
        {
            "DEFAULT": {"libvirt_uri": node.libvirt.uri, "use_stderr": True},
            "vmqos": {"resctrl_path": node.simulator.root},
        },
    )
    mode = workspace.path.stat().st_mode
    # It is on the way to the mount point; /sys/fs is open to all.
    workspace.path.chmod(0o711)
    try:
        command = [sys.executable, "-m", "tests.openstack.telemetry.as_nobody", file]
        done = subprocess.run(command, cwd=CHECKOUT, text=True, capture_output=True, check=False)
    finally:
        workspace.path.chmod(mode)
    assert done.returncode == 0, done.stderr
    as_root, as_nobody = map(json.loads, done.stdout.splitlines())
    assert as_root["cpu_l3_cache"] == sorted(vm.uuid for vm in RUNNING)
    assert as_root["cpu_l3_cache.ways"] == sorted([GOLD.uuid, CAPPED.uuid])
    assert as_nobody == as_root
