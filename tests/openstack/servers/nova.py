# SPDX-License-Identifier: Apache-2.0
"""Nova's API, with databases in files and servers that no nova-compute ever started."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from tests.openstack.servers import nova_tables, settings, wsgi
from tests.openstack.servers.keystone import Keystone
from tests.openstack.servers.process import Server, free_port, script
from tools.lab.workspace import Workspace

MAKE = """\
import json
import sys

from nova import config, context, objects
from nova.network.model import NetworkInfo

config.parse_args(["nova-manage", "--config-file", sys.argv[1]])
objects.register_all()
admin = context.get_admin_context()
(cell,) = [found for found in objects.CellMappingList.get_all(admin) if not found.is_cell0()]
for server in json.loads(sys.argv[2]):
    common = {"project_id": server["project"], "user_id": "u"}
    specs = server["extra_specs"]
    flavor = objects.Flavor(
        id=1, flavorid="1", name="w", memory_mb=64, vcpus=1, root_gb=1, ephemeral_gb=0, swap=0, rxtx_factor=1.0,
        vcpu_weight=0, disabled=False, is_public=True, extra_specs=specs,
    )
    objects.InstanceMapping(
        admin, instance_uuid=server["uuid"], cell_mapping=cell, queued_for_delete=False, **common
    ).create()
    with context.target_cell(admin, cell) as inside:
        instance = objects.Instance(
            inside, uuid=server["uuid"], display_name="server", hostname="server", host=server["host"],
            node=server["host"], compute_id=1, flavor=flavor, old_flavor=None, new_flavor=None, instance_type_id=1,
            memory_mb=64, vcpus=1, root_gb=1, ephemeral_gb=0, vm_state="active", power_state=1, image_ref="",
            info_cache=objects.InstanceInfoCache(instance_uuid=server["uuid"], network_info=NetworkInfo()), **common,
        )
        instance.create()
"""
"""Makes servers as conductor would."""


class NovaApi:
    """An API that knows servers and can't start any. To show one, it asks Keystone's Neutron for its ports.

    :ivar endpoint: the URL of its API.
    """

    def __init__(self, workspace: Workspace, keystone: Keystone) -> None:
        self._workspace = workspace
        self._directory = workspace.path / "nova"
        self._directory.mkdir()
        self._port = free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}/v2.1"
        databases = {name: f"sqlite:///{self._directory}/{name}" for name in ("api", "cell0", "cell1")}
        shutil.copy(Path(sys.prefix, "etc", "nova", "api-paste.ini"), self._directory)
        self._configuration = settings.write(
            self._directory / "nova.conf",
            {
                "DEFAULT": {"transport_url": "fake:///", "state_path": self._directory, "use_stderr": True},
                "api": {"auth_strategy": "keystone"},
                "api_database": {"connection": databases["api"]},
                "database": {"connection": databases["cell1"]},
                "wsgi": {"api_paste_config": self._directory / "api-paste.ini"},
                "oslo_concurrency": {"lock_path": self._directory},
                "keystone_authtoken": keystone.credentials("nova"),
                "placement": keystone.credentials("nova"),
                "neutron": keystone.credentials("nova"),
            },
        )
        nova_tables.make(workspace, self._configuration, databases["cell0"])
        keystone.offer("nova", "compute", self.endpoint)
        self.start()

    @property
    def said(self) -> str:
        """Its log."""
        return self._server.said

    def make(self, host: str, specs: dict[str, dict[str, str]], project: str = "p") -> None:
        """Make servers with these extra specs, by UUID, on a compute node."""
        servers = [
            {"uuid": uuid, "host": host, "project": project, "extra_specs": found} for uuid, found in specs.items()
        ]
        self._run("make", script("python"), "-c", MAKE, self._configuration, json.dumps(servers))

    def start(self) -> None:
        """Start it, or start it again."""
        where = {"OS_NOVA_CONFIG_DIR": str(self._directory)}
        self._server = wsgi.serve(self._workspace, self._directory, "nova.wsgi.osapi_compute", self._port, where)

    def stop(self) -> None:
        """End it; its databases stay."""
        self._server.stop()

    def _run(self, name: str, *command: str | Path) -> None:
        Server(self._workspace, self._workspace.path / f"nova-{name}", command).run(120.0)
