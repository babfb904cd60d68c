# SPDX-License-Identifier: Apache-2.0
"""The application behind ``vmqos``: what all its commands share."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import Any

from cliff.app import App
from cliff.commandmanager import CommandManager

from vmqos.cli import command_list, exceptions
from vmqos.cli.common.help_text import fail_if_not_printed
from vmqos.cli.completion.command import Complete
from vmqos.version import version as vmqos_version
from vmqos.visible_text import make_visible, neutralise

NAMESPACE = "vmqos.cli"
"""The entry point group of the commands; an underscore in a name stands for a blank."""

USAGE_STATUS = 2

_DESCRIPTION = """\
Cache and memory-bandwidth QoS for the VMs of this host: which VM owns which ways of the L3 caches, and why.
The commands ask vmqos-agent over its local socket; bench, capabilities, doctor, gnocchi-resources, lock, replay, reset,
simulate and top work without it, and flavor and placement ask the cloud. 'vmqos doctor', 'vmqos vm list' and 'vmqos
cache show' are a good beginning."""


class VmqosApp(App):
    """The application: global options, logging, and one clear line for each error."""

    NAME = "vmqos"
    LOG = logging.getLogger(NAME)
    CONSOLE_MESSAGE_FORMAT = "vmqos: %(message)s"

    def __init__(self, **streams: Any) -> None:
        super().__init__(_DESCRIPTION, vmqos_version(), CommandManager(NAMESPACE), deferred_help=True, **streams)
        self._failure: BaseException | None = None
        # In the place of cliff's own.
        self.command_manager.add_command("complete", Complete)
        self.command_manager.add_command("help", command_list.Help)

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: dict[str, Any] | None = None
    ) -> argparse.ArgumentParser:
        """Add the options that all commands share."""
        # Without allow_abbrev=False a command's --log or --no would be taken for --log-file or --no-color.
        parser = super().build_option_parser(description, version, {"allow_abbrev": False, **(argparse_kwargs or {})})
        fail_if_not_printed(parser)
        for action in parser._actions:
            if isinstance(action, argparse._VersionAction):
                action.version = f"{self.NAME} {version}"  # cliff takes the name of whatever program runs
        parser.add_argument(
            "--socket",
            metavar="PATH",
            help="The agent's Unix socket. Otherwise it is taken from the environment variable VMQOS_SOCKET, or from "
            "[api] socket of the configuration (/run/vmqos/agent.sock unless set).",
        )
        parser.add_argument(
            "--config-file",
            metavar="PATH",
            action="append",
            default=[],
            help="The agent's configuration file, may be repeated; /etc/vmqos/vmqos.conf by default, if it is there.",
        )
        parser.add_argument(
            "--no-color",
            action="store_true",
            help="Plain ASCII without colours, as if the environment variable NO_COLOR were set. Output that does not "
            "go to a terminal is plain anyway, unless FORCE_COLOR is set.",
        )
        return parser

    def configure_logging(self) -> None:
        """Log to standard error, without the chatter of the libraries."""
        try:
            super().configure_logging()
        except OSError as error:
            path, self.options.log_file = self.options.log_file, None
            # So that there is a log to say it in.
            super().configure_logging()
            raise exceptions.UnusableFile(path=f"the log file {neutralise(path)}", problem=error.strerror) from error
        if self.options.verbose_level < 2:
            for library in ("stevedore", "mfusepy", "fuse"):
                logging.getLogger(library).setLevel(logging.WARNING)
            # What the agent writes into its log of libvirt is no answer to a command, which says itself what failed.
            logging.getLogger("vmqos.hypervisor").setLevel(logging.ERROR)
        make_visible(logging.getLogger())

    def initialize_app(self, argv: list[str]) -> None:
        """Without a command show the help: there is no interactive mode."""
        if not argv:
            self.interactive_mode = False
            argv.append("help")

    def print_help_if_requested(self) -> None:
        """Answer ``--help``."""
        if self.options.deferred_help:
            command_list.show(self)

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command, or say in one line which ones there are.

        :returns: the exit status: 0, 1 for a failure, 2 for wrong usage.
        """
        helped = argv[1:] if argv[0] == "help" and not any(word.startswith("-") for word in argv) else []
        for words in filter(None, (argv, helped)):
            try:
                self.command_manager.find_command(words)
            except ValueError:
                if words is helped and any(name.startswith(helped[0]) for name, _ in self.command_manager):
                    continue  # 'vmqos help vm' lists those.
                self.LOG.error(self._unknown(words))
                return USAGE_STATUS
        self._failure = None
        status = super().run_subcommand(argv) or 0
        return USAGE_STATUS if isinstance(self._failure, exceptions.UsageError) else status

    def clean_up(self, cmd: Any, result: int, err: BaseException | None) -> None:
        """Keep in mind how the command ended."""
        self._failure = err

    def _unknown(self, argv: Sequence[str]) -> str:
        words = " ".join(argv[: next((i for i, word in enumerate(argv) if word.startswith("-")), len(argv))])
        if not words:
            return f"unknown option {argv[0]}; see 'vmqos --help'"
        known = [name for name, _ in self.command_manager]
        matches = command_list.meant(argv, known)
        if not matches:
            return f"there is no command '{words}'; 'vmqos --help' lists them all"
        return f"there is no command '{words}'; did you mean: {', '.join(matches)}? See 'vmqos --help'"
