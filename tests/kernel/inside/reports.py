# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that runs in the guest: selects exactly the tests asked for, and sends their reports out.

``VMQOS_GUEST_ITEMS`` names a JSON file with the tests' node ids, in the order to run them. To the port ``events`` go
JSON lines: ``start`` and ``finish`` of a test, each ``report`` in pytest's own serialisation, and ``broken`` for a
module that could not be collected.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

EVENTS = Path("/dev/virtio-ports/events")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Reports(config), "guest-reports")


class Reports:
    """See above."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._wanted: list[str] = json.loads(Path(os.environ["VMQOS_GUEST_ITEMS"]).read_text())
        self._port = os.open(EVENTS, os.O_WRONLY)

    def _send(self, event: str, **more: Any) -> None:
        data = (json.dumps({"event": event, **more}) + "\n").encode()
        while data:
            data = data[os.write(self._port, data) :]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[nodeid] for nodeid in self._wanted if nodeid in found]
        for nodeid in self._wanted:
            if nodeid not in found:
                self._send("missing", nodeid=nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._send("broken", nodeid=report.nodeid, text=report.longreprtext)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._send("start", nodeid=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send("report", nodeid=report.nodeid, data=data)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._send("finish", nodeid=nodeid)
