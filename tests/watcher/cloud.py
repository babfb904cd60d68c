# SPDX-License-Identifier: Apache-2.0
"""Nodes and VMs as Watcher's model has them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from watcher.decision_engine.model import element
from watcher.decision_engine.model.model_root import ModelRoot

from tests.watcher.history import vm_uuid

PROJECT = str(uuid.UUID(int=1))


def model(vms: Mapping[str, str | dict[str, Any]], nodes: Mapping[str, dict[str, Any]] | None = None) -> ModelRoot:
    """A cloud.

    :param vms: by name, the hostname of its node, or ``{"on": hostname}`` with fields of the instance.
    :param nodes: by hostname, fields that differ from those of an idle node.
    """
    made = ModelRoot()
    named = {vm["on"] if isinstance(vm, dict) else vm for vm in vms.values()} | set(nodes or {})
    for hostname in sorted(named):
        made.add_node(element.ComputeNode(**(_node(hostname) | (nodes or {}).get(hostname, {}))))
    for name, vm in vms.items():
        fields = dict(vm) if isinstance(vm, dict) else {"on": vm}
        node = made.get_node_by_name(fields.pop("on"))
        instance = element.Instance(**(_instance(name) | fields))
        made.add_instance(instance)
        made.map_instance(instance, node)
    return made


def _node(hostname: str) -> dict[str, Any]:
    reserved = {"memory_mb_reserved": 0, "disk_gb_reserved": 0, "vcpu_reserved": 0}
    ratios = {"memory_ratio": 1.0, "vcpu_ratio": 1.0, "disk_ratio": 1.0}
    size = {"memory": 65536, "disk": 1000, "vcpus": 16}
    identity = {"uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, hostname)), "hostname": hostname}
    return {**identity, **size, **reserved, **ratios, "status": "enabled", "state": "up", "disabled_reason": None}


def _instance(name: str) -> dict[str, Any]:
    size = {"memory": 4096, "disk": 20, "vcpus": 4}
    rest: dict[str, Any] = {"state": "active", "metadata": {}, "project_id": PROJECT, "locked": False}
    return {"uuid": vm_uuid(name), "name": name, **size, **rest}
