# SPDX-License-Identifier: Apache-2.0
"""What Placement says of the hosts' ways: one request for all hosts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

from keystoneauth1.exceptions import ClientException

from nova_plugin.scheduler.demand import Amount
from vmqos.openstack.extra_specs.resources import LLC_CLASSES, LLC_WAYS

MICROVERSION = "1.29"
"""The first one that tells the root of each provider's tree, which is the compute node."""


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
class Stock:
    """What a host's provider has.

    :ivar capacity: what can be promised exclusively.
    :ivar used: what is allocated of it, to servers whose flavors ask Placement.
    """

    capacity: Amount
    used: Amount


def stocks(client: Client, amount: Amount) -> dict[str, Stock]:
    """What the hosts have where Placement would allocate that much, by the UUID of the compute node.

    Of all requests that Placement knows, only the one for allocation candidates tells of many providers at once what
    they have and what is used. It heeds the least and the most that a provider gives to one server, too.

    :raises PlacementFailed: if there is no such answer.
    """
    wanted = {LLC_WAYS: amount.ways, LLC_CLASSES: amount.classes}
    # Placement refuses to be asked for none of a class.
    query = urlencode({"resources": ",".join(f"{name}:{count}" for name, count in wanted.items() if count)})
    summaries = _get(client, f"/allocation_candidates?{query}", "provider_summaries")
    found = {}
    for summary in summaries.values() if summaries else ():
        held = summary["resources"]
        if LLC_WAYS in held and LLC_CLASSES in held:
            found[summary["root_provider_uuid"]] = Stock(_amount(held, "capacity"), _amount(held, "used"))
    return found


def hosts_with(client: Client, traits: Collection[str]) -> frozenset[str]:
    """The UUIDs of the compute nodes whose provider of cache has all these traits.

    The agents make the traits: one that no host of the cloud has need not be there.

    :raises PlacementFailed: if Placement does not tell.
    """
    query = urlencode({"required": ",".join(sorted(traits))})
    providers = _get(client, f"/resource_providers?{query}", "resource_providers")
    return frozenset(provider["root_provider_uuid"] for provider in providers or ())


def _get(client: Client, url: str, key: str) -> Any:
    """What the answer has under the key; ``None`` where it asks for what no agent has made yet."""
    try:
        response = client.get(url, version=MICROVERSION)
        if response.status_code == 400 and any(words in response.text for words in NO_SUCH):
            return None
        if response.status_code != 200:
            said = " ".join(response.text.split())[:LONGEST_REASON]
            raise PlacementFailed(f"GET {url}: HTTP {response.status_code}: {said}")
        return response.json()[key]
    except ClientException as error:
        raise PlacementFailed(f"GET {url}: {error}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise PlacementFailed(f"GET {url}: the answer has no '{key}'") from error


def _amount(held: Mapping[str, Mapping[str, int]], what: str) -> Amount:
    return Amount(held[LLC_WAYS][what], held[LLC_CLASSES][what])
