# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.openstack.telemetry.as_nobody CEILOMETER_CONF``: what the pollsters find as root and as nobody.

Prints a JSON object for each, one a line: the ids of the instances that have a sample, by meter. Everything is loaded
as root, because the checkout and its Python may be out of another user's reach.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ceilometer import service
from ceilometer.compute.discovery import InstanceDiscovery
from stevedore import ExtensionManager

from ceilometer_pollster.meters import METERS

NOBODY = 65534


class Manager:
    """Stands for Ceilometer's service, which the pollsters only tell from others."""


def samples_of_one_cycle(plugins: dict[str, Any], conf: Any, instances: list[Any]) -> dict[str, list[str]]:
    """What a service that starts now finds."""
    manager, cache = Manager(), {}
    return {
        name: sorted(sample.resource_id for sample in plugin(conf).get_samples(manager, cache, instances))
        for name, plugin in plugins.items()
    }


def main() -> None:
    """Look as root, give up all rights, look again."""
    conf = service.prepare_service(argv=[], config_files=sys.argv[1:])
    instances = InstanceDiscovery(conf).discover(Manager())
    names = {meter.name for meter in METERS}
    found = ExtensionManager("ceilometer.poll.compute", invoke_on_load=False)
    plugins = {extension.name: extension.plugin for extension in found if extension.name in names}
    print(json.dumps(samples_of_one_cycle(plugins, conf, instances)))
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    assert not os.access("/etc/shadow", os.R_OK)
    print(json.dumps(samples_of_one_cycle(plugins, conf, instances)))


if __name__ == "__main__":
    main()
