# SPDX-License-Identifier: Apache-2.0
"""``vmqos vm``: the VMs of this host and how their promises stand."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from vmqos.cli import settings, tables, terminal, vm_view
from vmqos.cli.output import Details, Listing, as_rows, is_for_machines, terminal_of
from vmqos.cli.safe_text import distinct_names
from vmqos.cli.tables import Cell
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentFailed, AgentRefused


class VmList(Listing):
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

    With -f json or yaml the fields are those of the agent's API, and -c takes their names: instance_name is the name
    in Nova, name the one in libvirt.

    The exit status is 3 if what is printed is old: the agent answers, and does not look any more. A warning says so,
    and names the VMs that run and are not served.

    For example::

        vmqos vm list
        vmqos vm list -f value -c UUID -c State
        vmqos vm list -f json -c uuid -c masks
    """

    optional = ("Group", "Policy", "Flavor", "Tasks")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Ask the agent."""
        agent = settings.agent(self.app.options)
        vms = vm_view.by_urgency(agent.vms())
        self.warn_if_old(agent, ("vms", "pass"))
        if is_for_machines(parsed_args):
            return as_rows(vms)
        if parsed_args.formatter == "table" and not parsed_args.columns:
            return vm_view.table(vms)
        titles = (*vm_view.LIST_TITLES, *vm_view.MORE_TITLES, *vm_view.NAME_TITLES)
        names = distinct_names(vms)
        rows = [(*vm_view.list_row(vm, names), *vm_view.more(vm), *vm_view.both_names(vm)) for vm in vms]
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
        vm = agent.vm(vm_view.find(agent.vms(), parsed_args.vm)["uuid"])
        self.warn_if_old(agent, ("vms", "pass") if is_for_machines(parsed_args) else ("vms", "pass", "counters"))
        if is_for_machines(parsed_args):
            return tuple(vm), tuple(vm.values())
        self._threads = vm["task_list"]
        fields = vm_view.fields(vm) | {"Cache occupancy": self._occupancy(agent, vm["uuid"])}
        return tuple(fields), tuple(fields.values())

    def _occupancy(self, agent: AgentClient, uuid: str) -> Cell:
        try:
            counters = agent.telemetry()
        except (AgentRefused, AgentFailed) as error:
            return Cell("-", f"unknown: {error}")
        return vm_view.occupancy(counters, uuid, terminal_of(self))

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Print the fields and, in a table, the threads below them."""
        status = super().produce_output(parsed_args, column_names, data)
        if parsed_args.formatter == "table" and not parsed_args.columns and self._threads:
            screen = terminal_of(self)
            rows = [vm_view.task_row(task) for task in self._threads]
            self.app.stdout.write("\n")
            terminal.show(tables.draw(vm_view.TASK_TITLES, rows, screen, screen.room), self.app.stdout, screen)
        return status
