# SPDX-License-Identifier: Apache-2.0
"""``vmqos complete``: cliff's own command, whose functions complete VMs, and words of options, too."""

from __future__ import annotations

import argparse

from cliff.complete import CompleteCommand

from vmqos.cli.completion import bash, places, zsh


class Complete(CompleteCommand):
    """Print a completion function for a shell, which completes VMs too."""

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Print cliff's function, and behind it the one that knows where VMs are named."""
        status = super().take_action(parsed_args)
        vms = {}
        for command, _ in self.app.command_manager:
            factory, name, _ = self.app.command_manager.find_command(command.split())
            found = places.of_parser(factory(self.app, None).get_parser(name))
            if found.any:
                vms[command] = found
        writers = {"bash": bash.vm_function, "zsh": zsh.vm_function}
        write = writers.get(parsed_args.shell)
        if write is not None:
            shared = places.of_parser(self.app.parser)
            self.app.stdout.write(write(parsed_args.name or self.app.NAME, vms, shared))
        return status
