# SPDX-License-Identifier: Apache-2.0
"""The command ``vmqos-agent``."""

from __future__ import annotations

import logging
import os
import pwd
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import closing

from oslo_config import cfg
from oslo_log import log

from vmqos.agent.act.mbm_counters import CounterTurns, counted_groups
from vmqos.agent.loop import Agent
from vmqos.agent.remember.neighbour_events import NeighbourEvents, NeighbourWatch
from vmqos.agent.sample.hardware_counts import HardwareCounts
from vmqos.agent.sample.keep_minutes import MinutesKeeper
from vmqos.agent.sample.sampler import Telemetry
from vmqos.agent.serve.api import Api
from vmqos.agent.serve.live_reads import LiveReads
from vmqos.agent.serve.neighbours import Neighbours
from vmqos.agent.serve.sizes import Sizes
from vmqos.conf import loader
from vmqos.conf.exceptions import ConfigurationError
from vmqos.daemon import garbage, journal, log_setup
from vmqos.daemon.log_queue import LogQueue
from vmqos.daemon.unix_server import SocketUnusable, UnixServer
from vmqos.host.exceptions import HostError
from vmqos.host.single_instance import only_agent
from vmqos.local_api import contract
from vmqos.version import version
from vmqos.visible_text import make_visible, neutralise

LOG = log.getLogger(__name__)

SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread that computes lets another one go on, which may have but some milliseconds until a VM's
threads are made. Python's own is ten times as long, and counts for each call of the kernel."""

COMMAND_LINE = [
    cfg.BoolOpt("once", default=False, help="Look at everything once, do what follows from it, and end."),
]


class NotAllDone(Exception):
    """``--once`` could not do all that there was to do; the text says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent; the exit status is 0 after SIGTERM or a good ``--once``, 1 where something is wrong."""
    lines = LogQueue()
    try:
        with closing(lines):
            conf = _configuration(arguments, lines)
            with only_agent(conf.resctrl.path):
                if conf.once:
                    _once(conf)
                else:
                    _serve(conf, lambda: _configuration(arguments, lines))
    except (ConfigurationError, SocketUnusable, HostError, NotAllDone) as error:
        return lines.leave(1, f"vmqos-agent: {neutralise(str(error))}")
    return lines.leave(0)


def _configuration(arguments: Sequence[str] | None, lines: LogQueue) -> cfg.ConfigOpts:
    """Read everything anew, into an object of its own, and have the log follow it.

    :param lines: has the log written, so that no thread waits for that.
    """
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    conf.register_cli_opts(COMMAND_LINE)
    loader.load(sys.argv[1:] if arguments is None else arguments, conf, version())
    try:
        log_setup.set_up(conf)
    except log_setup.LogRefused as error:
        raise ConfigurationError(str(error)) from error
    make_visible(logging.getLogger())
    journal.attach(logging.getLogger(), "vmqos-agent")
    lines.attach(logging.getLogger())
    # The gateway looks at those with credentials: the agent has no use for keystoneauth.
    for warning in loader.unknown_options(conf, of_keystoneauth=False):
        LOG.warning("%s", warning)
    return conf


def _once(conf: cfg.ConfigOpts) -> None:
    """Look at everything once.

    :raises NotAllDone: if resctrl or libvirt did not let it.
    """
    agent = Agent(conf)
    if not agent.run_once():
        raise NotAllDone(agent.health.resctrl_error or agent.connection.last_error or "libvirt did not answer")


def _serve(conf: cfg.ConfigOpts, read_again: Callable[[], cfg.ConfigOpts]) -> None:
    """Watch over the host until SIGTERM."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    agent = Agent(conf, read_again)
    hardware = HardwareCounts.of(conf, lambda: agent.snapshot.vms, agent.give_way_to_vms)
    turns = CounterTurns(agent.filesystem, conf.telemetry.counter_turn, lambda: counted_groups(agent.snapshot))
    telemetry = Telemetry.of(conf, agent.give_way_to_vms, hardware, turns.after_sweep, lambda: agent.snapshot.vms)
    live = LiveReads()
    watched = conf.telemetry.neighbours_interval if telemetry.interval else 0.0
    events = NeighbourEvents(agent.events, lambda: agent.snapshot.vms) if watched else None
    neighbours = Neighbours(lambda: agent.snapshot, telemetry.recent, events, watched, agent.give_way_to_vms)
    watch = NeighbourWatch(neighbours.verdicts, watched)
    sizes = Sizes(lambda: agent.snapshot)
    keeper = MinutesKeeper(telemetry.minutes, conf.telemetry.minutes_file)
    owner = _owner_of_gateway_socket(conf)
    own = {0, os.geteuid()}
    servers = (
        _open_socket(conf, Api(agent, telemetry, live, frozenset(), hardware, neighbours, own, sizes)),
        _open_gateway_socket(
            conf, owner, Api(agent, telemetry, live, {*own, owner}, hardware, neighbours, sizes=sizes)
        ),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    signal.signal(signal.SIGHUP, lambda *_: agent.reload())
    for part in (keeper, telemetry, hardware, live, watch, *servers):
        part.start()
    garbage.spare_what_is_there()
    try:
        agent.run()
    finally:
        agent.events.close()
        for part in (*servers, watch, live, hardware, telemetry, keeper):
            part.stop()
    LOG.info("stopped; every VM keeps its group")


def _open_socket(conf: cfg.ConfigOpts, api: Api) -> UnixServer:
    """The socket that is open to whom the operator lets read."""
    section = conf.api
    return UnixServer(
        api,
        "[api] socket",
        section.socket,
        mode=section.socket_mode,
        group=section.socket_group or "",
        at_once=contract.HEALTH,
    )


def _owner_of_gateway_socket(conf: cfg.ConfigOpts) -> int:
    try:
        return pwd.getpwnam(conf.gateway.user).pw_uid
    except KeyError:
        LOG.info("there is no user %s ([gateway] user): the gateway has to run as the agent's user", conf.gateway.user)
        return os.geteuid()


def _open_gateway_socket(conf: cfg.ConfigOpts, owner: int, api: Api) -> UnixServer:
    """The socket that only the gateway's user may connect to, beside root and the agent's own user."""
    return UnixServer(
        api,
        "[gateway] agent_socket",
        conf.gateway.agent_socket,
        mode="600",
        owner=owner,
        at_once=contract.HEALTH,
    )


if __name__ == "__main__":
    sys.exit(main())
