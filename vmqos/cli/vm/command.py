# SPDX-License-Identifier: Apache-2.0
"""``vmqos vm``: the VMs of this host and how their promises stand."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from typing import Any

from vmqos.cli import exceptions
from vmqos.cli.common import settings
from vmqos.cli.common.help_text import Documented
from vmqos.cli.common.output import Details, as_rows, is_for_machines, terminal_of
from vmqos.cli.show import freshness, tables, terminal, vm_view
from vmqos.cli.show.safe_text import distinct_names, neutralise
from vmqos.cli.show.tables import Cell
from vmqos.cli.vm import choice, names
from vmqos.cli.vm.watch import Look
from vmqos.cli.vm.watched import Watched
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentFailed, AgentRefused


class VmList(Watched[Look]):
    """List the running VMs, those in trouble first.

    State is 'kept' (the VM has what its flavor promises), 'pending' (nothing of it yet: the reason says what is
    missing, and it is tried again when something changes), 'degraded' (only a part of it, or something else) or
    'none' (the flavor promises nothing). Ways are the L3 ways granted, for each cache where they differ (0:2 1:4),
    and what the flavor asks for where it did not get that (0 of 4); 2c+4d are two for code and four for data. Tasks are
    the VM's threads that are in their group, of all its threads.

    VM is what people call it: its name in Nova or, without one, in libvirt; VMs of one name are told apart by the
    beginning of the UUID. -f csv and value have both names too, behind the other columns.

    L2 ways, the limit of the memory bandwidth that is in force, and the vCPUs that alone get the ways are columns of
    their own: in a table where a VM has or asks for such, behind the others with -f csv and value.

    A terminal that is too narrow shows fewer columns, the least important ones being left out first; a line below the
    table names them. --long adds the masks, the monitoring group, the project, the beginning of the state, and both
    names.

    With --watch the list is made anew every few seconds. In a terminal it stays in its place: q ends it, space looks at
    once, and the arrows scroll. Where the output is no terminal, or is for programs, each list is printed below the
    last one until Ctrl-C.

    With -f json or yaml the fields are those of the agent's API, and -c takes their names: instance_name is the name
    in Nova, name the one in libvirt.

    The exit status is 3 if what is printed is old: the agent answers, and does not look any more. A warning says so,
    and names the VMs that run and are not served.

    For example::

        vmqos vm list
        vmqos vm list --state pending degraded
        vmqos vm list --flavor c2.cache2 --long
        vmqos vm list --watch 5
        vmqos vm list -f value -c UUID -c State
        vmqos vm list -f json -c uuid -c masks
    """

    called = "vmqos vm list"
    again = "list them again"
    parts = ("vms", "pass")
    optional = (
        "libvirt name",
        "Instance name",
        "Monitoring group",
        "Group",
        "Masks",
        "Project",
        "Policy",
        "Since",
        "Flavor",
        "Tasks",
        "vCPUs",
        "L2 ways",
        "Bandwidth",
        "UUID",
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add which VMs to list, and how much of each."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--state",
            nargs="+",
            action="extend",
            default=[],
            choices=choice.STATES,
            metavar="STATE",
            help=f"only the VMs in one of these states: {', '.join(choice.STATES)}",
        )
        parser.add_argument(
            "--flavor",
            action="append",
            default=[],
            metavar="FLAVOR",
            help="only the VMs of this flavor, may be repeated; a flavor is called as the column Flavor has it",
        )
        parser.add_argument(
            "--long", action="store_true", help="more columns: masks, monitoring group, project, since when, both names"
        )
        return parser

    def look(self, parsed_args: argparse.Namespace) -> Look:
        """Ask the agent."""
        agent = settings.agent(self.app.options)
        vms = agent.vms()
        return Look(time.time(), vm_view.by_urgency(vms), freshness.ask(agent, self.parts))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Look, and tell people why a list is empty, which they would not see at all."""
        look = self.look(parsed_args)
        self.warn(look.freshness, self.parts)
        titles, rows = self.cells(look, parsed_args)
        if not rows and parsed_args.formatter == "table":
            is_old = bool(look.freshness.unserved) or not {"vms", "pass"}.isdisjoint(look.freshness.stale)
            self.app.stdout.write(f"{choice.none_of(look.vms, parsed_args.state, parsed_args.flavor, is_old)}\n")
        return titles, rows

    def cells(self, look: Look, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Titles and rows of what the operator wants to see of a look."""
        vms = choice.choose(look.vms, parsed_args.state, parsed_args.flavor)
        if is_for_machines(parsed_args):
            return as_rows(vms)
        # A name tells a VM from all others, listed or not.
        called = distinct_names(look.vms)
        if parsed_args.formatter == "table" and not parsed_args.columns:
            return vm_view.table(vms, called, parsed_args.long)
        further = vm_view.LONG_TITLES[: -len(vm_view.NAME_TITLES)]
        titles: tuple[str, ...] = (*vm_view.LIST_TITLES, *vm_view.MORE_TITLES, *vm_view.NAME_TITLES)
        rows = [(*vm_view.list_row(vm, called), *vm_view.more(vm), *vm_view.both_names(vm)) for vm in vms]
        if parsed_args.long:
            titles += further
            rows = [(*row, *vm_view.long(vm)[: len(further)]) for row, vm in zip(rows, vms, strict=True)]
        return titles, rows


class VmShow(Details):
    """Show one VM: its promise, its ways, and the group of each of its threads.

    'In place' says whether a thread is in the control group that the VM's promise asks for. A new thread starts in
    the group of the thread that made it; the agent's audit finds those that are elsewhere.

    'Cache occupancy' is what the VM holds of each L3 cache, of the bytes of its ways there.

    With -f json or yaml the fields are those of the agent's API, and -c takes their names.

    The exit status is 3 if what is printed is old: the agent answers, and does not look any more.

    For example::

        vmqos vm show web-1
        vmqos vm show 4f2c -f value -c Masks
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the VM."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "vm", metavar="VM", help="its UUID, a beginning of the UUID that no other VM has, or its name"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Find the VM by the name that the user gives, and ask the agent for all its values."""
        agent = settings.agent(self.app.options)
        vm = agent.vm(self._found(agent, parsed_args.vm))
        self.warn_if_old(agent, ("vms", "pass") if is_for_machines(parsed_args) else ("vms", "pass", "counters"))
        if is_for_machines(parsed_args):
            return tuple(vm), tuple(vm.values())
        self._threads = vm["task_list"]
        fields = vm_view.fields(vm) | {"Cache occupancy": self._occupancy(agent, vm)}
        return tuple(fields), tuple(fields.values())

    @staticmethod
    def _found(agent: AgentClient, wanted: str) -> str:
        """The UUID of the VM that the user means."""
        try:
            return vm_view.find(agent.vms(), wanted)["uuid"]
        except exceptions.NoSuchVm:
            unserved = freshness.ask(agent, ()).unserved
            for uuid in unserved if wanted else ():
                if uuid.startswith(wanted.lower()):
                    problem = neutralise(unserved[uuid])
                    raise exceptions.VmNotServed(uuid=neutralise(uuid), problem=problem) from None
            raise

    def _occupancy(self, agent: AgentClient, vm: contract.Vm) -> Cell:
        try:
            counters = agent.telemetry()
        except (AgentRefused, AgentFailed) as error:
            return Cell("-", f"unknown: {error}")
        return vm_view.occupancy(counters, vm, terminal_of(self))

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Print the fields and, in a table, the threads below them."""
        status = super().produce_output(parsed_args, column_names, data)
        if parsed_args.formatter == "table" and not parsed_args.columns and self._threads:
            screen = terminal_of(self)
            rows = [vm_view.task_row(task) for task in self._threads]
            self.app.stdout.write("\n")
            terminal.show(tables.draw(vm_view.TASK_TITLES, rows, screen, screen.room), self.app.stdout, screen)
        return status


class VmNames(Documented):
    """Print what running VMs can be called by, for the completion of shells.

    That is their names and UUIDs, one a line; with --flavors it is the names of their flavors instead. A name that
    several VMs have, that begins with a hyphen, or that has a character that is not plainly seen, is left out: its VM's
    UUID is there. Nothing is printed, and it is no error, where no agent answers within a second, or where the user may
    not ask it.

    For example::

        vmqos vm names
        vmqos vm names --uuids
        vmqos vm names --flavors
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add which names, and how they are written."""
        parser = super().get_parser(prog_name)
        kind = parser.add_mutually_exclusive_group()
        for name, told in ((names.UUIDS, "only the UUIDs"), (names.FLAVORS, "the flavors of the VMs instead")):
            kind.add_argument(f"--{name}", action="store_const", dest="kind", const=name, default="", help=told)
        parser.add_argument(
            "--bash",
            metavar="WORD",
            help="the word to complete, as it was typed; prints only what begins with it, quoted for bash",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Ask the agent, and keep silent where it does not answer."""
        for name in names.ask(self.app.options, parsed_args.kind):
            shown = name if parsed_args.bash is None else names.for_bash(name, parsed_args.bash)
            if shown is not None:
                self.app.stdout.write(f"{shown}\n")
        return 0
