# SPDX-License-Identifier: Apache-2.0
"""``vmqos placement``: what servers hold of the hosts' ways in Placement, and taking a host out of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vmqos.cli import exceptions
from vmqos.cli.common import settings
from vmqos.cli.common.help_text import Documented
from vmqos.cli.common.output import Listing, is_for_machines
from vmqos.cli.show import progress_bar
from vmqos.cli.show.safe_text import neutralise
from vmqos.cli.show.tables import Cell

if TYPE_CHECKING:
    from rich.progress import Progress

    from vmqos.cli.placement.heal import Done
    from vmqos.cli.placement.state import State

_RESULTS = {"mended": "green", "would mend": "cyan", "left": "bold yellow"}


class _Claims(Listing):
    """What the two commands about claims share."""

    _progress: Progress

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add which hosts, and what is right."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--host", metavar="HOSTNAME", default="", help="only this compute node, by its hypervisor hostname"
        )
        parser.add_argument(
            "--filter-only",
            action="store_true",
            help="a server whose flavor asks Placement for nothing needs no claim: the scheduler's CacheWaysFilter "
            "counts it",
        )
        parser.add_argument("--os-cloud", metavar="CLOUD", help="its name in clouds.yaml; that of OS_CLOUD by default")
        return parser

    @contextmanager
    def _cloud(self, parsed_args: argparse.Namespace) -> Iterator[State]:
        """The cloud, and a progress bar on standard error where that is a terminal."""
        # Imported here: they take a quarter of a second, and the other commands ask the agent.
        from vmqos.cli.flavor import api
        from vmqos.cli.placement.state import State
        from vmqos.openstack.consumers import Consumers
        from vmqos.openstack.exceptions import CloudError
        from vmqos.openstack.servers import Servers
        from vmqos.openstack.service import TIMEOUT, ConnectedService

        connection = api.connect(parsed_args.os_cloud)
        with api.told():
            connection.session.timeout = connection.session.timeout or TIMEOUT
            consumers = Consumers(ConnectedService("placement", connection.placement))
            servers = Servers(ConnectedService("nova", connection.compute))
        with progress_bar.for_terminals(self.app.stderr) as self._progress:
            try:
                with api.told():
                    yield State(consumers, servers, self._track, parsed_args.filter_only)
            except CloudError as error:
                raise exceptions.CloudFailed(problem=str(error)) from error

    def _track(self, things: Iterable[Any], what: str, total: int | None) -> Iterator[Any]:
        yield from self._progress.track(things, total=total, description=what)


class Audit(_Claims):
    """Find servers whose promise is not what Placement has claimed for them.

    Compares what Placement has allocated of the hosts' ways and control groups with the servers that Nova has, each
    with the flavor that it was made with. Changes nothing.

    Finds claims of servers that no longer exist, and of migrations that are over (orphan); servers with a promise and
    no claim (missing), or with one that is too little or too much; claims on a host that the server is not on, or on
    the compute node's own provider where the gateway keeps another one (misplaced, double); hosts of which more is
    claimed than there is (overdrawn), or whose ways are counted twice.

    A server that is moved, resized, built or deleted now is left out, and so is one that is in error.

    It takes an administrator. The cloud is found as the openstack command does it: by clouds.yaml, or OS_AUTH_URL and
    its kin in the environment.

    The exit status is 0 if nothing was found, 1 if something was or the cloud can't be asked, 2 for wrong usage.

    For example::

        vmqos placement audit
        vmqos placement audit --host compute-7 -f json
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Read the cloud, and look again at what seems wrong."""
        with self._cloud(parsed_args) as state:
            found, suspects = state.suspects(parsed_args.host)
            for uuid in self._track(suspects, "suspects", len(suspects)):
                found += state.look(uuid)[1]
        self.exit_status = int(bool(found))
        if is_for_machines(parsed_args):
            columns = ("problem", "host", "consumer", "name", "detail", "mendable")
            return columns, [
                (one.problem.value, one.host, one.consumer, one.name, one.detail, one.mend is not None) for one in found
            ]
        if not found and parsed_args.formatter == "table":
            self.app.stdout.write("Nothing to mend: every claim is what was promised.\n")
        return ("Problem", "Host", "Server", "Finding"), [
            (one.problem.value, neutralise(one.host), _who(one.name, one.consumer), neutralise(one.detail))
            for one in found
        ]


class Heal(_Claims):
    """Have Placement claim for each server what it was promised, and remove claims of servers that are gone.

    Mends what 'vmqos placement audit' finds: gives a running server the claim that it lacks, moves one that is on the
    wrong provider, and removes what is left of servers that no longer exist. Whatever else a server holds, such as CPUs
    and memory, stays. No server loses what it was promised.

    Every server is looked at again right before it is changed, and again if Nova changes it at the same moment. One
    that is moved, resized, built or deleted now is left alone. Where a host has no room for a claim, that is said; move
    a server away then, and run the command again. Run it also after a server was moved that was made before its flavor
    asked Placement for its ways: Nova claims on the new host what the flavor asked for then.

    It takes an administrator. The cloud is found as the openstack command does it: by clouds.yaml, or OS_AUTH_URL and
    its kin in the environment.

    The exit status is 0 if nothing is left to mend, 1 if something is or the cloud can't be asked, 2 for wrong usage.

    For example::

        vmqos placement heal --dry-run
        vmqos placement heal --host compute-7
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add whether to do it."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--dry-run", action="store_true", help="only say what would be mended")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Read the cloud, and mend what seems wrong and is."""
        from vmqos.cli.placement import heal
        from vmqos.cli.placement.heal import Done

        with self._cloud(parsed_args) as state:
            of_hosts, suspects = state.suspects(parsed_args.host)
            seen = {uuid: state.look(uuid)[1] for uuid in self._track(suspects, "suspects", len(suspects))}
            wrong = sorted((uuid for uuid in seen if seen[uuid]), key=lambda uuid: heal.first_to_free(seen[uuid]))
            done = [
                one
                for uuid in self._track(wrong, "claims", len(wrong))
                for one in heal.heal(state, uuid, dry_run=parsed_args.dry_run)
            ]
            if not parsed_args.dry_run and any(one.result == "mended" for one in done):
                # A claim that went may have been the one too many.
                of_hosts = state.again(parsed_args.host)
        done += [Done(finding, "left", finding.detail) for finding in of_hosts]
        self.exit_status = int(any(one.result == "left" for one in done))
        return self._shown(done, parsed_args)

    def _shown(self, done: Sequence[Done], parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        if is_for_machines(parsed_args):
            columns = ("problem", "host", "consumer", "name", "result", "detail")
            return columns, [
                (
                    one.finding.problem.value,
                    one.finding.host,
                    one.finding.consumer,
                    one.finding.name,
                    one.result,
                    one.detail,
                )
                for one in done
            ]
        if not done and parsed_args.formatter == "table":
            self.app.stdout.write("Nothing to mend: every claim is what was promised.\n")
        return ("Problem", "Host", "Server", "Result", "Finding"), [
            (
                one.finding.problem.value,
                neutralise(one.finding.host),
                _who(one.finding.name, one.finding.consumer),
                Cell(one.result, style=_RESULTS[one.result]),
                neutralise(one.detail),
            )
            for one in done
        ]


class Withdraw(Documented):
    """Have Placement give no more of this host, while its agent is away.

    Reserves all that Placement has of this host's ways and control groups, and takes away the traits of vmqos: Nova
    places no further server with a promise here. Servers that run here keep what they hold, and can be moved away. When
    an agent runs here again, the gateway tells Placement anew what the host has.

    Uses the credentials of [placement] in the agent's configuration. Where that names a file for nova-compute instead
    (provider_yaml), the file is changed, and nova-compute has to be restarted to read it. Where it has neither, there
    is nothing to do.

    While the agent runs it is refused: the gateway would tell Placement again what the agent says of the host. This is
    not so for --dry-run, which changes nothing. systemd runs this command when the agent has been away for ten minutes
    (vmqos-withdraw.timer), and 'vmqos reset' does the same.

    For example::

        vmqos placement withdraw
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add whether to do it."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """See that no agent runs, and do it."""
        from vmqos.cli.placement import withdraw
        from vmqos.host.single_instance import is_running

        conf = settings.configuration(self.app.options)
        if not parsed_args.dry_run and is_running(conf.resctrl.path):
            raise exceptions.GatewayWouldTell()
        done = withdraw.perform(conf, dry_run=parsed_args.dry_run)
        line = (
            "Nothing to do: the configuration has the gateway tell neither Placement nor nova-compute."
            if done is None
            else done.line
        )
        self.app.stdout.write(f"{neutralise(line)}\n")
        return 0


def _who(name: str, consumer: str) -> str:
    """A server's name and UUID; a dash where it is about a host."""
    return neutralise(f"{name} ({consumer})" if name and consumer else consumer or "-")
