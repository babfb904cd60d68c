# SPDX-License-Identifier: Apache-2.0
"""``vmqos events``: what changed on this host, and when."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from vmqos.cli import exceptions
from vmqos.cli.common import settings
from vmqos.cli.common.option_values import whole_number
from vmqos.cli.common.output import Listing, as_rows, is_for_machines
from vmqos.cli.show.safe_text import neutralise
from vmqos.cli.show.tables import Cell
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentFailed, AgentHungUp, AgentNotRunning, AgentTimeout

TITLES = ("Number", "Time", "What", "UUID", "Was", "Is", "Reason")

LONGEST_WAIT = 5.0
"""Seconds that one question waits: less than the client's patience."""

PAUSE = 1.0
"""Seconds between two questions where the agent did not wait, because too many others do."""


class Events(Listing):
    """List what changed on this host since the agent started, the oldest first.

    An event is a promise whose state, reason or group changed; a VM that ended; a VM that is slowed by a neighbour, or
    no more; or the host: resctrl, libvirt, or the agent's passes fail or work again. Is and Was are the states after
    and before it; Was is empty for a VM that was not there. Times are UTC.

    A VM is named by its name, its UUID or a beginning of the UUID, and while it runs by its libvirt name, too.
    One that neither runs nor is named in an event is refused; with --follow it is waited for.

    The agent remembers the last 2000 events. They end with the agent, and the next one numbers its own from 1. --since
    goes on from a number that is known.

    --follow goes on with each event as it comes, one on a line, until Ctrl-C; with -f json as an object on a line of
    its own, and with -f yaml as an item of a list. While the agent is away it waits, and goes on with the first event
    of the next agent.

    With -f json or yaml the fields are those of the agent's API.

    For example::

        vmqos events
        vmqos events web-1
        vmqos events --follow 4f2c
        vmqos events --since 118 -f json
    """

    optional = ("UUID", "Was", "Number")

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add what to choose by."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "vms",
            metavar="VM",
            nargs="*",
            help="only of these VMs, each by its name, its UUID, or a beginning of the UUID; they may have ended",
        )
        parser.add_argument("--follow", action="store_true", help="go on with each event as it comes")
        parser.add_argument(
            "--since", metavar="N", type=whole_number(1), help="only the event of that number and those after it"
        )
        parser.add_argument(
            "--vm", dest="vms_too", metavar="VM", action="append", default=[], help="one of these VMs, too"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Ask the agent."""
        if parsed_args.follow and parsed_args.sort_columns:
            problem = "--follow prints each event as it comes, so there is nothing to sort"
            raise exceptions.NotTogether(problem=problem, command="events")
        self._agent = settings.agent(self.app.options)
        since = parsed_args.since
        self._found = self._agent.events(since - 1 if since else 0)
        if since:
            self._warn_of(since)
        wanted = (*parsed_args.vms, *filter(None, parsed_args.vms_too))
        self._vms = self._named(wanted, since, follows=parsed_args.follow)
        found = [event for event in self._found["events"] if _is_of(event, self._vms)]
        if is_for_machines(parsed_args):
            return as_rows(found)
        if not found and parsed_args.formatter == "table" and not parsed_args.follow:
            chosen = bool(since or self._vms)
            self.app.stdout.write(f"{'No such event.' if chosen else 'Nothing changed since the agent started.'}\n")
        return TITLES, [_cells(event) for event in found]

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> int:
        """Print the events; with ``--follow``, line by line for ever."""
        if not parsed_args.follow:
            return super().produce_output(parsed_args, column_names, data)
        titles = tuple(contract.Event.__annotations__) if is_for_machines(parsed_args) else TITLES
        self.check_columns(parsed_args.columns, titles)
        found = follow(self._agent, self._found, self.app.LOG.warning)
        events = (event for event in found if _is_of(event, self._vms))
        if parsed_args.formatter in ("csv", "value"):
            # cliff's formatters print one row before they take the next one.
            return super(Listing, self).produce_output(parsed_args, TITLES, self._flushed(map(_row, events)))
        chosen, _ = self._generate_columns_and_selector(parsed_args, titles)
        for event in events:
            self.app.stdout.write(_line(event, parsed_args.formatter, chosen if parsed_args.columns else None))
            self.app.stdout.flush()
        return 0

    def _flushed(self, rows: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        """Rows; what was printed of those before, and above them, is seen before the next one is waited for."""
        self.app.stdout.flush()
        for row in rows:
            yield row
            self.app.stdout.flush()

    def _named(self, wanted: Sequence[str], since: int | None, *, follows: bool) -> tuple[str, ...]:
        """What VMs are called in events, which know no libvirt names.

        :param since: the number from which the list begins, if not from the first.
        :param follows: whether events are waited for, and so a VM that is not there yet, too.
        :raises vmqos.cli.exceptions.NoVmWithEvents: for the first that neither runs nor is named in an event.
        """
        if not wanted:
            return ()
        running = self._agent.vms()
        # A VM may have ended before the list begins.
        remembered = (self._agent.events(0) if since else self._found)["events"]
        for vm in wanted:
            if _is_known(vm, remembered, running):
                continue
            unknown = exceptions.NoVmWithEvents(wanted=neutralise(vm))
            if not (vm and follows):
                raise unknown
            self.app.LOG.warning(f"{unknown}; waiting for it")
        return (*wanted, *(known["uuid"] for known in running if known["name"] in wanted))

    def _warn_of(self, since: int) -> None:
        """Say if the agent does not know the number from which the list is to begin."""
        first, last = self._found["first"], self._found["last"]
        if since > last + 1:
            self.app.LOG.warning(f"there is no event {since} yet: the last one of this agent is {last}")
        elif since < first:
            self.app.LOG.warning(f"{first - since} events are lost: the agent no longer remembers them")


def follow(agent: AgentClient, found: contract.Events, warn: Callable[[str], None]) -> Iterator[contract.Event]:
    """The events of an answer, and those that come after them, for ever.

    :param warn: is told what else the reader has to know.
    :raises vmqos.local_api.exceptions.LocalApiError: if the agent's answer is none of ours.
    """
    is_away = False
    while True:
        yield from found["events"]
        asked, epoch, known = time.monotonic(), found["epoch"], found["last"]
        try:
            found = agent.events(known, epoch, LONGEST_WAIT)
        except (AgentNotRunning, AgentHungUp, AgentTimeout, AgentFailed) as error:
            # A gateway that has no agent answers with 503.
            if not is_away:
                warn(f"{error}; waiting for it")
            found, is_away = {**found, "events": []}, True
        else:
            is_away = False
            known = known if found["epoch"] == epoch else 0
            if found["first"] > known + 1:
                warn(f"{found['first'] - known - 1} events are lost: the agent no longer remembers them")
        if not found["events"] and time.monotonic() - asked < PAUSE:
            time.sleep(PAUSE)


def _is_of(event: contract.Event, vms: Collection[str]) -> bool:
    """Whether it is of one of these VMs, or all events are wanted."""
    uuid, name = (event["uuid"], event["name"]) if event["kind"] != "host" else ("", "")
    return not vms or any(vm and (uuid.startswith(vm.lower()) or name == vm) for vm in vms)


def _is_known(vm: str, events: Iterable[contract.Event], running: Iterable[contract.Vm]) -> bool:
    """Whether a VM that runs, or that an event is about, has that UUID, beginning of a UUID, or name."""
    return bool(vm) and (
        any(vm in (known["name"], known["instance_name"]) or known["uuid"].startswith(vm.lower()) for known in running)
        or any(_is_of(event, (vm,)) for event in events)
    )


def _cells(event: contract.Event) -> tuple[str | Cell, ...]:
    """What a table shows, where the date, which is mostly today's, and most of the UUID give way to the reason."""
    number, moment, what, uuid, *others = _row(event)
    return number, Cell(moment, short=moment.partition("-")[2]), what, Cell(uuid, short=uuid[:8]), *others


def _line(event: contract.Event, formatter: str, chosen: Collection[str] | None) -> str:
    """What ``--follow`` prints of an event, with its line break.

    :param formatter: ``table``, ``json`` or ``yaml``.
    :param chosen: the columns that ``-c`` asks for; all if ``None``.
    """
    if formatter == "table":
        cells = zip(TITLES, _row(event), strict=True)
        return "  ".join(cell for title, cell in cells if cell and (chosen is None or title in chosen)) + "\n"
    shown = {key: value for key, value in event.items() if chosen is None or key in chosen}
    if formatter == "json":
        return json.dumps(shown) + "\n"
    # Slow to load.
    import yaml

    return str(yaml.safe_dump([shown], default_flow_style=False))


def _row(event: contract.Event) -> tuple[str, ...]:
    moment = datetime.fromtimestamp(event["time"], UTC).strftime("%Y-%m-%d %H:%M:%S")
    now = "ended" if event["kind"] == "ended" else event["state"]
    texts = (moment, event["name"], event["uuid"], event["before"], now, event["reason"])
    return (str(event["number"]), *map(neutralise, texts))
