# SPDX-License-Identifier: Apache-2.0
"""``vmqos reset``: take back what vmqos did to resctrl."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmqos.cli import exceptions
from vmqos.cli.common import settings
from vmqos.cli.common.help_text import Documented
from vmqos.cli.common.output import confirm_first
from vmqos.cli.show.safe_text import neutralise

if TYPE_CHECKING:
    from oslo_config import cfg


@dataclass(frozen=True, slots=True)
class _Told:
    """What becomes of what OpenStack has of this host.

    :ivar steps: what is done; empty where there is nothing to do.
    :ivar error: why it can't be done; empty where it can.
    :ivar line: a sentence about what is so afterwards.
    """

    steps: tuple[str, ...] = ()
    error: str = ""
    line: str = ""


class Reset(Documented):
    """Remove every group that vmqos made, and give their ways back to the default group.

    Removes the groups named vmqos.* and nothing else: groups of libvirt, of containers and of other tools stay, and
    so do their ways. So do locked regions ('vmqos lock remove'). The VMs go on running, without what their flavors
    promise. Says what it will do and asks first.

    Where the agent's configuration has credentials for Placement or names a file for nova-compute, what OpenStack has
    of this host's ways is reserved first, as 'vmqos placement withdraw' does it: Nova would go on placing servers here
    whose promise is not kept. If that fails, the groups are removed all the same, and the exit status is 1. An agent
    that starts tells OpenStack anew.

    While the agent runs it would make the groups again at once, so that is refused; --force does it all the same,
    for example to see the agent put everything back.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add how much to ask."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument(
            "--no-placement", action="store_true", help="leave what OpenStack has of this host as it is"
        )
        parser.add_argument("--force", action="store_true", help="even while the agent runs, which undoes it")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Look, say, ask, do."""
        # Imported here: the other commands read no resctrl themselves.
        from vmqos.host import reset
        from vmqos.host.exceptions import AlreadyRunning
        from vmqos.host.single_instance import is_running, only_agent

        conf = settings.configuration(self.app.options)
        where = (conf.resctrl.path, conf.allocation.reserved_ways, conf.resctrl.lock_timeout)
        # An agent that runs tells OpenStack what is so.
        tells = not parsed_args.no_placement and not is_running(conf.resctrl.path)
        if parsed_args.dry_run:
            planned = reset.prepare(*where)
            told = self._withdraw(conf, tells, dry_run=True)
            self._say("would do", conf.resctrl.path, [*told.steps, *planned.describe()])
            return 0
        try:
            # While this lock is held no agent can start and take the groups for its own.
            with nullcontext() if parsed_args.force else only_agent(conf.resctrl.path):
                planned = reset.prepare(*where)
                told = self._withdraw(conf, tells, dry_run=True)
                self._say("will do", conf.resctrl.path, [*told.steps, *planned.describe()])
                if told.steps or not planned.is_empty:
                    if not parsed_args.yes:
                        confirm_first(self, "")
                    told = self._withdraw(conf, tells)
                    if not planned.is_empty:
                        reset.perform(*where)
                    self.app.stdout.write(f"{neutralise(told.line)}\n" if told.line else "")
                    self.app.stdout.write("Done.\n")
        except AlreadyRunning as error:
            raise exceptions.AgentStillRuns() from error
        if told.error:
            raise exceptions.PlacementNotTold(problem=told.error)
        return 0

    def _withdraw(self, conf: cfg.ConfigOpts, tells: bool, *, dry_run: bool = False) -> _Told:
        """Reserve what OpenStack has of this host; an error is told, and keeps nothing else from being done."""
        from vmqos.cli.placement import withdraw
        from vmqos.conf.exceptions import ConfigurationError
        from vmqos.openstack.exceptions import CloudError

        if not tells:
            return _Told()
        try:
            done = withdraw.perform(conf, dry_run=dry_run)
        except (exceptions.CommandError, CloudError, ConfigurationError, OSError) as error:
            problem = " ".join(str(error).split())
            return _Told((f"leave what OpenStack has of this host, for it can't be told: {problem}",), problem)
        return _Told((done.step,), line=done.line) if done is not None and done.step else _Told()

    def _say(self, intent: str, path: str, steps: list[str]) -> None:
        if not steps:
            self.app.stdout.write(
                f"Nothing to do: no group on {path} is vmqos', and the default group has all it can.\n"
            )
            return
        self.app.stdout.write(f"On {path}, 'vmqos reset' {intent}:\n")
        for step in steps:
            self.app.stdout.write(f"  - {neutralise(step)}\n")
        self.app.stdout.flush()
