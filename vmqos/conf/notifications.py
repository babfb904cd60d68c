# SPDX-License-Identifier: Apache-2.0
"""The ``[notifications]`` section: events of the agent as notifications on OpenStack's message bus."""

from __future__ import annotations

import socket

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "notifications",
    title="Notifications on OpenStack's message bus",
    help="Without transport_url, none are sent. Beside the options below, oslo.messaging's own stand in this file as "
    "they stand in nova.conf: the section [oslo_messaging_rabbit] (ssl, ssl_ca_file, amqp_durable_queues, "
    "rabbit_quorum_queue, heartbeat_timeout_threshold and others), and control_exchange in [DEFAULT], which is vmqos "
    "if unset. Needs oslo.messaging: pip install 'vmqos[notifications]', or the package python3-oslo.messaging.",
)

OPTIONS = [
    cfg.StrOpt(
        "transport_url",
        default=None,
        secret=True,
        sample_default="rabbit://vmqos:PASSWORD@192.0.2.1:5672/",
        help="Where the gateway sends each event of the agent: a promise that changed, a VM that ended, a host that "
        "fails or works again. The value of transport_url in nova.conf will do. Only RabbitMQ confirms what it "
        "has taken; what is sent over Kafka may be lost without a word.",
    ),
    cfg.ListOpt(
        "topics",
        default=["notifications"],
        help="The topics; in RabbitMQ, events are in the queues TOPIC.info and TOPIC.error. Ceilometer takes those of "
        "notifications.",
    ),
    cfg.StrOpt(
        "host",
        default=socket.gethostname(),
        sample_default="the name of this host",
        help="What this host is called in notifications. It should be what Nova calls it: [DEFAULT] host in nova.conf.",
    ),
    cfg.StrOpt(
        "publisher_id",
        default="vmqos.$notifications.host",
        help="Who the notifications say they are from.",
    ),
    cfg.StrOpt(
        "position_file",
        default="/run/vmqos-gateway/notifications.json",
        help="Where the gateway keeps the number of the event that was sent last, so that it goes on there after a "
        "restart. It need not outlive the host's: the agent's events don't.",
    ),
]

OF_OSLO_MESSAGING = "oslo_messaging_"
"""How the names of oslo.messaging's own sections begin."""
