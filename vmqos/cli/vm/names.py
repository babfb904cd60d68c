# SPDX-License-Identifier: Apache-2.0
"""What VMs can be called by, and their flavors, for the completion of shells.

The user who starts a VM chooses its name, and an operator presses a key to have it written into a command line. So
nothing of a name may be more to a shell than a character.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from vmqos.cli.common import settings
from vmqos.local_api import contract
from vmqos.local_api.exceptions import LocalApiError

TIMEOUT = 1.0
"""Seconds that a key press may wait for the agent."""

UUIDS, FLAVORS = "uuids", "flavors"

LONGEST_NAME = 255
"""Characters: Nova has no longer names."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_BREAKS = ":=@"
"""The characters of bash's COMP_WORDBREAKS that do not end a word of a command: bash replaces what follows them."""
_PLAIN = re.compile(r"[A-Za-z0-9_%+,./-]|[^\x00-\x7f]")
"""Characters that mean nothing to a shell. A slash or a dot is no pattern."""


def ask(options: argparse.Namespace, kind: str = "") -> list[str]:
    """The names and UUIDs of the running VMs; empty where they can't be had, for whatever reason.

    :param options: the application's.
    :param kind: :data:`UUIDS` for these alone, :data:`FLAVORS` for the names of the VMs' flavors instead.
    """
    # Imported here: only this command goes on without a configuration.
    from vmqos.conf.exceptions import ConfigurationError

    try:
        vms = replace(settings.agent(options), timeout=TIMEOUT).vms()
    except (LocalApiError, ConfigurationError, OSError):
        return []
    if kind == FLAVORS:
        return sorted({vm["flavor"] for vm in vms if is_safe(vm["flavor"])})
    found = [vm["uuid"] for vm in vms if _UUID.fullmatch(vm["uuid"])]
    return found if kind == UUIDS else [*sorted(_names(vms)), *sorted(found)]


def _names(vms: Iterable[contract.Vm]) -> Iterator[str]:
    """The names that tell a VM from all others, and that a terminal shows as they are."""
    aliases = [{vm["instance_name"], vm["name"]} for vm in vms]
    bearers = Counter(name for names in aliases for name in names)
    for vm in vms:
        name = vm["instance_name"] or vm["name"]
        if bearers[name] == 1 and is_safe(name):
            yield name


def is_safe(name: str) -> bool:
    """Whether a name is a word that a shell can be given and a terminal can show."""
    return 0 < len(name) <= LONGEST_NAME and name.isprintable() and name[0] != "-" and not name.isspace()


def for_bash(name: str, typed: str) -> str | None:
    """What bash is to put in the place of a word, so that it becomes a name; ``None`` if it can't.

    :param typed: the word as bash has it: the quotes and backslashes that were typed are still there.
    """
    quote, known, broken = _read(typed)
    if not name.startswith(known):
        return None
    rest = name[broken:]
    if quote == "'":
        return None if "'" in rest else rest
    if quote == '"':
        # Within these quotes a backslash before "!" stays, and the history is looked up without one.
        return None if re.search(r'[$`"\\!]', rest) else rest
    return "".join(character if _PLAIN.fullmatch(character) else f"\\{character}" for character in rest)


def _read(typed: str) -> tuple[str, str, int]:
    """What a word says: the quote that is open at its end, its text, and how much of the text bash keeps.

    bash replaces what follows the last unquoted character of :data:`_BREAKS`.
    """
    quote, text, kept = "", "", 0
    characters = iter(typed)
    for character in characters:
        if quote:
            if character == quote:
                quote = ""
            elif character == "\\" and quote == '"':
                following = next(characters, "")
                text += following if following in '$`"\\' else character + following
            else:
                text += character
        elif character in "'\"":
            quote = character
        elif character == "\\":
            text += next(characters, "")
        else:
            text += character
            if character in _BREAKS:
                kept = len(text)
    return quote, text, kept
