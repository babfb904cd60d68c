# SPDX-License-Identifier: Apache-2.0
"""The doctor's look at Placement: VMs of this host with a promise that Placement has claimed nothing for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from oslo_config import cfg

from vmqos.cli.exceptions import CommandError
from vmqos.cli.placement import withdraw
from vmqos.conf import keystone
from vmqos.conf.exceptions import ConfigurationError
from vmqos.extra_specs import CachePolicy, CacheRequest, resources
from vmqos.host.finding import Finding, Status, count_of
from vmqos.openstack.consumers import Consumers
from vmqos.openstack.exceptions import CloudError
from vmqos.openstack.placement import Placement
from vmqos.openstack.service import Service

_TITLE = "Claims in Placement"
_SHOWN = 5
"""How many VMs are named."""


def claims(conf: cfg.ConfigOpts, ask_vms: Callable[[], Sequence[Mapping[str, Any]]]) -> Iterator[Finding]:
    """Whether Placement has claimed something for each VM here whose promise takes something that it counts.

    Without credentials nothing is found, nor without an agent, which another check tells.

    :param ask_vms: returns the running VMs as the agent's API tells them, or raises an error.
    """
    try:
        if not keystone.is_configured(conf, "placement"):
            return
    except ConfigurationError:
        return
    try:
        vms = ask_vms()
    except Exception:  # whatever keeps the agent from answering is another check's finding
        return
    # A host need not offer a class that is shared.
    counted = frozenset(resources.CLASSES)
    promised = {str(vm["uuid"]): str(vm["name"]) for vm in vms if counted & resources.requested(_request(vm)).keys()}
    try:
        missing = [name for uuid, name in sorted(_without(conf, promised).items(), key=lambda item: item[1])]
    except (CloudError, CommandError) as error:
        yield Finding(_TITLE, Status.WARNING, str(error), "journalctl --unit vmqos-gateway")
        return
    if not missing:
        yield Finding(
            _TITLE, Status.OK, f"there for all of {count_of(len(promised), 'VM')} with a promise that Placement counts"
        )
        return
    names = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
    detail = (
        f"none for {count_of(len(missing), 'VM')} with a promise ({names}), so Nova may give their ways to others; "
        "that is as it should be where flavors are made with 'vmqos flavor set --filter-only'"
    )
    yield Finding(_TITLE, Status.WARNING, detail, "vmqos placement heal   # with an administrator's credentials")


def _without(conf: cfg.ConfigOpts, promised: Mapping[str, str]) -> dict[str, str]:
    """Those of the VMs that hold nothing of ours, here or elsewhere: one that migrates holds it on its new host."""
    if not promised:
        return {}
    service = Service(conf, "placement", "placement")
    consumers = Consumers(service)
    hostname = withdraw.hostname(conf)
    held: dict[str, dict[str, int]] = {}
    for name in (resources.provider_name(hostname), hostname):
        provider = Placement(service).find(name)
        if provider is not None:
            for uuid, amounts in consumers.of_provider(provider.uuid).items():
                held.setdefault(uuid, {}).update(amounts)
    return {
        uuid: name
        for uuid, name in promised.items()
        if not any(map(resources.is_resource_class, held.get(uuid, ()))) and not _holds_elsewhere(consumers, uuid)
    }


def _holds_elsewhere(consumers: Consumers, uuid: str) -> bool:
    held = consumers.get(uuid).held
    return any(resources.is_resource_class(name) for amounts in held.values() for name in amounts)


def _request(vm: Mapping[str, Any]) -> CacheRequest | None:
    """What the VM's flavor asks for, by what the agent tells of the VM; ``None`` where it asks for nothing."""
    amounts = {
        "ways": vm["ways_requested"],
        "code_ways": vm.get("code_ways_requested"),
        "data_ways": vm.get("data_ways_requested"),
        "l2_ways": vm.get("l2_ways_requested"),
    }
    if amounts["code_ways"] is not None:
        # The agent tells the sum of both as the ways.
        amounts["ways"] = None
    unit = "bandwidth_mbps" if vm.get("bandwidth_requested_unit") == "MB/s" else "bandwidth_percent"
    amounts[unit] = vm.get("bandwidth_requested")
    if not any(amounts.values()):
        return None
    return CacheRequest(policy=CachePolicy(vm.get("policy") or CachePolicy.EXCLUSIVE.value), **amounts)
