# SPDX-License-Identifier: Apache-2.0
"""What Placement says of the hosts' caches: one request for many hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from keystoneauth1.exceptions import ClientException

from nova_plugin.scheduler.demand import Amount
from vmqos.extra_specs import resources
from vmqos.extra_specs.resources import LLC_CLASSES, LLC_OTHERS, LLC_WAYS

MICROVERSION = "1.36"
"""The one that Nova uses (``SAME_SUBTREE_VERSION`` of its report client)."""


class Client(Protocol):
    """What is used of ``nova.scheduler.client.report.SchedulerReportClient``."""

    def get(self, url: str, version: str | None = None) -> Any:
        """Send a GET to Placement."""


NO_SUCH = ("No such trait", "No such resource class")
"""What Placement says with status 400 where nobody ever made one that is asked for."""

LONGEST_REASON = 500
"""Characters of Placement's answer that are put into the log: a proxy's may be a page of HTML."""


class PlacementFailed(Exception):
    """Placement did not answer, or not as expected."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A host's provider of cache.

    :ivar traits: the traits of vmqos that it has.
    :ivar capacity: what can be promised exclusively.
    :ivar used: what is allocated of it, to servers whose flavors ask Placement.
    :ivar classes: the resource classes of the shared classes that servers can join there.
    :ivar refused: those of the shared classes that the host lists, and has no CLOSID for.
    :ivar others: how many different classes that are not listed the host can have; ``None``: its agent does not tell.
    """

    traits: frozenset[str]
    capacity: Amount
    used: Amount
    classes: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    others: int | None = None


_OURS = frozenset(resources.TRAITS)


def providers(client: Client, query: str) -> dict[str, Provider]:
    """The providers of cache of the hosts that are allocation candidates, by the UUID of the compute node.

    Of all requests that Placement knows, only the one for allocation candidates tells of many providers at once what
    they have and what is used. It tells of all providers of a host, also of those from which nothing is asked for.

    :param query: what the hosts are to be candidates for.
    :raises PlacementFailed: if there is no such answer.
    """
    summaries = _summaries(client, f"/allocation_candidates?{query}")
    found = {}
    for summary in summaries.values() if summaries else ():
        held = summary["resources"]
        if LLC_WAYS in held and LLC_CLASSES in held:
            ways, groups, others = held[LLC_WAYS], held[LLC_CLASSES], held.get(LLC_OTHERS)
            listed = [name for name in held if name.startswith(resources.LLC_SHARED) and name != LLC_OTHERS]
            found[summary["root_provider_uuid"]] = Provider(
                _OURS.intersection(summary["traits"]),
                Amount(ways["capacity"], groups["capacity"]),
                Amount(ways["used"], groups["used"]),
                frozenset(name for name in listed if held[name]["capacity"]),
                frozenset(name for name in listed if not held[name]["capacity"]),
                None if others is None else others["capacity"],
            )
    return found


def claimed_from(client: Client, consumer: str) -> frozenset[str]:
    """The UUIDs of the providers that a consumer holds something of; the compute node's own is among them.

    :param consumer: the UUID of a server.
    :raises PlacementFailed: if there is no such answer.
    """
    return frozenset(_answer(client, f"/allocations/{consumer}", "allocations") or ())


def _summaries(client: Client, url: str) -> Any:
    """The answer's summaries of providers; ``None`` where it asks for what no agent has made yet."""
    return _answer(client, url, "provider_summaries")


def _answer(client: Client, url: str, part: str) -> Any:
    try:
        response = client.get(url, version=MICROVERSION)
        if response.status_code == 400 and any(words in response.text for words in NO_SUCH):
            return None
        if response.status_code != 200:
            said = " ".join(response.text.split())[:LONGEST_REASON]
            raise PlacementFailed(f"GET {url}: HTTP {response.status_code}: {said}")
        return response.json()[part]
    except ClientException as error:
        raise PlacementFailed(f"GET {url}: {error}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise PlacementFailed(f"GET {url}: the answer has no {part!r}") from error
