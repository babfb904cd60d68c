# SPDX-License-Identifier: Apache-2.0
"""How the agent and OpenStack fare, as the JSON of ``/v1/health``."""

from __future__ import annotations

from typing import Protocol

from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient


class OpenStackHealth(Protocol):
    """What is known of OpenStack's services."""

    def placement(self) -> contract.PlacementHealth | None:
        """What OpenStack was told of this host; ``None`` where it is told nothing."""

    def nova(self) -> contract.NovaHealth | None:
        """How asking Nova for flavors stands; ``None`` where it is not asked."""

    def notifications(self) -> contract.NotificationsHealth | None:
        """How sending events as notifications stands; ``None`` where none are sent."""


def health(agent: AgentClient, openstack: OpenStackHealth) -> contract.Health:
    """What the agent says of itself, and what the gateway knows of OpenStack.

    :raises vmqos.local_api.exceptions.LocalApiError: if the agent does not answer.
    """
    return {
        **agent.health(),
        "placement": openstack.placement(),
        "nova": openstack.nova(),
        "notifications": openstack.notifications(),
    }
