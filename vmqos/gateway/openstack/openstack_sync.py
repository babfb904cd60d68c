# SPDX-License-Identifier: Apache-2.0
"""What OpenStack and the agent have to tell each other: the agent is asked regularly, and answers go both ways."""

from __future__ import annotations

import logging
import threading

from oslo_config import cfg

from vmqos.daemon.log_once import LogOnce
from vmqos.daemon.worker import Worker
from vmqos.gateway.openstack import placement
from vmqos.gateway.openstack.capacity import Capacity
from vmqos.gateway.openstack.event_sender import EventSender
from vmqos.gateway.openstack.flavors import ERROR_LENGTH, FlavorLookup
from vmqos.gateway.openstack.placement import PlacementSync
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentNotRunning, LocalApiError, SocketForbidden

LOG = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two questions to the agent."""

_AGENT = "agent"

_FLAVORS = "flavors"


class OpenStackSync:
    """Asks the agent what OpenStack is to know, and hands it to those who tell Placement and ask Nova.

    :param agent: the way to the agent.
    :param placement: tells Placement, or nova-compute; ``None``: OpenStack is told nothing.
    :param flavors: asks Nova; ``None``: Nova is not asked. Without either, the agent is not asked, and no thread runs.
    :param hostname: the compute node's hypervisor hostname; ``None``: the agent knows it from libvirt.
    :param notifications: sends events to the message bus; ``None``: none are sent.
    """

    def __init__(
        self,
        agent: AgentClient,
        placement: PlacementSync | None,
        flavors: FlavorLookup | None,
        hostname: str | None = None,
        notifications: EventSender | None = None,
    ) -> None:
        self._agent = agent
        self._placement = placement
        self._flavors = flavors
        self._parts = [part for part in (placement, flavors) if part is not None]
        self._hostname = hostname
        self._notifications = notifications
        self._worker = Worker("openstack")
        self._once = LogOnce(LOG)
        self._untold = ""
        """Why the agent's last answer about OpenStack could not be had; empty where it could."""
        self._untaken = ""
        """Why the agent could not be told what Nova had answered; empty where it could."""

    @classmethod
    def of(cls, conf: cfg.ConfigOpts, agent: AgentClient) -> OpenStackSync:
        """As the configuration says.

        :raises vmqos.conf.exceptions.ConfigurationError: if its sections contradict each other.
        """
        return cls(
            agent,
            PlacementSync.of(conf),
            FlavorLookup.of(conf, agent),
            conf.placement.hypervisor_hostname,
            EventSender.of(conf, agent),
        )

    def placement(self) -> contract.PlacementHealth | None:
        """What OpenStack was told of this host; ``None`` where it is told nothing."""
        if self._placement is None:
            return None
        found = self._placement.health
        return {**found, "error": found["error"] or self._untold or None}

    def nova(self) -> contract.NovaHealth | None:
        """How asking Nova for flavors stands; ``None`` where Nova is not asked."""
        if self._flavors is None:
            return None
        found = self._flavors.health
        return {**found, "error": found["error"] or self._untold or self._untaken or None}

    def notifications(self) -> contract.NotificationsHealth | None:
        """How sending events as notifications stands; ``None`` where none are sent."""
        return self._notifications.health if self._notifications is not None else None

    def start(self) -> None:
        """Ask and tell from now on."""
        for part in self._parts:
            part.start()
        if self._parts:
            self._worker.start(self._run)
        if self._notifications is not None:
            self._notifications.start()

    def stop(self) -> None:
        """Ask and tell no more.

        The agent, Placement and Nova may all hang, and systemd waits 15 seconds for all of the gateway: the parts are
        waited for at the same time.
        """
        parts = [self._worker, *self._parts, *([self._notifications] if self._notifications is not None else [])]
        stops = [threading.Thread(target=part.stop) for part in parts]
        for thread in stops:
            thread.start()
        for thread in stops:
            thread.join()

    def _run(self) -> None:
        last: contract.OpenStack | None = None
        while not self._worker.ends:
            answer = self._exchange()
            # Something new is looked at again before it is told: it may just be changing.
            pause = PERIOD if answer == last else placement.SETTLES / 2
            last = answer
            with self._worker.condition:
                self._worker.condition.wait_for(lambda: self._worker.ends, pause)

    def _exchange(self) -> contract.OpenStack | None:
        """Ask the agent once, and hand on what it says; ``None`` where it does not answer."""
        try:
            answer = self._agent.openstack()
            self._tell_placement(answer)
        except (AgentNotRunning, SocketForbidden):
            # AgentWatch logs why the agent does not answer, and the metric vmqos_agent_up says so.
            self._agent_is_away("")
            return None
        except LocalApiError as error:
            # It may answer everything else, so that nothing else would tell of this.
            self._agent_is_away(f"OpenStack is told nothing new of this host: the agent does not answer this: {error}")
            return None
        except Exception as error:  # an agent of another version may answer anything
            what = f"{type(error).__name__}: {error}"[:ERROR_LENGTH]
            text = f"OpenStack is told nothing new of this host: the agent answers something else: {what}"
            self._agent_is_away(text, error)
            return None
        self._untold = ""
        if self._once.end(_AGENT):
            LOG.info("OpenStack is told of this host again")
        self._answer_flavors(answer)
        return answer

    def _tell_placement(self, answer: contract.OpenStack) -> None:
        capacity = answer["capacity"]
        if self._placement is not None:
            self._placement.offer(Capacity.of(capacity) if capacity is not None else None, self._host_of(answer))

    def _answer_flavors(self, answer: contract.OpenStack) -> None:
        """Tell the agent what Nova says. That this fails says nothing of what Placement is to know."""
        if self._flavors is None:
            return
        try:
            self._flavors.answer(answer["flavors_wanted"], self._host_of(answer))
        except (AgentNotRunning, SocketForbidden):
            # See the exchange.
            self._untaken = ""
            self._flavors.agent_is_away()
        except Exception as error:  # as in the exchange
            self._flavors.agent_is_away()
            what = str(error) if isinstance(error, LocalApiError) else f"{type(error).__name__}: {error}"[:ERROR_LENGTH]
            self._untaken = f"the agent can't be told flavors: {what}"
            traceback = None if isinstance(error, LocalApiError) else error
            self._once.log(logging.WARNING, _FLAVORS, "%s", self._untaken, error=traceback)
        else:
            self._untaken = ""
            if self._once.end(_FLAVORS):
                LOG.info("the agent is told flavors again")

    def _host_of(self, answer: contract.OpenStack) -> str | None:
        return self._hostname or answer["hypervisor_hostname"]

    def _agent_is_away(self, why: str, error: Exception | None = None) -> None:
        """Tell nothing until the agent answers again.

        :param why: what nothing else tells; empty where the whole agent is away.
        :param error: the exception whose traceback is worth logging.
        """
        self._untold = why
        if why:
            self._once.log(logging.WARNING, _AGENT, "%s", why, error=error)
        for part in self._parts:
            part.agent_is_away()
