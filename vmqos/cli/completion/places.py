# SPDX-License-Identifier: Apache-2.0
"""Where in a command line a VM, the flavor of one, or one of some words is to be named: by the commands' parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NAME = "VM"
"""The metavar of an argument that takes what ``vmqos vm show`` takes."""

UUID = "UUID"
"""The metavar of an argument that takes a VM's UUID alone."""

FLAVOR = "FLAVOR"
"""The metavar of an option that takes the flavor of a running VM; as an argument it is any flavor of the cloud."""

WHOM = ("--socket", "--config-file")
"""Of the options that all commands share, those that say which agent is asked: for the completion, too."""


@dataclass(frozen=True, slots=True)
class Places:
    """The places of one command.

    :ivar is_argument: whether it takes VMs that are no option's values.
    :ivar named: the options that take what a VM is called by, ``uuids`` those that take its UUID, and ``flavors`` those
        that take its flavor.
    :ivar others: the options that take another value.
    :ivar choices: of these, those that take one of some words, and the words.
    :ivar several: of these, those that take several words one after the other.
    """

    is_argument: bool
    named: tuple[str, ...]
    uuids: tuple[str, ...]
    flavors: tuple[str, ...]
    others: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]]
    several: tuple[str, ...]

    @property
    def any(self) -> bool:
        """Whether there is any place for a VM, for its flavor, or for one of some words."""
        return self.is_argument or bool(self.named or self.uuids or self.flavors or self.choices)


def of_parser(parser: argparse.ArgumentParser) -> Places:
    """The places that a command's parser tells."""
    actions: Sequence[argparse.Action] = parser._actions
    options = [(action, tuple(action.option_strings)) for action in actions if action.option_strings]
    choosing = [(action, names) for action, names in options if action.nargs != 0 and _are_words(action)]
    valued = [(action.metavar, names) for action, names in options if action.nargs != 0]
    return Places(
        is_argument=any(action.metavar == NAME for action in actions if not action.option_strings),
        named=tuple(name for metavar, names in valued if metavar == NAME for name in names),
        uuids=tuple(name for metavar, names in valued if metavar == UUID for name in names),
        flavors=tuple(name for metavar, names in valued if metavar == FLAVOR for name in names),
        others=tuple(name for metavar, names in valued if metavar not in (NAME, UUID, FLAVOR) for name in names),
        choices={name: tuple(action.choices or ()) for action, names in choosing for name in names},
        several=tuple(name for action, names in choosing if action.nargs == "+" for name in names),
    )


def _are_words(action: argparse.Action) -> bool:
    """Whether an option takes one of some words that mean nothing to a shell."""
    return bool(action.choices) and all(re.fullmatch(r"[A-Za-z0-9_-]+", str(word)) for word in action.choices or ())
