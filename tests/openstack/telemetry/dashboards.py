# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboards: their queries, as Prometheus gets them when somebody looks at a VM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tools.lab.workspace import CHECKOUT

FILES = sorted((CHECKOUT / "etc" / "grafana").glob("*.json"))

_HARDWARE_EVENTS = re.compile(r"vmqos_vm_(?:cycles|instructions|cache_references|cache_misses|hardware_events)_")


_PACKAGES = re.compile(
    r"vmqos_(?:group_core_energy"
    r"|vm_(?:core_energy|core_activity|package|llc_miss_stall|llc_hit_stall|uops|c1_residency|c6_residency))_"
)


@dataclass(frozen=True, slots=True)
class Query:
    """A panel's query.

    :ivar dashboard: the file's name.
    :ivar expression: PromQL with Grafana's variables.
    """

    dashboard: str
    panel: str
    expression: str

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}"

    @property
    def needs_hardware_events(self) -> bool:
        """Whether it asks for what only a processor's counters tell, which most machines of CI do not have."""
        return _HARDWARE_EVENTS.search(self.expression) is not None

    @property
    def needs_packages(self) -> bool:
        """Whether it asks for what only packages that count tell (Intel AET), which few processors have."""
        return _PACKAGES.search(self.expression) is not None

    def filled(self, uuid: str, interval: str) -> str:
        """The expression with all variables in, for a VM and all hosts."""
        text = self.expression
        for variable, value in (("$host", ".*"), ("$vm", uuid), ("$__rate_interval", interval)):
            text = text.replace(variable, value)
        assert "$" not in text, text
        return text


def load() -> dict[str, dict[str, Any]]:
    """Each dashboard by its file's name."""
    return {path.name: json.loads(path.read_text()) for path in FILES}


def queries() -> Iterator[Query]:
    """The queries of all panels, and those that fill the variables."""
    for name, dashboard in load().items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield Query(name, panel["title"], target["expr"])
