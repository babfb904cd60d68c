# SPDX-License-Identifier: Apache-2.0
"""Nova's own code on databases of its own, and Placement's, in this process: no service of OpenStack is started."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

# Placement answers from a thread of this process, which eventlet's patches would stop.
os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "1")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    # Nova 32 and 33 choose between threads and eventlet when their API is imported. Here it is threads, and has to be
    # said before another library asks oslo.service, which would say eventlet then.
    from nova import monkey_patch

    if hasattr(monkey_patch, "patch"):
        monkey_patch.patch()
    import nova.conf
    from nova import objects, rpc
    from nova.db.api import api as api_database
    from nova.db.api import models as api_models
    from nova.db.main import api as main_database
    from nova.db.main import models as main_models
    from nova.scheduler.client import report

from oslo_config import cfg

from tests.unit.nova_plugin.clouds import Cloud, Placement
from tests.unit.nova_plugin.served import served

CONF = nova.conf.CONF

NOVA_CONF = """\
[DEFAULT]
transport_url = fake:/
[database]
connection = sqlite:///{folder}/main.db
[api_database]
connection = sqlite:///{folder}/api.db
[placement]
auth_type = admin_token
endpoint = {placement_url}
endpoint_override = {placement_url}
token = admin
"""

PLACEMENT_CONF = """\
[placement_database]
connection = sqlite:///{folder}/placement.db
sync_on_startup = true
[api]
auth_strategy = noauth2
"""


@pytest.fixture(scope="session", autouse=True)
def nova_conf(tmp_path_factory: pytest.TempPathFactory, placement_url: str) -> Any:
    """Nova's configuration, with empty databases."""
    folder = tmp_path_factory.mktemp("nova")
    file = folder / "nova.conf"
    file.write_text(NOVA_CONF.format(folder=folder, placement_url=placement_url))
    CONF([], project="nova", default_config_files=[str(file)])
    rpc.init(CONF)
    objects.register_all()
    main_database.configure(CONF)
    api_database.configure(CONF)
    main_models.BASE.metadata.create_all(main_database.get_engine())
    api_models.BASE.metadata.create_all(api_database.get_engine())
    return CONF


@pytest.fixture
def option(nova_conf: Any) -> Iterator[Any]:
    """Sets options of nova.conf for a test: ``option("group", name=value)``."""
    changed = []

    def set_options(group: str, **values: object) -> None:
        for name, value in values.items():
            nova_conf.set_override(name, value, group=group)
            changed.append((name, group))

    yield set_options
    for name, group in changed:
        nova_conf.clear_override(name, group=group)


@pytest.fixture(scope="session")
def placement_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Placement itself, with a database of its own."""
    from placement import conf as placement_conf
    from placement import db_api, deploy

    folder = tmp_path_factory.mktemp("placement")
    file = folder / "placement.conf"
    file.write_text(PLACEMENT_CONF.format(folder=folder))
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    conf([], project="placement", default_config_files=[str(file)])
    db_api.configure(conf)
    with served(deploy.loadapp(conf)) as url:
        yield url


@pytest.fixture(scope="session")
def client(nova_conf: Any) -> report.SchedulerReportClient:
    """Nova's own client of Placement, as nova-scheduler makes it."""
    return report.SchedulerReportClient()


@pytest.fixture
def placement(placement_url: str) -> Iterator[Placement]:
    """Placement, emptied after the test."""
    with Placement.of(placement_url) as emptied:
        yield emptied


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """Hosts and servers, in a cell."""
    with Cloud.with_cell(CONF.database.connection) as made:
        yield made
