# SPDX-License-Identifier: Apache-2.0
"""A connection to the private libvirtd, and the changes that it reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tools.lab.private_libvirt import PrivateLibvirt
from vmqos.hypervisor.connection import Connection


@dataclass
class Watched:
    """A connection, and what its ``on_change`` was called with, in order."""

    connection: Connection
    changes: list[str | None] = field(default_factory=list)


@pytest.fixture
def watched(libvirt_host: PrivateLibvirt) -> Iterator[Watched]:
    """A connection that notices a hung libvirtd within eight seconds."""
    changes: list[str | None] = []
    connection = Connection(
        libvirt_host.uri, changes.append, str(libvirt_host.run_dir), keepalive=(2, 3), retry_delays=(0.05, 0.5)
    )
    connection.start(wait=True)
    assert connection.is_connected, connection.last_error
    yield Watched(connection, changes)
    connection.close()
