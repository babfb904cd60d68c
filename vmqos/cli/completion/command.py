# SPDX-License-Identifier: Apache-2.0
"""``vmqos complete``: a function for a shell that knows what each place of a command line takes."""

from __future__ import annotations

import argparse

from vmqos.cli.common.help_text import Documented
from vmqos.cli.completion import bash, places, zsh

_WRITERS = {"bash": bash.function, "zsh": zsh.function}


class Complete(Documented):
    """Print a completion function for bash or zsh: of commands, options, VMs, flavors and files.

    The Debian and the RPM packages bring both. VMs and flavors are those that the agent of this host knows.

    For example::

        vmqos complete | sudo tee /etc/bash_completion.d/vmqos >/dev/null
        vmqos complete --shell zsh | sudo tee /usr/share/zsh/vendor-completions/_vmqos >/dev/null
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the shell, and the program's name."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--name", metavar="NAME", help="the program that is completed; vmqos unless given")
        parser.add_argument(
            "--shell", metavar="SHELL", choices=tuple(_WRITERS), default="bash", help="bash or zsh; bash unless given"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print the function."""
        commands = {}
        for command, _ in self.app.command_manager:
            factory, name, _ = self.app.command_manager.find_command(command.split())
            commands[command] = places.of_parser(factory(self.app, None).get_parser(name))
        write = _WRITERS[parsed_args.shell]
        self.app.stdout.write(write(parsed_args.name or self.app.NAME, commands, places.of_parser(self.app.parser)))
