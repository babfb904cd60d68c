# SPDX-License-Identifier: Apache-2.0
"""What each place of a command line takes: a VM, the flavor of one, a file, or one of some words; by the parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from vmqos import extra_specs


class Kind(StrEnum):
    """What a place takes."""

    NAMES = "names"
    """What a VM is called by."""
    UUIDS = "uuids"
    """A VM's UUID alone."""
    FLAVORS = "flavors"
    """A flavor: those of running VMs are offered. To ask the cloud takes longer than a key press may."""
    FILES = "files"
    """A file, a directory or a socket."""
    CHOICES = "choices"
    """One of some words."""
    OTHER = "other"
    """What can't be told beforehand, such as a number: nothing is offered."""


EXTRA_SPEC = "KEY=VALUE"
"""The metavar of an option that takes an extra spec."""

PROFILE = "PROFILE"
"""The metavar of an option that takes the name of a simulated machine."""

_KINDS = {
    "VM": Kind.NAMES,
    "UUID": Kind.UUIDS,
    "FLAVOR": Kind.FLAVORS,
    "FILE": Kind.FILES,
    "PATH": Kind.FILES,
    "DIR": Kind.FILES,
    "MOUNTPOINT": Kind.FILES,
}
"""What an argument or an option takes, by its metavar."""

WHOM = ("--socket", "--config-file")
"""Of the options that all commands share, those that say which agent is asked: for the completion, too."""


@dataclass(frozen=True, slots=True)
class Places:
    """The places of one command.

    :ivar argument: what it takes beside options.
    :ivar values: what each option takes that takes a value.
    :ivar choices: the words of those options that take one of some words.
    :ivar several: of these, the options that take several words one after the other.
    :ivar options: all options that have a long name, by that.
    """

    argument: Kind
    values: Mapping[str, Kind]
    choices: Mapping[str, tuple[str, ...]]
    several: tuple[str, ...]
    options: tuple[str, ...]


def of_parser(parser: argparse.ArgumentParser) -> Places:
    """The places that a command's parser tells."""
    actions: Sequence[argparse.Action] = parser._actions
    arguments = [_kind(action) for action in actions if not action.option_strings]
    named = [(action, name) for action in actions for name in action.option_strings]
    valued = [(action, name) for action, name in named if action.nargs != 0]
    return Places(
        argument=next((kind for kind in arguments if kind not in (Kind.OTHER, Kind.CHOICES)), Kind.OTHER),
        values={name: _kind(action) for action, name in valued},
        choices={name: _words(action) for action, name in valued if _words(action)},
        several=tuple(name for action, name in valued if _words(action) and action.nargs == "+"),
        options=tuple(name for _, name in named if name.startswith("--")),
    )


def following(commands: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The words that may come next, by the words of a command that is not whole; by none for the first word."""
    found: dict[str, dict[str, None]] = {}
    for command in sorted(commands):
        words = command.split()
        for count, word in enumerate(words):
            found.setdefault(" ".join(words[:count]), {})[word] = None
    return {begun: tuple(words) for begun, words in found.items()}


def _kind(action: argparse.Action) -> Kind:
    return Kind.CHOICES if _words(action) else _KINDS.get(str(action.metavar), Kind.OTHER)


def _words(action: argparse.Action) -> tuple[str, ...]:
    """The words that an option takes one of, if they mean nothing to a shell; one that ends with ``=`` goes on."""
    if action.metavar == EXTRA_SPEC:
        return tuple(f"{key.name}={word}" for key in extra_specs.KEYS for word in key.words or ("",))
    if action.metavar == PROFILE:
        # Imported here: no command but this one and 'simulate' needs the simulator.
        from vmqos.simulator import PROFILES

        return tuple(PROFILES)
    words = tuple(map(str, action.choices or ()))
    return words if all(re.fullmatch(r"[A-Za-z0-9_-]+", word) for word in words) else ()
