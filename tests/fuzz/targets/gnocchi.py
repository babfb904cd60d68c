# SPDX-License-Identifier: Apache-2.0
"""The operator's gnocchi_resources.yaml, to which metrics are added."""

from __future__ import annotations

from vmqos.cli.gnocchi import resource_definitions
from vmqos.cli.gnocchi.resource_definitions import NotUnderstood

_WANTED = {"cpu_l3_cache": {"archive_policy_name": "ceilometer-low"}, "memory.bandwidth.total": None}


def resources(data: bytes) -> bool:
    text = data.decode(errors="replace")
    try:
        merged = resource_definitions.merge(text, _WANTED)
    except NotUnderstood:
        return False
    assert set(_WANTED) <= set(resource_definitions.metrics_of(merged.text))
    assert resource_definitions.merge(merged.text, _WANTED).text == merged.text
    return True
