# SPDX-License-Identifier: Apache-2.0
"""Telling OpenStack what this host can promise, beside the loop: by Placement's API, or by a file for nova-compute.

Placement may be slow, away, or of another opinion; the host's own work goes on. The loop only hands over what it knows.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from oslo_config import cfg

from vmqos.agent.serve import capacity
from vmqos.agent.serve.capacity import Capacity
from vmqos.agent.snapshot import Snapshot
from vmqos.conf import keystone
from vmqos.conf.exceptions import ConfigurationError
from vmqos.daemon.backoff import Backoff
from vmqos.daemon.worker import Worker
from vmqos.extra_specs import resources
from vmqos.hypervisor.exceptions import HypervisorError
from vmqos.openstack import provider_yaml
from vmqos.openstack.exceptions import CloudError
from vmqos.openstack.placement import Placement
from vmqos.openstack.provider_sync import Synced, Wanted, synchronize
from vmqos.openstack.service import Service
from vmqos.openstack.withdrawal import withdraw
from vmqos.reason import Code, Reason

LOG = logging.getLogger(__name__)

SETTLES = 0.5
"""Seconds that a change may settle in: a pass makes groups before it fills them."""

WITHOUT_RESCTRL = 60.0
"""Seconds after which a host without a readable resctrl is told to have nothing to promise: it may just be mounted."""

_KEY = "placement"


class Target(Protocol):
    """Where to tell it."""

    where: str
    """In an operator's words."""
    asks_what_is_held: bool
    """Whether it asks what VMs hold before it lowers what one VM can have."""

    def tell(self, found: Capacity) -> bool:
        """Tell it, and say whether anything had to be changed.

        :raises vmqos.openstack.exceptions.CloudError: if that can't be done now.
        :raises OSError: likewise.
        """


class Api:
    """The child provider in Placement.

    :param service: the way to Placement.
    :param hostname: tells the compute node's hypervisor hostname; raises where nobody knows it yet.
    """

    def __init__(self, service: Service, hostname: Callable[[], str]) -> None:
        self.where = "Placement"
        self.asks_what_is_held = True
        self._placement = Placement(service)
        self._hostname = hostname
        self._last: Synced | None = None

    def tell(self, found: Capacity) -> bool:
        """See :class:`Target`."""
        hostname = self._hostname()
        if found == capacity.NOTHING:
            # A provider that is there keeps its totals, so that Nova can move servers away that hold some of them.
            name = resources.provider_name(hostname)
            done = withdraw(self._placement, name, resources.is_resource_class, frozenset(resources.TRAITS))
            if done is not None:
                self._last = None
                self.where = f"Placement, resource provider {name}"
                return done.changed
        wanted = Wanted(
            compute_node=hostname,
            name=resources.provider_name(hostname),
            inventories=found.inventories,
            traits=found.traits,
            known_traits=frozenset(resources.TRAITS),
            withdrawn_prefix=resources.LLC_SHARED,
        )
        self._last = synchronize(self._placement, wanted, self._last)
        self.where = f"Placement, resource provider {wanted.name}"
        return self._last.changed


class File:
    """The file that nova-compute reads when it starts.

    :param path: where it is.
    """

    def __init__(self, path: str) -> None:
        self.where = path
        self.asks_what_is_held = False
        self._path = path

    def tell(self, found: Capacity) -> bool:
        """See :class:`Target`."""
        changed = provider_yaml.write(self._path, provider_yaml.render(found.inventories, found.traits))
        if changed:
            LOG.warning("%s was written: restart nova-compute, which reads it only when it starts", self._path)
        return changed


@dataclass(frozen=True, slots=True)
class Told:
    """How the telling stands.

    :ivar where: where to, in an operator's words; empty where nobody is told.
    :ivar error: why it could not be told; empty where it was.
    :ivar told: what was told last, ``None`` before.
    :ivar at: when it was told last or seen to be there still, in seconds since 1970; 0 before.
    :ivar changes: how often something had to be changed for it.
    :ivar failures: how often it failed.
    """

    where: str = ""
    error: str = ""
    told: Capacity | None = None
    at: float = 0.0
    changes: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class _Known:
    """What the loop handed over, and when it first knew no resctrl."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    lost_at: float = field(default_factory=time.monotonic)


class PlacementSync:
    """Keeps OpenStack's idea of this host up to date from a thread of its own.

    :param target: where to tell it; ``None``: nowhere, and there is no thread.
    :param check_interval: seconds between two looks at whether what was told is there still.
    :param backoff: the pauses after failures.
    """

    def __init__(self, target: Target | None, check_interval: float, backoff: Backoff) -> None:
        self._target = target
        self._check_interval = check_interval
        self._backoff = backoff
        self._worker = Worker("placement")
        self._known = _Known()
        self._fresh = False
        self._check_at = 0.0
        self.state = Told(target.where if target else "")

    @classmethod
    def of(cls, conf: cfg.ConfigOpts, hostname: Callable[[], str]) -> PlacementSync:
        """As the configuration says.

        :param hostname: tells the compute node's hypervisor hostname.
        :raises vmqos.conf.exceptions.ConfigurationError: if it says two things at once.
        """
        section = conf.placement
        target: Target | None = None
        by_api = keystone.is_configured(conf, "placement")
        if by_api and section.provider_yaml:
            raise ConfigurationError(
                f"[placement] has credentials and provider_yaml = {section.provider_yaml}: both would have each way "
                "counted twice; leave out one of them. Before credentials give way to the file, move away the servers "
                "that hold something of the provider in Placement, and delete it: the guide's page about Placement"
            )
        if by_api:
            target = Api(Service(conf, "placement", "placement"), hostname)
        elif section.provider_yaml:
            target = File(section.provider_yaml)
        backoff = Backoff(conf.agent.retry_delay_min, conf.agent.retry_delay_max)
        return cls(target, section.check_interval, backoff)

    def start(self) -> None:
        """Tell from now on."""
        if self._target is not None:
            self._worker.start(partial(self._run, self._target))

    def stop(self) -> None:
        """Stop telling; what was told stays, as the VMs' groups do."""
        self._worker.stop()

    def offer(self, snapshot: Snapshot) -> None:
        """Take over what the loop knows now; for the loop, which does not wait for anything here."""
        if self._target is None:
            return
        with self._worker.condition:
            before = self._known.snapshot
            same = before.resctrl is snapshot.resctrl and before.policy == snapshot.policy
            if same and before.requests is snapshot.requests:
                return
            lost_at = time.monotonic() if before.resctrl is not None else self._known.lost_at
            self._known, self._fresh = _Known(snapshot, lost_at), True
            self._worker.condition.notify_all()

    def _run(self, target: Target) -> None:
        while self._wait():
            if self._settle():
                return
            with self._worker.condition:
                self._fresh = False
                found = _capacity(self._known)
                if found is not None and not target.asks_what_is_held:
                    found = replace(found, held=capacity.most_held(self._known.snapshot.requests))
            if found is not None and (found != self.state.told or self.state.error or self._is_check_due()):
                self._tell(target, found)

    def _wait(self) -> bool:
        """Wait until there is something to do; ``False`` at the end."""
        with self._worker.condition:
            while not self._worker.ends:
                pause = self._pause()
                if pause <= 0 or (self._fresh and not self._backoff.waits(_KEY)):
                    return True
                self._worker.condition.wait(pause)
        return False

    def _pause(self) -> float:
        due = self._backoff.next_due()
        if due is not None:
            return due
        pauses = [self._check_at - time.monotonic()] if self.state.told is not None else []
        if self._known.snapshot.resctrl is None and self.state.told != capacity.NOTHING:
            pauses.append(self._known.lost_at + WITHOUT_RESCTRL - time.monotonic())
        return min(pauses, default=self._check_interval)

    def _settle(self) -> bool:
        """Let a change settle; whether this is the end."""
        with self._worker.condition:
            return self._worker.condition.wait_for(lambda: self._worker.ends, SETTLES)

    def _is_check_due(self) -> bool:
        return time.monotonic() >= self._check_at

    def _tell(self, target: Target, found: Capacity) -> None:
        before, changed, error = self.state, False, ""
        try:
            changed = target.tell(found)
        except (CloudError, HypervisorError, OSError) as expected:
            error = str(expected)
        except Exception as unexpected:
            LOG.exception("telling %s what this host can promise failed", target.where)
            error = f"{type(unexpected).__name__}: {unexpected}"
        if error:
            if error != before.error:
                LOG.warning("%s can't be told what this host can promise: %s", target.where, error)
            self._backoff.fail(_KEY, Reason(Code.OTHER, error))
            self.state = replace(before, where=target.where, error=error, failures=before.failures + 1)
            return
        if before.error:
            LOG.info("%s could be told again what this host can promise", target.where)
        self._backoff.succeed(_KEY)
        # Agents that were started together shall not look together for ever.
        self._check_at = time.monotonic() + self._check_interval * random.uniform(0.9, 1.1)
        self.state = replace(
            before, where=target.where, error="", told=found, at=time.time(), changes=before.changes + changed
        )


def _capacity(known: _Known) -> Capacity | None:
    """What to tell; ``None`` while that is not known."""
    snapshot = known.snapshot
    if snapshot.resctrl is not None:
        return capacity.of(snapshot.resctrl, snapshot.policy, snapshot.requests)
    return capacity.NOTHING if time.monotonic() >= known.lost_at + WITHOUT_RESCTRL else None
