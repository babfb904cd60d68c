# SPDX-License-Identifier: Apache-2.0
"""Verdicts as values that JSON has."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vmqos.insight.model import Insight, VmVerdict


def plain(found: Insight) -> dict[str, list[dict[str, Any]]]:
    """``vms`` and ``pairs``, each a list of objects that have the fields of the verdicts.

    A VM's UUID is called ``uuid``.
    """
    return {"vms": [_vm(verdict) for verdict in found.vms.values()], "pairs": [asdict(pair) for pair in found.pairs]}


def _vm(verdict: VmVerdict) -> dict[str, Any]:
    fields = asdict(verdict)
    return {"uuid": fields.pop("vm"), **fields}
