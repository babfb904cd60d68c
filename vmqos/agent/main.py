# SPDX-License-Identifier: Apache-2.0
"""The command ``vmqos-agent``."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Sequence

from oslo_config import cfg
from oslo_log import log

from vmqos.agent.exceptions import AgentError
from vmqos.agent.loop import Agent
from vmqos.agent.sample.sampler import Telemetry
from vmqos.agent.serve import api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.conf import loader
from vmqos.conf.exceptions import ConfigurationError
from vmqos.gateway.page import Site
from vmqos.gateway.server import TcpServer, WithMetrics
from vmqos.host.exceptions import HostError
from vmqos.host.single_instance import only_agent
from vmqos.version import version
from vmqos.visible_text import make_visible, neutralise

LOG = log.getLogger(__name__)

COMMAND_LINE = [
    cfg.BoolOpt("once", default=False, help="Look at everything once, do what follows from it, and end."),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent; the exit status is 0 after SIGTERM or a good ``--once``, 1 where something is wrong."""
    try:
        conf = _configuration(arguments)
        with only_agent(conf.resctrl.path):
            return _once(conf) if conf.once else _serve(conf, lambda: _configuration(arguments))
    except (ConfigurationError, AgentError, HostError) as error:
        print(f"vmqos-agent: {neutralise(str(error))}", file=sys.stderr)
        return 1


def _configuration(arguments: Sequence[str] | None) -> cfg.ConfigOpts:
    """Read everything anew, into an object of its own, and have the log follow it."""
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    conf.register_cli_opts(COMMAND_LINE)
    loader.load(sys.argv[1:] if arguments is None else arguments, conf, version())
    log.setup(conf, "vmqos")
    make_visible(logging.getLogger())
    for warning in loader.unknown_options(conf):
        LOG.warning("%s", warning)
    return conf


def _once(conf: cfg.ConfigOpts) -> int:
    agent = Agent(conf)
    if agent.run_once():
        return 0
    reason = agent.health.resctrl_error or agent.connection.last_error or "libvirt did not answer"
    print(f"vmqos-agent: {neutralise(reason)}", file=sys.stderr)
    return 1


def _serve(conf: cfg.ConfigOpts, read_again: Callable[[], cfg.ConfigOpts]) -> int:
    agent = Agent(conf, read_again)
    telemetry, live = Telemetry.of(conf), LiveReads()
    application = Site(WithMetrics(agent, telemetry, api.Api(agent, telemetry, live)), conf.api.host_names)
    servers = api.Server(application, conf), TcpServer(application, conf.http.host, conf.http.port)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    signal.signal(signal.SIGHUP, lambda *_: agent.reload())
    for part in (telemetry, live, *servers):
        part.start()
    try:
        agent.run()
    finally:
        for part in (*servers, live, telemetry):
            part.stop()
    LOG.info("stopped; every VM keeps its group")
    return 0


if __name__ == "__main__":
    sys.exit(main())
