# SPDX-License-Identifier: Apache-2.0
"""``vmqos reset``: take back what vmqos did to resctrl."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext

from vmqos.cli import exceptions, settings
from vmqos.cli.help_text import Documented
from vmqos.cli.safe_text import neutralise


class Reset(Documented):
    """Remove every group that vmqos made, and give their ways back to the default group.

    Removes the groups named vmqos.* and nothing else: groups of libvirt, of containers and of other tools stay, and
    so do their ways. So do locked regions ('vmqos lock remove'). The VMs go on running, without what their flavors
    promise. Says what it will do and asks first.

    While the agent runs it would make the groups again at once, so that is refused; --force does it all the same,
    for example to see the agent put everything back.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add how much to ask."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument("--force", action="store_true", help="even while the agent runs, which undoes it")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Look, say, ask, do."""
        # Imported here: the other commands read no resctrl themselves.
        from vmqos.agent import reset
        from vmqos.agent.exceptions import AlreadyRunning
        from vmqos.agent.single_instance import only_agent

        conf = settings.configuration(self.app.options)
        where = (conf.resctrl.path, conf.allocation.reserved_ways, conf.resctrl.lock_timeout)
        if parsed_args.dry_run:
            self._say("would do", conf.resctrl.path, reset.prepare(*where).describe())
            return 0
        try:
            # While this lock is held no agent can start and take the groups for its own.
            with nullcontext() if parsed_args.force else only_agent(conf.resctrl.path):
                planned = reset.prepare(*where)
                self._say("will do", conf.resctrl.path, planned.describe())
                if not planned.is_empty:
                    if not parsed_args.yes:
                        self._ask(input)
                    reset.perform(*where)
                    self.app.stdout.write("Done.\n")
        except AlreadyRunning as error:
            raise exceptions.AgentStillRuns() from error
        return 0

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

    def _ask(self, ask: Callable[[str], str]) -> None:
        if not self.app.stdin.isatty():
            raise exceptions.NotConfirmed(reason="there is no terminal to ask on; say --yes")
        if ask("Continue? [y/N] ").strip().lower() not in ("y", "yes"):
            raise exceptions.NotConfirmed(reason="you did not say yes")
