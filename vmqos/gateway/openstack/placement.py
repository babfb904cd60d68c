# SPDX-License-Identifier: Apache-2.0
"""Telling OpenStack what this host can promise: by Placement's API, or by a file for nova-compute.

Placement may be slow, away, or of another opinion. It is told from a thread of its own, and keeps nothing else waiting.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from dataclasses import dataclass, replace
from typing import Protocol

from oslo_config import cfg

from vmqos.conf import keystone
from vmqos.conf.exceptions import ConfigurationError
from vmqos.daemon.backoff import Backoff
from vmqos.daemon.worker import Worker
from vmqos.extra_specs import resources
from vmqos.gateway.openstack.capacity import NOTHING, Capacity
from vmqos.local_api import contract
from vmqos.openstack import provider_yaml
from vmqos.openstack.exceptions import CloudError, HostnameUnknown
from vmqos.openstack.placement import Inventory, Placement
from vmqos.openstack.provider_sync import Synced, Wanted, synchronize
from vmqos.openstack.service import Service
from vmqos.openstack.withdrawal import withdraw
from vmqos.reason import Code, Reason

LOG = logging.getLogger(__name__)

SETTLES = 0.5
"""Seconds that a change may settle in: a pass of the agent makes groups before it fills them."""

WITHOUT_RESCTRL = 60.0
"""Seconds after which a host without a readable resctrl is told to have nothing to promise: it may just be mounted."""


CONTESTED = 4
"""Intervals between two looks for which it is told that another client changed the provider: two gateways that do so in
turns each find the other one's change within two or three."""

ANOTHER_HOST = (
    "It was put right. If that goes on, two hosts have one hypervisor hostname, and their gateways overwrite each "
    "other: give each host a name of its own, as its nova-compute has it ([placement] hypervisor_hostname)"
)


class Target(Protocol):
    """Where to tell it."""

    where: str
    """In an operator's words."""
    asks_what_is_held: bool
    """Whether it asks what VMs hold before it lowers what one VM can have."""
    changed_by_other: str
    """What another client had changed of what was told, when it was told last; empty for nothing."""

    def tell(self, found: Capacity, hostname: str | None) -> bool:
        """Tell it, and say whether anything had to be changed.

        :param hostname: the compute node's hypervisor hostname; ``None`` where it is not known yet.
        :raises vmqos.openstack.exceptions.CloudError: if that can't be done now.
        :raises OSError: likewise.
        """


class Api:
    """The child provider in Placement.

    :param service: the way to Placement.
    """

    def __init__(self, service: Service) -> None:
        self.where = "Placement"
        self.asks_what_is_held = True
        self.changed_by_other = ""
        self._placement = Placement(service)
        self._last: Synced | None = None

    def tell(self, found: Capacity, hostname: str | None) -> bool:
        """See :class:`Target`."""
        self.changed_by_other = ""
        if hostname is None:
            raise HostnameUnknown()
        name = resources.provider_name(hostname)
        if found == NOTHING:
            # A provider that is there keeps its totals, so that Nova can move servers away that hold some of them.
            done = withdraw(self._placement, name, resources.is_resource_class, frozenset(resources.TRAITS))
            if done is not None:
                self._last = None
                self.where = f"Placement, resource provider {name}"
                return done.changed
        wanted = Wanted(
            compute_node=hostname,
            name=name,
            inventories=found.inventories,
            traits=found.traits,
            known_traits=frozenset(resources.TRAITS),
            withdrawn_prefix=resources.LLC_SHARED,
        )
        # Where it fails halfway, what it left is not known.
        last, self._last = self._last, None
        self._last = synchronize(self._placement, wanted, last)
        self.where = f"Placement, resource provider {name}"
        self.changed_by_other = self._last.changed_by_other
        return self._last.changed


class File:
    """The file that nova-compute reads when it starts.

    :param path: where it is.
    """

    def __init__(self, path: str) -> None:
        self.where = path
        self.asks_what_is_held = False
        self.changed_by_other = ""
        self._path = path

    def tell(self, found: Capacity, hostname: str | None) -> bool:
        """See :class:`Target`."""
        changed = self._reserve() if found == NOTHING else None
        if changed is None:
            changed = provider_yaml.write(self._path, provider_yaml.render(self._kept(found), found.traits))
        if changed:
            LOG.warning("%s was written: restart nova-compute, which reads it only when it starts", self._path)
        return changed

    def _kept(self, found: Capacity) -> dict[str, Inventory]:
        """What the file is to have: what the host has to give, and what servers may hold.

        What servers hold is not known here: those that are shut off have no process, and at the boot of the host all
        are. So a shared class stays, all reserved, and what one server can have of the ways is never lowered. Placement
        lets nova-compute take no class away that is in use, and then nova-compute does not start
        (``_update_to_placement`` in nova.compute.resource_tracker).
        """
        inventories = found.inventories
        try:
            there = provider_yaml.read(self._path)
        except provider_yaml.Damaged:
            return inventories
        gone = [name for name in there if name.startswith(resources.LLC_SHARED) and name not in inventories]
        inventories |= {name: Inventory(total=1, reserved=1) for name in gone}
        if resources.LLC_WAYS in there:
            ways, before = inventories[resources.LLC_WAYS], there[resources.LLC_WAYS].max_unit
            inventories[resources.LLC_WAYS] = replace(ways, max_unit=max(ways.max_unit, before))
        return inventories

    def _reserve(self) -> bool | None:
        """Reserve all that the file has; whether that changed it, ``None`` where it has nothing.

        nova-compute can't take away what servers hold, and Nova could not move a server away that holds more than
        ``max_unit``. What they hold is not known here: while resctrl can't be read, the agent does not tell it.
        """
        try:
            return provider_yaml.reserve(self._path) if provider_yaml.read(self._path) else None
        except provider_yaml.Damaged:
            return None


def _is_read_by_nova(path: str) -> bool:
    """Whether nova-compute finds a file (``get_provider_configs`` in nova.compute.provider_config, Python's glob)."""
    name = os.path.basename(path)
    return name.endswith(".yaml") and not name.startswith(".")


@dataclass(frozen=True, slots=True)
class _Known:
    """What the agent says.

    :ivar capacity: what its host has to give; ``None`` while resctrl can't be read.
    :ivar hostname: the compute node's hypervisor hostname; ``None`` where it is not known yet.
    :ivar lost_at: the monotonic time at which resctrl was first seen not to be readable; of no meaning where it is.
    """

    capacity: Capacity | None
    hostname: str | None
    lost_at: float

    @property
    def due(self) -> Capacity | None:
        """What is to be told now; ``None`` while that is not known."""
        if self.capacity is None and time.monotonic() >= self.lost_at + WITHOUT_RESCTRL:
            return NOTHING
        return self.capacity


class PlacementSync:
    """Keeps OpenStack's idea of this host up to date from a thread of its own.

    :param target: where to tell it.
    :param check_interval: seconds between two looks at whether what was told is there still.
    :param backoff: the pauses after failures, by the hypervisor hostname.
    :ivar health: how the telling stands; replaced as a whole.
    """

    def __init__(self, target: Target, check_interval: float, backoff: Backoff) -> None:
        self._target = target
        self._check_interval = check_interval
        self._backoff = backoff
        self._worker = Worker("placement")
        self._known: _Known | None = None
        self._told: tuple[Capacity, str | None] | None = None
        """What was told last, and of which compute node."""
        self._check_at = 0.0
        self._contested_at = 0.0
        """When another client's change was found last, by the monotonic clock."""
        self.health: contract.PlacementHealth = {
            "where": target.where,
            "error": None,
            "told_at": None,
            "inventories": {},
            "traits": [],
            "changes": 0,
            "failures": 0,
            "changed_by_other": None,
        }

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> PlacementSync | None:
        """As the configuration says; ``None`` where OpenStack is to be told nothing.

        :raises vmqos.conf.exceptions.ConfigurationError: if it says two things at once.
        """
        section = conf.placement
        by_api = keystone.is_configured(conf, "placement")
        if by_api and section.provider_yaml:
            raise ConfigurationError(
                f"[placement] has credentials and provider_yaml = {section.provider_yaml}: both would have each way "
                "counted twice; leave out one of them. Before credentials give way to the file, move away the servers "
                "that hold something of the provider in Placement, and delete it: the guide's page about Placement"
            )
        target: Target
        if by_api:
            target = Api(Service(conf, "placement", "placement"))
        elif section.provider_yaml:
            if not _is_read_by_nova(section.provider_yaml):
                LOG.warning(
                    "[placement] provider_yaml = %s: of its directory, nova-compute reads the files *.yaml alone, and "
                    "none whose name begins with a dot",
                    section.provider_yaml,
                )
            target = File(section.provider_yaml)
        else:
            return None
        return cls(target, section.check_interval, Backoff(conf.agent.retry_delay_min, conf.agent.retry_delay_max))

    def start(self) -> None:
        """Tell from now on."""
        self._worker.start(self._run)

    def stop(self) -> None:
        """Stop telling; what was told stays, as the VMs' groups do."""
        self._worker.stop()

    def offer(self, found: Capacity | None, hostname: str | None) -> None:
        """Take over what the agent says now, without waiting for Placement.

        After the agent was away, Placement is looked at soon, whatever was told: ``vmqos placement withdraw`` may have
        taken it back.

        :param found: what the host has to give; ``None`` while resctrl can't be read.
        :param hostname: the compute node's hypervisor hostname; ``None`` where it is not known yet.
        """
        if found is not None and self._target.asks_what_is_held:
            found = replace(found, held=0)
        with self._worker.condition:
            before = self._known
            if before is None:
                self._check_at = 0.0
            elif (before.capacity, before.hostname) == (found, hostname):
                return
            is_lost_still = before is not None and before.capacity is None
            lost_at = before.lost_at if before is not None and is_lost_still else time.monotonic()
            self._known = _Known(found, hostname, lost_at)
            self._worker.condition.notify_all()

    def agent_is_away(self) -> None:
        """Tell nothing until the next :meth:`offer`: that the agent does not answer changes nothing about its host."""
        with self._worker.condition:
            self._known = None

    def _run(self) -> None:
        while self._wait():
            if self._settle():
                return
            with self._worker.condition:
                known, found = self._known, self._known.due if self._known else None
                if known is None or found is None or not self._is_due():
                    continue
                # Gateways that were started together shall not look together for ever. This stands before the telling:
                # the agent may go and come while that lasts, and then Placement is looked at once more.
                self._check_at = time.monotonic() + self._check_interval * random.uniform(0.9, 1.1)
            self._tell(found, known.hostname)

    def _wait(self) -> bool:
        """Wait until there is something to do; ``False`` at the end."""
        with self._worker.condition:
            while not self._worker.ends:
                if self._is_due():
                    return True
                pause = self._pause()
                self._worker.condition.wait(pause if pause is None else min(pause, threading.TIMEOUT_MAX))
        return False

    def _is_due(self) -> bool:
        pause = self._pause()
        return pause is not None and pause <= 0

    def _pause(self) -> float | None:
        """Seconds until there is something to do, unless the agent says something new before."""
        if self._known is None:
            return None
        found = self._known.due
        if found is None:
            return self._known.lost_at + WITHOUT_RESCTRL - time.monotonic()
        # What failed under another name, or before there was one, says nothing of this one.
        failed = self._backoff.get(self._known.hostname)
        if failed is not None:
            return self._backoff.seconds_until(failed)
        is_told = (found, self._known.hostname) == self._told
        return self._check_at - time.monotonic() if is_told else 0.0

    def _settle(self) -> bool:
        """Let a change settle; whether this is the end."""
        with self._worker.condition:
            return self._worker.condition.wait_for(lambda: self._worker.ends, SETTLES)

    def _tell(self, found: Capacity, hostname: str | None) -> None:
        before, changed, error = self.health, False, ""
        try:
            changed = self._target.tell(found, hostname)
        except (CloudError, OSError) as expected:
            error = str(expected)
        except Exception as unexpected:
            error = f"{type(unexpected).__name__}: {unexpected}"
            if error != before["error"]:
                LOG.exception("telling %s what this host can promise failed", self._target.where)
        where = self._target.where
        if error:
            if error != before["error"]:
                LOG.warning("%s can't be told what this host can promise: %s", where, error)
            self._backoff.fail(hostname, Reason(Code.OTHER, error))
            self.health = {**before, "where": where, "error": error, "failures": before["failures"] + 1}
            return
        if before["error"]:
            LOG.info("%s could be told again what this host can promise", where)
        self._backoff.keep_only(())
        self._told = found, hostname
        self.health = {
            **before,
            "where": where,
            "error": None,
            "told_at": time.time(),
            "inventories": {name: inventory.capacity for name, inventory in found.inventories.items()},
            "traits": sorted(found.traits),
            "changes": before["changes"] + changed,
            "changed_by_other": self._contested(before.get("changed_by_other")),
        }

    def _contested(self, before: str | None) -> str | None:
        """What another client changed lately, with what that may mean; the log has it, too.

        :param before: what was told of this until now. It stays for as long as two gateways may take to undo what the
            other one wrote.
        """
        if by_other := self._target.changed_by_other:
            text = f"another client has changed {self._target.where}: {by_other}. {ANOTHER_HOST}"
            LOG.warning("%s", text)
            self._contested_at = time.monotonic()
            return text
        return before if time.monotonic() < self._contested_at + CONTESTED * self._check_interval else None
