# SPDX-License-Identifier: Apache-2.0
"""The command ``vmqos-gateway``."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from oslo_config import cfg
from oslo_log import log

from vmqos.conf import loader
from vmqos.conf.exceptions import ConfigurationError
from vmqos.daemon import garbage, log_setup
from vmqos.daemon.log_queue import LogQueue
from vmqos.daemon.notify import notify
from vmqos.daemon.unix_server import SocketUnusable, UnixServer
from vmqos.daemon.wakeup import Wakeup
from vmqos.gateway.agent_away import AgentWatch
from vmqos.gateway.metrics.kept_counters import KeptCounters
from vmqos.gateway.metrics.text import Metrics
from vmqos.gateway.openstack.openstack_sync import OpenStackSync
from vmqos.gateway.page import Site
from vmqos.gateway.relay import Relay
from vmqos.gateway.server import TcpServer
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.version import version
from vmqos.visible_text import make_visible, neutralise

LOG = log.getLogger(__name__)

PROGRAM = "vmqos-gateway"

AGENT_TIMEOUT = 9.0
"""Seconds to wait for the agent's answer: less than who asks the gateway waits for its own, which is 10 with Prometheus
by default, and :data:`vmqos.local_api.client.TIMEOUT`; more than the agent has a client wait for an event."""

LOOK_INTERVAL = 5.0
"""Seconds between two looks at whether the agent answers."""

LOOK_TIMEOUT = 2.0
"""Seconds that such a look takes at most; so much later the end may come."""

ENDS = (signal.SIGTERM, signal.SIGINT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gateway; the exit status is 0 after SIGTERM, 1 where something is wrong."""
    lines = LogQueue()
    try:
        with _ending() as ends, closing(lines):
            _serve(_configuration(sys.argv[1:] if arguments is None else arguments, lines), ends)
    except (ConfigurationError, SocketUnusable) as error:
        return lines.leave(1, f"{PROGRAM}: {neutralise(str(error))}")
    return lines.leave(0)


def _configuration(arguments: Sequence[str], lines: LogQueue) -> cfg.ConfigOpts:
    """The agent's own configuration, and a log that follows it.

    :param lines: has the log written, so that no thread waits for that.
    """
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    loader.load(arguments, conf, version(), PROGRAM)
    try:
        log_setup.set_up(conf)
    except log_setup.LogRefused as error:
        raise ConfigurationError(str(error)) from error
    make_visible(logging.getLogger())
    lines.attach(logging.getLogger())
    for warning in loader.unknown_options(conf):
        LOG.warning("%s", warning)
    return conf


@contextmanager
def _ending() -> Iterator[Wakeup]:
    """What the signals that end this process set from now on.

    ``signal.sigtimedwait`` would tell of a signal that nobody sent, where the process was stopped until its time was
    over (``signal_sigtimedwait_impl`` in CPython's Modules/signalmodule.c).
    """
    ends = Wakeup()
    before = {number: signal.signal(number, lambda *_: ends.set()) for number in ENDS}
    try:
        yield ends
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ends.close()


def _serve(conf: cfg.ConfigOpts, ends: Wakeup) -> None:
    """Answer until a signal says that this is the end."""
    agent = AgentClient(conf.gateway.agent_socket, AGENT_TIMEOUT, keeps_connections=True)
    openstack = OpenStackSync.of(conf, agent)
    kept = KeptCounters(f"{os.path.splitext(conf.gateway.socket)[0]}.counters")
    metrics = Metrics(agent, openstack, conf.gateway.old_metrics, kept)
    application = Site(Relay(agent, openstack, metrics), conf.api.host_names)
    servers = (
        UnixServer(
            application,
            "[gateway] socket",
            conf.gateway.socket,
            mode=conf.gateway.socket_mode,
            at_once=contract.HEALTH,
        ),
        TcpServer(application, conf.http.host, conf.http.port),
    )
    watch = AgentWatch(AgentClient(conf.gateway.agent_socket, LOOK_TIMEOUT))
    with ExitStack() as stack:
        for part in (openstack, *servers):
            stack.callback(part.stop)
            part.start()
        garbage.spare_what_is_there()
        notify("READY=1")
        watch.look()
        while not ends.wait(LOOK_INTERVAL):
            watch.look()
        notify("STOPPING=1")
    LOG.info("stopped")


if __name__ == "__main__":
    sys.exit(main())
