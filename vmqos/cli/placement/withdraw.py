# SPDX-License-Identifier: Apache-2.0
"""Telling OpenStack that this host has nothing more to promise, while no agent runs here.

Servers keep what they hold. When an agent runs again, the gateway tells OpenStack anew what the host has.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from oslo_config import cfg

from vmqos.cli.exceptions import CommandError
from vmqos.cli.show import units
from vmqos.conf import keystone
from vmqos.extra_specs import resources
from vmqos.openstack import provider_yaml
from vmqos.openstack.placement import Placement
from vmqos.openstack.service import Service
from vmqos.openstack.withdrawal import Withdrawn, withdraw

LIBVIRT_PATIENCE = 10.0
"""Seconds to wait for libvirt to tell the host's name."""


class HostnameUnknown(CommandError):
    """Neither the configuration nor libvirt tells how Nova calls this host."""

    msg_fmt = (
        "libvirt at {uri} does not tell this compute node's name: {reason}; start libvirt, or set [placement] "
        "hypervisor_hostname"
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done, or would be.

    :ivar line: a sentence about what is so now.
    :ivar step: what was done, or would be, as an order; empty where nothing had to be changed.
    """

    line: str
    step: str = ""


def perform(conf: cfg.ConfigOpts, *, dry_run: bool = False) -> Outcome | None:
    """Reserve all that OpenStack has of this host.

    :param dry_run: whether to write nothing.
    :returns: ``None`` where the configuration has neither credentials nor a file, so that nothing was ever told.
    :raises vmqos.openstack.exceptions.CloudError: if Placement does not answer, or refuses.
    :raises HostnameUnknown: if nothing tells how Nova calls this host.
    :raises OSError: if the file can't be read or written.
    :raises vmqos.openstack.provider_yaml.NotOurs: if the file is not one that an agent wrote.
    """
    if keystone.is_configured(conf, "placement"):
        name = resources.provider_name(hostname(conf))
        service = Service(conf, "placement", "placement")
        done = withdraw(
            Placement(service), name, resources.is_resource_class, frozenset(resources.TRAITS), dry_run=dry_run
        )
        if done is None:
            return Outcome(f"Placement has no resource provider {name}: there is nothing to reserve.")
        return _outcome(done, dry_run)
    path = conf.placement.provider_yaml
    if not path:
        return None
    if not provider_yaml.reserve(path, dry_run=dry_run):
        return Outcome(f"{path} has nothing to reserve.")
    step = f"reserve all that {path} has, which nova-compute reads when it is restarted"
    if dry_run:
        return Outcome(f"Would {step}.", step)
    return Outcome(f"All that {path} has is reserved: restart nova-compute, which reads it when it starts.", step)


def hostname(conf: cfg.ConfigOpts, patience: float = LIBVIRT_PATIENCE) -> str:
    """The compute node's hypervisor hostname, as the agent has it.

    :param patience: seconds to wait for libvirt.
    :raises HostnameUnknown: if it is not configured, and libvirt does not tell it in time.
    """
    if conf.placement.hypervisor_hostname:
        return str(conf.placement.hypervisor_hostname)
    found: list[str] = []
    errors: list[str] = [f"it does not answer within {patience:.0f} s"]
    # A call to a libvirtd that hangs can't be called off, only be left alone.
    asking = threading.Thread(target=_ask_libvirt, args=(conf.libvirt.uri, found, errors), daemon=True)
    asking.start()
    asking.join(patience)
    if found:
        return found[0]
    raise HostnameUnknown(uri=conf.libvirt.uri, reason=errors[-1])


def _ask_libvirt(uri: str, found: list[str], errors: list[str]) -> None:
    try:
        import libvirt
    except ImportError:
        errors.append("libvirt-python is not installed")
        return
    libvirt.registerErrorHandler(lambda *_: None, None)
    try:
        connection = libvirt.openReadOnly(uri)
        found.append(str(connection.getHostname()))
        connection.close()
    except libvirt.libvirtError as error:
        errors.append(str(error))


def _outcome(done: Withdrawn, dry_run: bool) -> Outcome:
    kept = f" Servers here still hold {units.amounts(done.used)}." if done.used else ""
    if not done.changed:
        return Outcome(f"Placement gives nothing more of {done.provider} already.{kept}")
    if done.reserved:
        what = units.amounts(done.reserved)
        step = f"have Placement reserve {what} of {done.provider}"
    else:
        what, step = "its traits", f"take the traits from {done.provider}"
    if dry_run:
        return Outcome(f"Would {step}.{kept}", step)
    return Outcome(f"Placement gives nothing more of {done.provider}: {what} went.{kept}", step)
