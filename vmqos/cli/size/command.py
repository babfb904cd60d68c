# SPDX-License-Identifier: Apache-2.0
"""``vmqos size``: how many ways a VM needs."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterable, Sequence
from typing import Any

from vmqos.cli import exceptions
from vmqos.cli.common import settings
from vmqos.cli.common.option_values import whole_number
from vmqos.cli.common.output import Details, confirm_first, is_for_machines, terminal_of
from vmqos.cli.neighbours import ask
from vmqos.cli.show import terminal, vm_view
from vmqos.cli.show.safe_text import display_name, neutralise
from vmqos.cli.size import flavor, flavor_view, past, stepping, view
from vmqos.cli.size.stepping import Room, Sized
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient


class Size(Details):
    """Find out how many ways a VM needs, by giving it more of them for some minutes.

    The VM has ways of its own (hw:cache_ways). It gets one further way after the other, from those that are free, and
    its misses are counted with each number of ways. That begins when the VM has filled the new way, and ends when they
    are known closely. The command then prints the curve of what the VM misses, the fewest ways that are nearly as good
    as all that were tried, and the extra spec for that. Ways that spare a VM less than 5 of 100 references are not
    worth their price.

    A VM that shares the ways of its class (hw:cache_policy=shared) leaves the class meanwhile, and begins with as many
    ways for itself as the class has. A VM that is promised no ways is refused without --from, and begins with as many
    as that says: it may fill more now, so it may be slower meanwhile. The other VMs
    without ways of their own have as many fewer to fill as are tried.

    A VM with ways for code and others for data (hw:cache_code_ways, hw:cache_data_ways) gets more ways for data, or
    with --part code more for code; the ways for the other part stay as they are. A VM with ways for some of its vCPUs
    (hw:cache_vcpus) is refused, because its counters are those of all its tasks.

    No VM gets less than its flavor promises, neither this one nor any other. If another VM needs the ways, it has them
    at once, and the command says what was counted until then. Masks of other VMs may be moved meanwhile, as for any VM
    that comes. However this ends, the ways are given back: at once after Ctrl-C, and by the agent within seconds if
    this command is killed. It takes 15 minutes at most, and far less for a VM that does the same all the time.

    The curve comes from such a trial alone, never from what the VM did before. What the VM would miss with fewer ways
    than it began with is not known, so for a VM with ways of its own the command can't say that some could be freed.
    Where nothing counts misses of the L3, the VM's traffic with memory stands for them, and the number is a guess. A VM
    that does other work from one minute to the next can't be sized; a line says so.

    With --flavor, running VMs of a flavor are sized one after the other: at most --vms of them, spread evenly between
    the one that moves most from and to memory now, which comes first, and the one that moves least. The flavor needs as
    many ways as its VM in most need. The command prints what each of them needs, for how many fewer ways would do, the
    command that changes the flavor, and how many ways all its VMs on this host would then take more, or less. A VM that
    can't be sized is listed with the reason, and the others go on. A VM that did other work meanwhile counts only where
    there is no other. Ctrl-C prints what was found until then.

    With --passive, nothing is tried. The command says what the VM's last minutes tell: what it missed while other VMs
    pressed on it and it held less, and while it held more. That is so of few VMs, and only of those without ways of
    their own: the VM has to have filled nearly all that it may fill, and to have missed even then, such as one that
    streams, or whose data are much larger than the cache. Of any other the command says why its past tells nothing, and
    the exit status is 1.

    The command asks first, unless --yes is given, and is for root.

    The exit status is 0 if the misses were counted, 4 if the VM did other work meanwhile, 5 if the number is a guess, 1
    if nothing could be tried, or with --flavor if it ended early, and 130 after Ctrl-C.

    For example::

        vmqos size web-1
        vmqos size web-1 --most 6
        vmqos size batch-1 --from 1
        vmqos size jit-1 --part code
        vmqos size web-1 --yes -f json
        vmqos size web-1 --yes -f value -c ways
        vmqos size --flavor c2.cache2 --vms 6
        vmqos size --flavor m1.small --from 2
        vmqos size batch-1 --passive
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add which VM, and how far to go."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "vm", metavar="VM", nargs="?", help="its UUID, a beginning of the UUID that no other VM has, or its name"
        )
        parser.add_argument(
            "--flavor",
            metavar="FLAVOR",
            help="size running VMs of this flavor instead, one after the other, and say how many ways the flavor needs",
        )
        parser.add_argument(
            "--vms",
            metavar="N",
            type=whole_number(1),
            help=f"with --flavor, try no more than so many VMs; {flavor.VMS} unless given",
        )
        parser.add_argument(
            "--from",
            dest="first",
            metavar="N",
            type=whole_number(1),
            help="begin with so many ways: as many as the VM is promised, unless given, and never fewer. A VM that "
            "is promised none needs this: it may fill more now, and so be slower meanwhile",
        )
        parser.add_argument(
            "--part",
            choices=stepping.PARTS,
            default="",
            help="of a VM that has ways for code and others for data, which of the two to try; data, unless given",
        )
        parser.add_argument(
            "--most",
            metavar="N",
            type=whole_number(1),
            help="try no more than so many ways in all; as many as there are free ones for, unless given",
        )
        parser.add_argument(
            "--passive",
            action="store_true",
            help="try nothing: say what the VM's last minutes tell, if they tell anything",
        )
        parser.add_argument("--yes", action="store_true", help="do not ask")
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Size a VM, or VMs of a flavor."""
        if not parsed_args.vm and not parsed_args.flavor:
            raise exceptions.MissingArgument(what="name a VM, or a flavor with --flavor", command="size")
        problem = "--vms belongs to --flavor" if parsed_args.vms and not parsed_args.flavor else ""
        if parsed_args.vm and parsed_args.flavor:
            problem = "a VM is sized, or those of a --flavor"
        if parsed_args.passive:
            tried = ("flavor", "first", "most", "part")
            problem = problem or ("--passive is for one VM, and tries no ways" if _any(parsed_args, tried) else "")
        if problem:
            raise exceptions.NotTogether(problem=problem, command="size")
        return super().run(parsed_args)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Try it out."""
        agent = settings.agent(self.app.options)
        if parsed_args.passive:
            found = self._tell_past(agent, parsed_args)
            return tuple(found), tuple(found.values())
        interval = ask.verdicts(agent)["interval"]
        size = self._size_flavor if parsed_args.flavor else self._size_vm
        found = size(agent, interval, parsed_args)
        return tuple(found), tuple(found.values())

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Draw the curve, or print the fields where that is asked for."""
        if parsed_args.formatter != "table" or parsed_args.columns:
            return super().produce_output(parsed_args, column_names, data)
        screen = terminal_of(self)
        terminal.show(self._draw(screen), self.app.stdout, screen)
        return 0

    def _tell_past(self, agent: AgentClient, parsed_args: argparse.Namespace) -> dict[str, Any]:
        told = past.find(agent, vm_view.find(agent.vms(), parsed_args.vm))
        self._draw = functools.partial(past.draw, told)
        found = past.fields(told)
        return found if is_for_machines(parsed_args) else past.flat(found)

    def _size_vm(self, agent: AgentClient, interval: float, parsed_args: argparse.Namespace) -> dict[str, Any]:
        room = self._room(agent, interval, parsed_args, vm_view.find(agent.vms(), parsed_args.vm))
        if not parsed_args.yes:
            confirm_first(self, view.question(room))
        sized = self._size(agent, interval, room)
        self.exit_status, self._draw = view.status(sized.found), functools.partial(view.draw, sized)
        found = view.fields(sized)
        return found if is_for_machines(parsed_args) else view.flat(found)

    def _size_flavor(self, agent: AgentClient, interval: float, parsed_args: argparse.Namespace) -> dict[str, Any]:
        def size_one(room: Room) -> Sized:
            # The trials before took their time, so that the VM and the free ways are looked at again.
            now = vm_view.find(agent.vms(), room.vm["uuid"])
            if now["flavor"] != room.vm["flavor"]:
                problem = f"its flavor is {neutralise(now['flavor']) or 'not known'} now"
                raise exceptions.NothingToSize(vm=display_name(now), problem=problem)
            return self._size(agent, interval, room_of(now))

        def tell(*what: Any) -> None:
            self.app.stderr.write(flavor_view.progress(*what))
            self.app.stderr.flush()

        room_of = functools.partial(self._room, agent, interval, parsed_args)
        vms = flavor.running(agent.vms(), parsed_args.flavor)
        chosen = flavor.select(agent, vms, room_of, parsed_args.vms or flavor.VMS)
        if chosen.rooms and not parsed_args.yes:
            confirm_first(self, flavor_view.question(chosen))
        sized = flavor.run(chosen, size_one, tell)
        self.exit_status, self._draw = flavor_view.status(sized), functools.partial(flavor_view.draw, sized)
        found = flavor_view.fields(sized)
        return found if is_for_machines(parsed_args) else flavor_view.flat(found)

    def _room(self, agent: AgentClient, interval: float, parsed_args: argparse.Namespace, vm: contract.Vm) -> Room:
        room = stepping.find(agent, vm, parsed_args.first, parsed_args.most, parsed_args.part)
        stepping.check(room, interval)
        return room

    def _size(self, agent: AgentClient, interval: float, room: Room) -> Sized:
        with view.Progress(self.app.stderr, room) as progress:
            return stepping.run(agent, room, interval, progress.report)


def _any(parsed_args: argparse.Namespace, names: Iterable[str]) -> bool:
    """Whether any of these was given."""
    return any(getattr(parsed_args, name) for name in names)
