# SPDX-License-Identifier: Apache-2.0
"""Nova with all that starts a server: API, conductor, scheduler and, on a compute node, nova-compute."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.openstack.servers import nova_tables, settings, wsgi
from tests.openstack.servers.keystone import Keystone
from tests.openstack.servers.process import Server, free_port, script
from tests.openstack.servers.settings import Settings
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.workspace import Workspace

PRIVILEGED = ("nova_sys_admin", "vif_plug_ovs_privileged", "vif_plug_linux_bridge_privileged", "privsep_osbrick")
"""Sections of what does things as root, with a helper that would be started through sudo otherwise."""

SCHEDULER: Settings = {
    "filter_scheduler": {
        "available_filters": (
            "nova.scheduler.filters.all_filters",
            "nova_plugin.scheduler.filters.CacheWaysFilter",
        ),
        "enabled_filters": "ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,CacheWaysFilter",
        "weight_classes": "nova.scheduler.weights.all_weighers,nova_plugin.scheduler.weights.CacheWaysWeigher",
    },
    "vmqos": {"inventory_lifetime": 0},
    "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": 2},
}
"""As the operator's guide has it; what a test changes is seen at once."""


class NovaServices:
    """A Nova, whose tables are made at once, while a Keystone may still be starting.

    :param database: makes a database of that name; the result is a URL for SQLAlchemy.
    :param transport_url: where the message bus is, or will be.
    :ivar endpoint: the URL of its API.
    :ivar instances: the directory of nova-compute's instances.
    """

    def __init__(self, workspace: Workspace, database: Callable[[str], str], transport_url: str) -> None:
        self._workspace = workspace
        self._directory = workspace.path / "nova"
        self._directory.mkdir()
        self._port = free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}/v2.1"
        self.instances = self._directory / "instances"
        self.instances.mkdir()
        self._common: Settings = {
            "DEFAULT": {
                "transport_url": transport_url,
                "use_stderr": True,
                # Read by the API, which leaves the server's own host out unless told otherwise.
                "allow_resize_to_same_host": True,
            },
            # By these Watcher hears of servers and hosts.
            "oslo_messaging_notifications": {"driver": "messagingv2"},
            "notifications": {"notification_format": "versioned"},
        }
        self._databases: Settings = {
            "api_database": {"connection": database("nova_api")},
            "database": {"connection": database("nova_cell1")},
        }
        self._servers: list[Server] = []
        tables = settings.write(self._directory / "tables.conf", self._common, self._databases)
        nova_tables.make(workspace, tables, database("nova_cell0"))

    def start(self, keystone: Keystone) -> None:
        """Start everything but nova-compute, and put it into the catalog."""
        credentials = keystone.credentials("nova")
        shutil.copy(Path(sys.prefix, "etc", "nova", "api-paste.ini"), self._directory)
        self._common = {
            **self._common,
            "wsgi": {"api_paste_config": self._directory / "api-paste.ini"},
            "conductor": {"workers": 1},
            "oslo_concurrency": {"lock_path": self._directory},
            "service_user": {**credentials, "send_service_user_token": True},
            **{section: credentials for section in ("keystone_authtoken", "placement", "neutron")},
        }
        configuration = settings.write(self._directory / "nova.conf", self._common, self._databases, SCHEDULER)
        keystone.offer("nova", "compute", self.endpoint)
        for name in ("nova-conductor", "nova-scheduler"):
            self._start(name, configuration)
        where = {"OS_NOVA_CONFIG_DIR": str(self._directory)}
        directory = self._workspace.path / "nova-api"
        self._servers.append(
            wsgi.serve(self._workspace, directory, "nova.wsgi.osapi_compute", self._port, where, threads=4)
        )

    def stop_compute(self, host: str) -> None:
        """End the nova-compute of that name."""
        (server,) = (server for server in self._servers if server.directory.name == f"nova-compute-{host}")
        self._servers.remove(server)
        server.stop()

    def start_compute(self, host: str, libvirt: PrivateLibvirt, compute: Mapping[str, str] | None = None) -> None:
        """Start nova-compute.

        :param host: the name of the service's host; the compute node has the name that libvirt gives it.
        :param compute: its section of that name.
        """
        directory = self._workspace.path / f"nova-compute-{host}"
        directory.mkdir(exist_ok=True)
        self._libvirt_of(host).unlink(missing_ok=True)
        self._libvirt_of(host).symlink_to(libvirt.socket)
        helper = f"{script('privsep-helper')} --config-file {directory}/nova.conf"
        configuration = settings.write(
            directory / "nova.conf",
            self._common,
            {
                "DEFAULT": {
                    "host": host,
                    "my_ip": "127.0.0.1",
                    "state_path": directory,
                    "instances_path": self.instances,
                    "compute_driver": "libvirt.LibvirtDriver",
                    "reserved_host_memory_mb": 0,
                    "reserved_host_disk_mb": 0,
                    # The guests have nothing that would hear that they are to shut down.
                    "shutdown_timeout": 0,
                    # There are no ports whose addresses could change.
                    "heal_instance_info_cache_interval": -1,
                },
                "libvirt": {
                    "virt_type": "qemu",
                    "connection_uri": libvirt.uri,
                    "live_migration_uri": f"qemu+unix:///system?socket={self._libvirt_of('%s')}",
                    # The nodes have no network: QEMU's stream goes from libvirtd to libvirtd.
                    "live_migration_tunnelled": True,
                },
                "compute": compute or {},
                "vnc": {"enabled": False},
                "oslo_concurrency": {"lock_path": directory},
                **{section: {"helper_command": helper} for section in PRIVILEGED},
            },
        )
        self._start("nova-compute", configuration, directory)

    def _libvirt_of(self, host: str) -> Path:
        return self._directory / f"libvirt-{host}"

    @property
    def logs(self) -> list[Path]:
        """What they say."""
        return [server.log for server in self._servers]

    def stop(self) -> None:
        """End all of it."""
        for server in reversed(self._servers):
            server.stop()

    def _start(self, name: str, configuration: Path, directory: Path | None = None) -> None:
        command = [script(name), "--config-file", configuration]
        self._servers.append(Server(self._workspace, directory or self._workspace.path / name, command))
