# SPDX-License-Identifier: Apache-2.0
"""Whether a consumer holds in Placement what its server was promised, and what it should hold instead. Pure.

The words are Placement's: a *consumer* (a server, or a migration of one) holds amounts of resource classes of
*providers*. What it holds of vmqos' classes is its *claim*.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vmqos import extra_specs
from vmqos.cli.show import units
from vmqos.extra_specs import resources
from vmqos.openstack.consumers import Held
from vmqos.openstack.placement import Inventory
from vmqos.openstack.servers import Migration, Server

Amounts = Mapping[str, int]

OVER = frozenset({"completed", "confirmed", "done", "cancelled", "reverted"})
"""Nova's statuses of a migration that has ended well, and has given back all that it held."""

FAILED = frozenset({"error", "failed"})
"""Those of one that has not."""


class Problem(enum.Enum):
    """The kinds of findings."""

    ORPHAN = "orphan"
    """A consumer that is neither a server nor a migration under way has a claim."""
    MISSING = "missing"
    """A server was promised something, and has no claim."""
    TOO_LITTLE = "too little"
    """A server's claim is smaller than its promise."""
    TOO_MUCH = "too much"
    """A server's claim is larger than its promise."""
    MISPLACED = "misplaced"
    """A server has a claim on a host that it is not on, or on the wrong provider of its host."""
    DOUBLE = "double"
    """A server has its claim on the right provider, and one on another."""
    OVERDRAWN = "overdrawn"
    """More of a host is claimed than there is."""
    TWICE = "counted twice"
    """A host has its ways in two providers."""


@dataclass(frozen=True, slots=True)
class Mend:
    """What mends a finding.

    :ivar claim: all that the consumer is to hold of vmqos' classes, by provider; the other classes stay as they are.
    """

    claim: Held


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong.

    :ivar host: the hypervisor hostname of the compute node.
    :ivar consumer: the UUID of the consumer; empty where the finding is about a host.
    :ivar name: the name of its server, as far as it is known.
    :ivar detail: what is wrong, and what keeps it from being mended.
    :ivar mend: what mends it; ``None`` where 'vmqos placement heal' can't.
    """

    problem: Problem
    host: str
    consumer: str
    name: str
    detail: str
    mend: Mend | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """A compute node in Placement.

    :ivar hostname: its hypervisor hostname, which is the name of its own provider.
    :ivar root: the UUID of that provider.
    :ivar cache: the UUID of the child provider that the gateway keeps; empty where there is none.
    :ivar inventories: of vmqos' classes, by the UUID of the provider.
    """

    hostname: str
    root: str
    cache: str = ""
    inventories: Mapping[str, Mapping[str, Inventory]] = field(default_factory=dict)

    @property
    def provider(self) -> str:
        """The UUID of the provider that its servers' claims belong on; empty where none has vmqos' classes."""
        return next((uuid for uuid in (self.cache, self.root) if self.inventories.get(uuid)), "")

    def name_of(self, provider: str) -> str:
        """The name of one of its two providers."""
        return resources.provider_name(self.hostname) if provider == self.cache else self.hostname


@dataclass(frozen=True, slots=True)
class Hosts:
    """All hosts, or those that are audited.

    :ivar by_name: by hypervisor hostname.
    :ivar by_provider: by the UUIDs of their providers.
    """

    by_name: Mapping[str, Host]
    by_provider: Mapping[str, Host]

    @classmethod
    def of(cls, hosts: Sequence[Host]) -> Hosts:
        """These."""
        by_provider = {uuid: host for host in hosts for uuid in (host.root, host.cache) if uuid}
        return cls({host.hostname: host for host in hosts}, by_provider)


def claim_of(held: Held) -> dict[str, dict[str, int]]:
    """The part of what a consumer holds that is of vmqos' classes, by provider."""
    claims = {
        provider: {name: amount for name, amount in amounts.items() if resources.is_resource_class(name)}
        for provider, amounts in held.items()
    }
    return {provider: amounts for provider, amounts in claims.items() if amounts}


def promised(server: Server) -> dict[str, int] | None:
    """What a server's claim has to be; ``None`` where that can't be told.

    That is what its promise takes, or what its flavor asked Placement for when it got it, if that is more: the
    scheduler has claimed it so.
    """
    if server.extra_specs is None:
        return None
    parsed = extra_specs.parse(server.extra_specs)
    if parsed.errors:
        return None
    wanted, asked = resources.requested(parsed.request), resources.asked(server.extra_specs)
    return {name: max(wanted.get(name, 0), asked.get(name, 0)) for name in {**wanted, **asked}}


def asks(server: Server) -> bool:
    """Whether the server's flavor asked Placement for anything of vmqos when the server got it."""
    return bool(resources.asked(server.extra_specs or {}))


def judge_server(server: Server, held: Held, hosts: Hosts, *, filter_only: bool = False) -> Iterator[Finding]:
    """What is wrong with the claim of a server.

    One that is moved, resized, built or deleted now, or that is in error, is not judged: Nova itself writes what such a
    server holds, and a migration may hold a part of it.

    :param held: all that it holds.
    :param filter_only: whether a server whose flavor asks Placement for nothing needs no claim.
    """
    claim = claim_of(held)
    if server.state == "shelved_offloaded" and not server.task:
        yield from _without_a_host(server, held, claim, hosts)
        return
    wanted = promised(server)
    if not server.is_at_rest or wanted is None:
        return
    host = hosts.by_name.get(server.hostname)
    if host is None:
        return
    if filter_only and not asks(server) and not claim:
        return
    right = host.provider
    on_right = claim.get(right, {})
    due = _offered(host, wanted, on_right)
    elsewhere = {provider: amounts for provider, amounts in claim.items() if provider != right}
    keeps, reason = _kept_elsewhere(server, held, elsewhere, hosts)
    mend = Mend({**keeps, right: due}) if right and held else None
    moves = mend if elsewhere and keeps != elsewhere else None
    if elsewhere:
        yield _elsewhere(server, host, on_right, elsewhere, moves, reason, hosts)
    if any(on_right.get(name, 0) < amount for name, amount in due.items()):
        # What is moved is not missing besides.
        if on_right or moves is None:
            yield _lacking(server, host, due, on_right, held, mend)
    elif any(amount > wanted.get(name, 0) for name, amount in on_right.items()):
        holds, takes = units.amounts(on_right), units.amounts(wanted)
        detail = f"holds {holds} of {host.name_of(right)}, and its promise takes {takes}"
        yield _finding(Problem.TOO_MUCH, host.hostname, server, detail, mend)


def judge_stranger(
    uuid: str, held: Held, migration: Migration | None, server: Server | None, hosts: Hosts
) -> Iterator[Finding]:
    """What is wrong with a claim whose consumer is no server.

    :param held: all that it holds.
    :param migration: the migration that has this UUID, if there is one.
    :param server: the server of the migration, if there is one.
    """
    claim = claim_of(held)
    if not claim:
        return
    where = ", ".join(sorted({_hostname(provider, hosts) for provider in claim}))
    what = _of_providers(claim, hosts)
    rest = any(name for amounts in held.values() for name in amounts if not resources.is_resource_class(name))
    more = "; what it holds of Nova's own classes is for 'nova-manage placement audit --delete'" if rest else ""
    if migration is None:
        detail = f"holds {what}, and Nova knows neither a server nor a migration of that UUID{more}"
        yield Finding(Problem.ORPHAN, where, uuid, "", detail, Mend({}))
        return
    if server is None:
        detail = f"holds {what} for a migration of server {migration.server}, which Nova does not know{more}"
        yield Finding(Problem.ORPHAN, where, uuid, "", detail, Mend({}))
        return
    if migration.status not in OVER | FAILED or not server.is_at_rest:
        return
    detail = f"holds {what} for a migration of server {server.uuid} that is {migration.status}"
    if migration.status in FAILED:
        detail += "; Nova may still need it to bring the server back: 'nova-manage placement audit' tells"
        yield Finding(Problem.ORPHAN, where, uuid, server.name, detail)
    else:
        yield Finding(Problem.ORPHAN, where, uuid, server.name, detail + more, Mend({}))


def judge_host(host: Host, used: Mapping[str, Amounts]) -> Iterator[Finding]:
    """What is wrong with a host as a whole; none of it can be mended by changing claims.

    :param used: what all consumers hold, by provider and resource class.
    """
    for provider, inventories in host.inventories.items():
        for name, inventory in sorted(inventories.items()):
            amount = used.get(provider, {}).get(name, 0)
            # A shared class that the host offers no longer serves the servers that are in it.
            if amount <= inventory.capacity or name not in resources.CLASSES:
                continue
            detail = f"{amount} {name} of {host.name_of(provider)} are claimed, and {inventory.capacity} can be had"
            if inventory.reserved >= inventory.total:
                detail += ": all is reserved, for the agent is away, or the host can promise nothing"
            yield Finding(Problem.OVERDRAWN, host.hostname, "", "", detail)
    both = [uuid for uuid in (host.cache, host.root) if host.inventories.get(uuid)]
    if len(both) > 1:
        detail = (
            f"{host.name_of(both[0])} and {host.hostname} itself both have an inventory: the agent has credentials, "
            "and nova-compute reads a file that a gateway wrote; remove the file and restart nova-compute"
        )
        yield Finding(Problem.TWICE, host.hostname, "", "", detail)


def after(held: Held, mend: Mend) -> dict[str, dict[str, int]]:
    """All that a consumer holds once it is mended: what is not of vmqos' classes stays."""
    result: dict[str, dict[str, int]] = {}
    for provider, amounts in held.items():
        result[provider] = {name: amount for name, amount in amounts.items() if not resources.is_resource_class(name)}
    for provider, amounts in mend.claim.items():
        result[provider] = {**result.get(provider, {}), **amounts}
    return {provider: amounts for provider, amounts in result.items() if amounts}


def _offered(host: Host, wanted: Amounts, held: Amounts) -> dict[str, int]:
    """What a claim on the host's provider can be.

    A host need not offer a shared class. Where it offers the class no longer, servers keep what they hold of it.
    """
    there = host.inventories.get(host.provider, {})
    offered = {name for name, inventory in there.items() if inventory.capacity}
    return {
        name: amount
        for name, amount in wanted.items()
        if name in resources.CLASSES or name in offered or (name in held and name in there)
    }


def _kept_elsewhere(server: Server, held: Held, elsewhere: Held, hosts: Hosts) -> tuple[dict[str, Amounts], str]:
    """The claims on other hosts that have to stay, and why.

    An evacuated server holds what it had on the old host until nova-compute there starts again and cleans up. Nova's
    own classes tell: where it holds CPUs on a host, that host is Nova's to give back.
    """
    keeps: dict[str, Amounts] = {}
    for provider, amounts in elsewhere.items():
        host = hosts.by_provider.get(provider)
        if host is not None and host.hostname == server.hostname:
            continue
        tree = (host.root, host.cache) if host is not None else (provider,)
        if host is None or any(not resources.is_resource_class(name) for uuid in tree for name in held.get(uuid, ())):
            keeps[provider] = amounts
    if not keeps:
        return keeps, ""
    names = ", ".join(sorted(_hostname(provider, hosts) for provider in keeps))
    return keeps, (
        f"it holds resources of Nova's own classes on {names}, too, as an evacuated server does until nova-compute "
        "there starts again"
    )


def _elsewhere(
    server: Server,
    host: Host,
    on_right: Amounts,
    elsewhere: Held,
    mend: Mend | None,
    reason: str,
    hosts: Hosts,
) -> Finding:
    detail = f"holds {_of_providers(elsewhere, hosts)}, and is on {host.hostname}"
    if host.provider:
        detail += f", where {host.name_of(host.provider)} is the provider"
    detail += f"; {reason}" if reason else ""
    return _finding(Problem.DOUBLE if on_right else Problem.MISPLACED, host.hostname, server, detail, mend)


def _lacking(server: Server, host: Host, wanted: Amounts, on_right: Amounts, held: Held, mend: Mend | None) -> Finding:
    problem = Problem.TOO_LITTLE if on_right else Problem.MISSING
    detail = f"was promised what takes {units.amounts(wanted)}, and holds {units.amounts(on_right)}"
    if not host.provider:
        detail += f": {host.hostname} has no provider of cache, for no gateway tells Placement what it has"
    elif not held:
        detail += (
            ": it has no allocation at all, not even of CPUs; give it those of Nova's own classes first "
            "('openstack resource provider allocation set')"
        )
    return _finding(problem, host.hostname, server, detail, mend)


def _without_a_host(server: Server, held: Held, claim: Held, hosts: Hosts) -> Iterator[Finding]:
    if not claim:
        return
    names = ", ".join(sorted({_hostname(provider, hosts) for provider in claim}))
    what = _of_providers(claim, hosts)
    rest = any(not resources.is_resource_class(name) for amounts in held.values() for name in amounts)
    yield _finding(Problem.MISPLACED, names, server, f"is on no host, and holds {what}", None if rest else Mend({}))


def _finding(problem: Problem, hostname: str, server: Server, detail: str, mend: Mend | None) -> Finding:
    return Finding(problem, hostname, server.uuid, server.name, detail, mend)


def _hostname(provider: str, hosts: Hosts) -> str:
    host = hosts.by_provider.get(provider)
    return host.hostname if host else f"the host of provider {provider}"


def _of_providers(claim: Held, hosts: Hosts) -> str:
    """What is claimed of which provider."""
    names = {uuid: host.name_of(uuid) for uuid, host in hosts.by_provider.items() if uuid in claim}
    return ", ".join(f"{units.amounts(amounts)} of {names.get(uuid, uuid)}" for uuid, amounts in claim.items())
