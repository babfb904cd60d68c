# SPDX-License-Identifier: Apache-2.0
"""``vmqos cache``: who may fill which ways."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from vmqos.cli import exceptions
from vmqos.cli.common import settings
from vmqos.cli.common.output import Listing, as_rows, is_for_machines, terminal_of
from vmqos.cli.show import map_rows, terminal, units, way_map
from vmqos.cli.show.safe_text import neutralise
from vmqos.local_api import contract

_CACHE = re.compile(r"(?:[Ll]([23]):)?([0-9]{1,9})")


class CacheShow(Listing):
    """Draw the map of each cache's ways: which VM, class or group may fill which.

    A column is a way, the highest on the left as in the kernel's masks; a line is a control group. Where two lines
    have a cell in the same column, both groups may fill that way: that is so for the default group and the classes
    of VMs with hw:cache_policy=shared, and never for a VM with exclusive ways; if it happens all the same, a line
    below says so. Ways that I/O devices fill too (info/L3/shareable_bits) are marked.

    Shows the L3 caches, and then the L2 caches where these can be partitioned. Where there are more than four of a
    level, those that look the same are drawn once. In an L2 only VMs with ways of their own there are shown, and
    classes and others that have not all that the default group has. Where code and data have other ways, a group has a
    line for each. The limits of memory bandwidth are those in force. No task fills pseudo-locked ways.

    In a terminal the map is coloured. With -f json or yaml the data of the agent's API is printed instead; with -f
    csv or value, or with -c, a table of it, with the groups of a cache as JSON.

    The exit status is 3 if what is printed is old: the agent answers, and does not look any more. It is 1 while the
    agent can't read resctrl, and nothing is printed then.

    For example::

        vmqos cache show
        vmqos cache show 0 -f json
        vmqos cache show L2:3
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the cache's id."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "cache_id",
            metavar="CACHE_ID",
            nargs="?",
            type=_cache,
            help="only this cache, by the kernel's cache id: 1 or L3:1 for an L3, L2:1 for an L2",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Ask the agent."""
        agent = settings.agent(self.app.options)
        caches = agent.caches()
        if not caches and not (resctrl := agent.health()["resctrl"])["mounted"]:
            problem = neutralise(resctrl["error"] or "the agent has not read resctrl yet, or a pass of it failed")
            raise exceptions.CachesUnknown(problem=problem)
        self._caches = _chosen(caches, parsed_args.cache_id)
        self._vms = agent.vms() if _wants_map(parsed_args) else []
        self.warn_if_old(agent, ("pass",))
        titles, rows = as_rows(self._caches)
        if is_for_machines(parsed_args):
            return titles, rows
        # In a text there is no place for values in values, but as JSON.
        return titles, [tuple(json.dumps(cell) if isinstance(cell, list) else cell for cell in row) for row in rows]

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> int:
        """Draw the map, or print the data where that is asked for."""
        if not _wants_map(parsed_args):
            return super().produce_output(parsed_args, column_names, data)
        screen = terminal_of(self)
        if not self._caches:
            self.app.stdout.write("This host has no cache that can be partitioned; see 'vmqos doctor'.\n")
            return 0
        picture = way_map.draw(map_rows.build(self._caches, self._vms), screen)
        terminal.show(picture, self.app.stdout, screen)
        return 0


def _wants_map(parsed_args: argparse.Namespace) -> bool:
    return parsed_args.formatter == "table" and not parsed_args.columns


def _cache(text: str) -> tuple[str, int]:
    found = _CACHE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no cache: a number or L3:1 for an L3 is allowed, L2:1 for an L2")
    return f"L{found[1] or 3}", int(found[2])


def _chosen(caches: list[contract.Cache], wanted: tuple[str, int] | None) -> list[contract.Cache]:
    if wanted is None:
        return caches
    level, number = wanted
    found = [cache for cache in caches if (cache["resource"], cache["id"]) == wanted]
    if not found:
        known = units.number_list(cache["id"] for cache in caches if cache["resource"] == level) or "none"
        raise exceptions.NoSuchCache(level=level, wanted=number, known=known)
    return found
