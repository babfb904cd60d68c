# SPDX-License-Identifier: Apache-2.0
"""OpenStack's message bus, by oslo.messaging: nothing of it is imported before a configuration names a broker."""

from __future__ import annotations

import logging
import warnings
from datetime import UTC, datetime
from typing import Any

from oslo_config import cfg

from vmqos.conf.exceptions import ConfigurationError
from vmqos.gateway.openstack.notification import Notification

LOG = logging.getLogger(__name__)

EXCHANGE = "vmqos"
"""The exchange where ``[DEFAULT] control_exchange`` names no other one."""

_OWN_RETRIES = 0
"""How often oslo.messaging itself tries again: it would sleep meanwhile, and hear of no end."""


class NotSent(Exception):
    """The broker has not confirmed a notification."""


class MessageBus:
    """The way to the broker; one thread sends. It is connected when the first notification is sent.

    oslo.messaging's ``Notifier`` is no help here. It logs what can't be sent and goes on, so that its caller takes it
    for sent, and gives each attempt another id and time. So this does what the ``Notifier``'s driver ``messagingv2``
    does: it makes the envelope and hands it to the transport, whose error says that it was not sent.

    :param conf: with the section ``[notifications]`` and oslo.messaging's own.
    :raises vmqos.conf.exceptions.ConfigurationError: if no topic is named, or oslo.messaging is not installed, or can't
        take the URL.
    :ivar where: the broker, without user and password.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        section = conf.notifications
        if not section.topics or not all(section.topics):
            raise ConfigurationError(
                "[notifications] topics names none, or an empty one: what is sent to that is lost, and nothing would "
                "say so; name one, or remove the line: notifications is taken then"
            )
        oslo_messaging = _library()
        if not LOG.isEnabledFor(logging.DEBUG):
            # It writes lines for each attempt, under either name. Who sends says once what is wrong.
            for name in ("oslo_messaging", "oslo.messaging"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
        self._target: type[Any] = oslo_messaging.Target
        self._topics: list[str] = section.topics
        self._publisher_id: str = section.publisher_id
        oslo_messaging.set_transport_defaults(control_exchange=EXCHANGE)
        try:
            url = oslo_messaging.TransportURL.parse(conf, section.transport_url)
            self.where = _where(url)
            self._transport: Any = oslo_messaging.get_notification_transport(conf, url)
        except Exception as error:  # what is wrong with a URL or a driver, each driver says in its own way
            # The text of the error may have the whole URL in it, and so the password.
            raise ConfigurationError(
                f"[notifications] transport_url can't be used ({type(error).__name__}): write it as in nova.conf, such "
                "as rabbit://USER:PASSWORD@HOST:5672/"
            ) from error

    def send(self, notification: Notification) -> None:
        """Send it to each topic, and wait until the broker has confirmed that.

        That takes at most some seconds, or as long as ``[oslo_messaging_rabbit] heartbeat_timeout_threshold`` where the
        broker is connected and silent.

        :raises NotSent: if the broker has not; it may have it all the same.
        """
        moment = datetime.fromtimestamp(notification.moment, UTC).replace(tzinfo=None)
        try:
            for topic in self._topics:
                message = {
                    "message_id": notification.message_id,
                    "publisher_id": self._publisher_id,
                    "event_type": notification.event_type,
                    "priority": notification.priority.upper(),
                    "payload": dict(notification.payload),
                    "timestamp": moment.isoformat(" ", timespec="microseconds"),
                }
                target = self._target(topic=f"{topic}.{notification.priority}")
                self._transport._send_notification(target, {}, message, version=2.0, retry=_OWN_RETRIES)
        except Exception as error:  # the drivers let through what their libraries raise
            raise NotSent(str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Close the connections."""
        try:
            self._transport.cleanup()
        except Exception:  # a broker that is away does not take the farewell
            LOG.debug("closing the connection to %s failed", self.where, exc_info=True)


def _library() -> Any:
    """oslo.messaging; what it imports takes threads where it can, and not eventlet."""
    logging.getLogger("oslo_service").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        # Of what its own libraries are going to change, no operator need know.
        warnings.simplefilter("ignore")
        try:
            from oslo_service import backend

            backend.init_backend(backend.BackendType.THREADING)
        except Exception:  # an earlier one has no choice, and without cotyledon there is none
            LOG.debug("oslo.service takes what it takes", exc_info=True)
        try:
            import oslo_messaging
        except ImportError as error:
            raise ConfigurationError(
                "[notifications] transport_url needs oslo.messaging: pip install 'vmqos[notifications]', or install "
                f"the package python3-oslo.messaging ({error})"
            ) from error
    return oslo_messaging


def _where(url: Any) -> str:
    hosts = [f"{host.hostname}:{host.port}" if host.port else str(host.hostname) for host in url.hosts]
    return f"{url.transport}://{','.join(hosts)}/{url.virtual_host or ''}"
