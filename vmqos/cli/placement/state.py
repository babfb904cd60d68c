# SPDX-License-Identifier: Apache-2.0
"""Reading what the cloud's servers hold in Placement: all at once to find what looks wrong, then one by one.

A cloud is never still. What looks wrong in two listings, one of which is minutes older, is read again by itself before
it is called wrong, and once more before it is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from vmqos.cli import exceptions
from vmqos.cli.placement import audit
from vmqos.cli.placement.audit import Finding, Host, Hosts
from vmqos.extra_specs import resources
from vmqos.openstack.consumers import Consumer, Consumers
from vmqos.openstack.placement import Provider
from vmqos.openstack.servers import Migration, Servers

T = TypeVar("T")
Track = Callable[[Iterable[T], str, int | None], Iterator[T]]
"""Goes through things and shows how far it has come: the things, what they are, and how many, if that is known."""


@dataclass(slots=True)
class State:
    """What is read of the cloud.

    :ivar consumers: the way to Placement.
    :ivar servers: the way to Nova.
    :ivar track: shows the progress.
    :ivar filter_only: whether a server whose flavor asks Placement for nothing needs no claim.
    """

    consumers: Consumers
    servers: Servers
    track: Track  # type: ignore[type-arg]
    filter_only: bool = False
    _hosts: dict[str, Host] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)
    _migrations: dict[str, Migration] | None = None

    def suspects(self, hostname: str = "") -> tuple[list[Finding], list[str]]:
        """What is wrong with hosts, and the consumers whose claims look wrong.

        :param hostname: the hypervisor hostname of the host to look at; all if empty.
        :raises vmqos.cli.exceptions.NoSuchHost: if Placement has no such host.
        :raises vmqos.openstack.exceptions.CloudError: if a service does not answer, or refuses.
        """
        self._hosts = {host.hostname: host for host in _hosts(self.consumers.providers())}
        if hostname and hostname not in self._hosts:
            raise exceptions.NoSuchHost(wanted=hostname)
        findings, claims = self._read_hosts(hostname)
        hosts = self.hosts
        unknown = {consumer for consumer, held in claims.items() if audit.claim_of(held)}
        suspects: list[str] = []
        for server in self.track(self.servers.servers(hostname), "servers", None):
            unknown.discard(server.uuid)
            self._host(server.hostname)
            held = claims.get(server.uuid, {})
            if any(audit.judge_server(server, held, hosts, filter_only=self.filter_only)):
                suspects.append(server.uuid)
        return findings, [*sorted(unknown), *suspects]

    def again(self, hostname: str = "") -> list[Finding]:
        """What is wrong with hosts, read anew; the parameter and the errors are those of :meth:`suspects`."""
        self._read.clear()
        return self._read_hosts(hostname)[0]

    @property
    def hosts(self) -> Hosts:
        """The hosts, with what was read of them so far."""
        return Hosts.of(list(self._hosts.values()))

    def look(self, uuid: str) -> tuple[Consumer, list[Finding]]:
        """What a consumer holds now, and what is wrong with that.

        :raises vmqos.openstack.exceptions.CloudError: if a service does not answer, or refuses.
        """
        consumer = self.consumers.get(uuid)
        # After the claim: what has one was in Nova before.
        server = self.servers.get(uuid)
        if server is not None:
            self._host(server.hostname)
            found = audit.judge_server(server, consumer.held, self.hosts, filter_only=self.filter_only)
            return consumer, list(found)
        if not audit.claim_of(consumer.held):
            return consumer, []
        migration = self._migration(uuid)
        owner = self.servers.get(migration.server) if migration is not None else None
        return consumer, list(audit.judge_stranger(uuid, consumer.held, migration, owner, self.hosts))

    def _read_hosts(self, hostname: str) -> tuple[list[Finding], dict[str, dict[str, dict[str, int]]]]:
        """What is wrong with hosts, and what is held of them, by consumer and provider."""
        wanted = [hostname] if hostname else sorted(self._hosts)
        findings: list[Finding] = []
        claims: dict[str, dict[str, dict[str, int]]] = {}
        for name in self.track(wanted, "hosts", len(wanted)):
            host = self._host(name)
            used: dict[str, dict[str, int]] = {}
            for provider in host.inventories:
                for consumer, amounts in self.consumers.of_provider(provider).items():
                    claims.setdefault(consumer, {})[provider] = amounts
                    _add(used.setdefault(provider, {}), amounts)
            findings += audit.judge_host(host, used)
        return findings, claims

    def _migration(self, uuid: str) -> Migration | None:
        """The migration of that UUID. All are read once: Nova has no question for one by its UUID."""
        if self._migrations is None:
            found = self.track(self.servers.migrations(), "migrations", None)
            self._migrations = {migration.uuid: migration for migration in found}
        return self._migrations.get(uuid)

    def _host(self, hostname: str) -> Host:
        """A host with its inventories, which are read once."""
        host = self._hosts.get(hostname)
        if host is None:
            return Host(hostname, "")
        if hostname not in self._read:
            inventories = {}
            for provider in filter(None, (host.cache, host.root)):
                ours = {
                    name: found
                    for name, found in self.consumers.inventories(provider).items()
                    if resources.is_resource_class(name)
                }
                if ours:
                    inventories[provider] = ours
            host = self._hosts[hostname] = Host(hostname, host.root, host.cache, inventories)
            self._read.add(hostname)
        return host


def _hosts(providers: Iterable[Provider]) -> Iterator[Host]:
    """All that may be compute nodes: the roots, each with the child that a gateway keeps."""
    listed = list(providers)
    children = {(found.parent, found.name): found.uuid for found in listed if found.parent is not None}
    for found in listed:
        if found.parent is None:
            cache = children.get((found.uuid, resources.provider_name(found.name)), "")
            yield Host(found.name, found.uuid, cache)


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount
