# SPDX-License-Identifier: Apache-2.0
"""Nova's tables, with one cell beside the one for servers that no host took."""

from __future__ import annotations

from pathlib import Path

from tests.openstack.servers import manage
from tools.lab.workspace import Workspace


def make(workspace: Workspace, configuration: Path, cell0: str) -> None:
    """Make them.

    :param configuration: says where the databases of the API and of the cell are, and the message bus.
    :param cell0: the URL of the other cell's.
    """
    manage.run(
        workspace,
        "nova-manage",
        "nova.cmd.manage",
        configuration,
        ["api_db", "sync"],
        ["cell_v2", "map_cell0", "--database_connection", cell0],
        ["cell_v2", "create_cell", "--name", "cell1"],
        ["db", "sync"],
    )
