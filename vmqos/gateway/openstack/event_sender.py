# SPDX-License-Identifier: Apache-2.0
"""Sending each of the agent's events as a notification, in order, from a thread of its own.

The agent's log of events is the backlog: what can't be sent is asked for again. An event that the broker has not
confirmed is sent once more, with the same id; so each comes at least once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from oslo_config import cfg

from vmqos import regular_file
from vmqos.daemon.backoff import Backoff
from vmqos.daemon.log_once import LogOnce
from vmqos.daemon.worker import Worker
from vmqos.gateway.openstack.message_bus import MessageBus, NotSent
from vmqos.gateway.openstack.notification import Notification, Position, due
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentNotRunning, LocalApiError, SocketForbidden
from vmqos.reason import Code, Reason

LOG = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two questions to the agent. It lets two clients of a socket wait for events: those are others."""

PATIENCE = 0.8
"""Seconds that the end waits for what is being sent: a broker that hangs must not hold up the gateway's end."""

LONGEST_POSITION = 1000
"""Bytes of the file with the position that are read."""

_KEY = "notifications"


class Bus(Protocol):
    """Where to send it; see :class:`vmqos.gateway.openstack.message_bus.MessageBus`."""

    where: str

    def send(self, notification: Notification) -> None:
        """Send it.

        :raises vmqos.gateway.openstack.message_bus.NotSent: if the broker has not confirmed it.
        """

    def close(self) -> None:
        """Send no more."""


class PositionFile:
    """Keeps the position over a restart of the gateway.

    :param path: where; the directory has to be there.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._once = LogOnce(LOG)

    def read(self) -> Position:
        """The position that was kept; one before all events where there is none, or none that can be read."""
        try:
            found = json.loads(regular_file.read(str(self._path), LONGEST_POSITION))
            epoch, number = found["epoch"], found["number"]
        except FileNotFoundError:
            return Position()
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            LOG.warning("%s can't be read, so events may be sent again: %s", self._path, error)
            return Position()
        if not isinstance(epoch, str) or type(number) is not int:
            LOG.warning("%s has no position, so events may be sent again", self._path)
            return Position()
        return Position(epoch, number)

    def write(self, position: Position) -> None:
        """Keep a position; where that fails, events are sent again after a restart, and the log says so."""
        text = json.dumps({"epoch": position.epoch, "number": position.number})
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            new.write_text(text, encoding="utf-8")
            new.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(new)
            told = "which events were sent can't be kept, so a restart sends some again: %s"
            self._once.log(logging.WARNING, _KEY, told, error)
        else:
            self._once.end(_KEY)


class EventSender:
    """Sends what the agent tells.

    :param agent: the agent to ask.
    :param bus: where to send it.
    :param host: what this host is called.
    :param file: keeps what was sent last.
    :param backoff: the pauses after failures.
    :ivar health: how the sending stands; replaced as a whole.
    """

    def __init__(self, agent: AgentClient, bus: Bus, host: str, file: PositionFile, backoff: Backoff) -> None:
        self._agent = agent
        self._bus = bus
        self._host = host
        self._file = file
        self._backoff = backoff
        self._worker = Worker("notifications", PATIENCE)
        self._once = LogOnce(LOG)
        self._position = Position()
        self._last = 0
        """The number of the last event that is known of the position's epoch."""
        self._is_unread = False
        """Whether the agent's events could not be read; the log, which has a bound, need not have said so."""
        self.health: contract.NotificationsHealth = {
            "where": bus.where,
            "error": None,
            "sent_at": None,
            "sent": 0,
            "failures": 0,
            "waiting": 0,
            "lost": 0,
        }

    @classmethod
    def of(
        cls, conf: cfg.ConfigOpts, agent: AgentClient, bus: Callable[[cfg.ConfigOpts], Bus] = MessageBus
    ) -> EventSender | None:
        """As the configuration says; ``None`` where no notifications are to be sent.

        :param bus: makes the way to the broker.
        :raises vmqos.conf.exceptions.ConfigurationError: if that can't be made.
        """
        section = conf.notifications
        if not section.transport_url:
            return None
        backoff = Backoff(conf.agent.retry_delay_min, conf.agent.retry_delay_max)
        return cls(agent, bus(conf), section.host, PositionFile(section.position_file), backoff)

    def start(self) -> None:
        """Send from now on."""
        self._position = self._file.read()
        self._worker.start(self._run)

    def stop(self) -> None:
        """Send no more; this waits less than a second, whatever the broker does."""
        self._worker.stop()

    def _run(self) -> None:
        while not self._worker.ends:
            self._look()
            failure = self._backoff.get(_KEY)
            pause = PERIOD if failure is None else failure.delay
            with self._worker.condition:
                self._worker.condition.wait_for(lambda: self._worker.ends, pause)
        self._bus.close()

    def _look(self) -> None:
        """Ask the agent once, and send what it tells until that fails."""
        before = self._position
        try:
            found = self._agent.events(before.number, before.epoch)
            unsent = max(0, self._last - before.number)
            to_send = list(due(found, before, self._host, time.time(), unsent))
        except (AgentNotRunning, SocketForbidden):
            # AgentWatch logs why the agent does not answer, and the metric vmqos_agent_up says so.
            return
        except (LocalApiError, LookupError, TypeError, ValueError, OverflowError, OSError) as error:
            # It may answer everything else, and an agent of another version anything.
            self._is_unread = True
            self._note(error=f"the agent's events can't be read: {type(error).__name__}: {error}")
            self._once.log(logging.WARNING, "agent", "no events are sent: %s", self.health["error"])
            return
        self._once.end("agent")
        if self._is_unread:
            self._is_unread = False
            self._note(error=None)
        self._note(waiting=max(0, found["last"] - (before.number if found["epoch"] == before.epoch else 0)))
        if not before.epoch:
            # A gateway that begins has lost none. What it can't send from here on, it has.
            self._position = Position(found["epoch"], found["first"] - 1)
        for notification, position in to_send:
            if self._worker.ends or not self._send(notification):
                if self._position.epoch == found["epoch"]:
                    self._last = found["last"]
                return
            self._position, self._last = position, found["last"]
            self._file.write(position)
            self._note(waiting=found["last"] - position.number)
            if notification.lost:
                self._note(lost=self.health["lost"] + notification.lost)

    def _send(self, notification: Notification) -> bool:
        """Send one; whether that went well."""
        before, text = self.health, ""
        try:
            self._bus.send(notification)
        except NotSent as error:
            text = str(error)
        if text:
            self._once.log(logging.WARNING, _KEY, "notifications can't be sent to %s: %s", before["where"], text)
            self._backoff.fail(_KEY, Reason(Code.OTHER, text))
            self._note(error=text, failures=before["failures"] + 1)
            return False
        if self._once.end(_KEY):
            LOG.info("notifications are sent to %s again", before["where"])
        self._backoff.succeed(_KEY)
        self._note(error=None, sent_at=time.time(), sent=before["sent"] + 1)
        if "lost" in notification.payload:
            LOG.warning("notifications: %s", notification.payload["reason"])
        return True

    def _note(self, **changes: object) -> None:
        self.health = {**self.health, **changes}  # type: ignore[typeddict-item]
