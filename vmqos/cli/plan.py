# SPDX-License-Identifier: Apache-2.0
"""``vmqos plan``: what would happen to a VM, changing nothing."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from rich.text import Text

from vmqos.cli import exceptions
from vmqos.cli.common import settings
from vmqos.cli.common.output import Details, is_for_machines, terminal_of
from vmqos.cli.show import map_rows, terminal, way_map
from vmqos.cli.show.safe_text import distinct_names, neutralise
from vmqos.cli.show.terminal import Terminal
from vmqos.cli.show.units import bandwidth_by_cache, masks_by_cache
from vmqos.local_api import contract
from vmqos.local_api.exceptions import AgentRefused

_STYLES = {"kept": "bold green", "pending": "bold yellow", "degraded": "bold red", "none": "bold"}
_NOBODY = "00000000-0000-0000-0000-000000000000"
"""The UUID that the agent gives a VM that is not there."""
_MEANING = {
    "kept": "would get what it asks for",
    "pending": "would have to wait, with nothing of it",
    "degraded": "would get only a part of it, or something else",
    "none": "asks for nothing",
}


class Plan(Details):
    """Tell what would happen if a VM with these extra specs started here now; change nothing.

    Shows whether the promise would be kept, the ways the VM would get on each cache (marked + on the map of the
    ways as they are now), the VMs whose ways would be moved to make room, and the steps. The VM is taken to be free
    to run on all CPUs.

    The exit status is 0 whatever the verdict is, 2 if the extra specs are wrong, and 3 if the agent's knowledge of the
    host is old.

    For example::

        vmqos plan --flavor-spec hw:cache_ways=3
        vmqos plan --flavor-spec hw:cache_ways=2 --flavor-spec hw:cache_policy=shared -f value -c State
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the extra specs."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--flavor-spec",
            metavar="KEY=VALUE",
            action=_ExtraSpecs,
            required=True,
            help="an extra spec of the flavor, such as hw:cache_ways=3 or hw:cache_policy=shared; may be repeated with "
            "another key",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Ask the agent."""
        agent = settings.agent(self.app.options)
        try:
            self._plan = agent.plan(parsed_args.flavor_spec)
        except AgentRefused as error:
            if error.values["status"] == HTTPStatus.BAD_REQUEST:
                raise exceptions.RefusedExtraSpecs(problem=str(error)) from error
            raise
        self.warn_if_old(agent, ("vms", "pass"))
        if is_for_machines(parsed_args):
            return tuple(self._plan), tuple(self._plan.values())
        if parsed_args.formatter == "table":
            # The VM is taken to be pinned nowhere, so it gets no ways of an L2.
            self._caches = [cache for cache in agent.caches() if cache["resource"] == "L3"]
            self._vms = agent.vms()
        fields = _fields(self._plan)
        return tuple(fields), tuple(fields.values())

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Tell the plan in words and as a map, or print the fields where that is asked for."""
        if parsed_args.formatter != "table" or parsed_args.columns:
            return super().produce_output(parsed_args, column_names, data)
        screen = terminal_of(self)
        terminal.show(tell(self._plan, self._caches, self._vms, screen), self.app.stdout, screen)
        return 0


class _ExtraSpecs(argparse.Action):
    """Collects extra specs. A flavor has one value for a key, so a key that is given twice is an error."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Add one.

        :raises argparse.ArgumentError: if its key was given before.
        """
        given = str(values)
        before: list[str] = getattr(namespace, self.dest) or []
        key = given.partition("=")[0]
        twin = next((spec for spec in before if spec.partition("=")[0] == key), None)
        if twin is not None:
            problem = f"{key!r} is given twice, as {twin!r} and as {given!r}: a flavor has one value for a key"
            raise argparse.ArgumentError(self, problem)
        setattr(namespace, self.dest, [*before, given])


def tell(plan: contract.Plan, caches: Sequence[contract.Cache], vms: Sequence[contract.Vm], screen: Terminal) -> Text:
    """The plan in words, with the map of the ways that it is about."""
    verdict = plan["verdict"]
    story = Text.assemble(
        (neutralise(verdict["state"]), _STYLES.get(verdict["state"], "bold")),
        f": a VM with these extra specs {_MEANING.get(verdict['state'], 'would be in this state')}\n",
    )
    if verdict["reason"]:
        story.append(f"{neutralise(verdict['reason'])}\n")
    if verdict["masks"]:
        story.append("The map shows the ways as they are now; + marks those that the VM would get.\n\n")
        story.append_text(way_map.draw(map_rows.build(caches, vms, planned=verdict["masks"]), screen))
        story.append("\n")
    for title, masks in _parts(verdict).items():
        story.append(f"\n{title}: ", "bold").append(masks)
    if verdict.get("bandwidth"):
        story.append("\nMemory bandwidth: ", "bold").append(_bandwidth(verdict))
    names = distinct_names(vms)
    moved = [names.get(uuid, neutralise(uuid)) for uuid in plan["moves"]]
    story.append("\nVMs whose ways would change: ", "bold").append(", ".join(moved) or "none")
    story.append("\nSteps:", "bold")
    for number, step in enumerate(plan["steps"], 1):
        called = [f" ({name})" for uuid, name in names.items() if uuid in step]
        story.append(f"\n{number:3}. {neutralise(step).replace(_NOBODY, '<the new VM>')}{''.join(called)}")
    if not plan["steps"]:
        story.append(" none")
    return story


def _fields(plan: contract.Plan) -> dict[str, Any]:
    verdict = plan["verdict"]
    return {
        "State": neutralise(verdict["state"]),
        "Reason": neutralise(verdict["reason"]) or "-",
        "Group": neutralise(verdict["group"]) or "(default)",
        "Masks": masks_by_cache(verdict["masks"]) or "-",
        **_parts(verdict),
        "Memory bandwidth": _bandwidth(verdict),
        "Moves": " ".join(map(neutralise, plan["moves"])) or "-",
        "Steps": "; ".join(map(neutralise, plan["steps"])) or "-",
    }


def _parts(verdict: contract.Verdict) -> dict[str, str]:
    """The masks for code and for data, where they are apart."""
    parts = {"Masks for code": verdict.get("code_masks"), "Masks for data": verdict.get("data_masks")}
    return {title: masks_by_cache(masks) for title, masks in parts.items() if masks}


def _bandwidth(verdict: contract.Verdict) -> str:
    return bandwidth_by_cache(verdict.get("bandwidth", {}), verdict.get("bandwidth_unit"))
