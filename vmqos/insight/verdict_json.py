# SPDX-License-Identifier: Apache-2.0
"""Verdicts as values that JSON has."""

from __future__ import annotations

from typing import Any

from vmqos.insight.model import Insight, PairVerdict, Suffering, VmVerdict


def plain(found: Insight) -> dict[str, list[dict[str, Any]]]:
    """``vms`` and ``pairs``, each a list of objects that have the fields of the verdicts.

    A VM's UUID is called ``uuid``.
    """
    return {"vms": [_vm(verdict) for verdict in found.vms.values()], "pairs": [_fields(pair) for pair in found.pairs]}


def _vm(verdict: VmVerdict) -> dict[str, Any]:
    fields = _fields(verdict)
    return {"uuid": fields.pop("vm"), **fields, "sufferings": [_fields(one) for one in verdict.sufferings]}


def _fields(verdict: VmVerdict | Suffering | PairVerdict) -> dict[str, Any]:
    # dataclasses.asdict copies each value, which takes as long as much of the judging.
    return {name: getattr(verdict, name) for name in verdict.__slots__}
