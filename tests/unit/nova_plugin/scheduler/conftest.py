# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from nova_plugin.scheduler import moves, promises
from nova_plugin.scheduler.inventory import Inventory
from nova_plugin.scheduler.promises import Promises
from nova_plugin.scheduler.recent import Recent
from nova_plugin.scheduler.rooms import Rooms


class Asked:
    """Nova's client of Placement, with the paths that were asked for."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.paths: list[str] = []

    def get(self, url: str, version: str | None = None) -> Any:
        self.paths.append(url.partition("?")[0])
        return self._client.get(url, version=version)

    @property
    def about_hosts(self) -> int:
        """How many of the questions were about many hosts at once."""
        return sum(path == "/allocation_candidates" for path in self.paths)


@pytest.fixture
def asked(client: Any) -> Asked:
    return Asked(client)


@pytest.fixture
def rooms(asked: Asked) -> Rooms:
    """What the filter and the weigher count with, on Placement and the database."""
    known = Promises(promises.read_from_cell, moving=moves.read_from_cell)
    return Rooms(Inventory(lambda: asked), known, Recent(lambda: asked))
