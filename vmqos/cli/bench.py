# SPDX-License-Identifier: Apache-2.0
"""``vmqos bench``: what a noisy neighbour does to a victim, and what ways of its own do for it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from vmqos.cli import exceptions
from vmqos.cli.common import settings
from vmqos.cli.common.option_values import seconds, size, whole_number
from vmqos.cli.common.output import Details, is_for_machines, terminal_of
from vmqos.cli.show import bench_view, terminal
from vmqos.cli.show.safe_text import neutralise

if TYPE_CHECKING:
    from vmqos.bench.setting import Host, Wishes

_LONGEST = 3600.0


class NoisyNeighbor(Details):
    """Measure on this host how much a noisy neighbour slows a cache-sensitive load, and how much ways of its own help.

    The classic experiment: a victim, which follows pointers through as much memory as half of its ways hold, is timed
    alone, beside neighbours that copy memory without end, and once more beside them when it has ways of the L3 cache
    for itself. Victim and neighbours are processes of this command, on cores of their own that share one L3 cache.

    --command measures a program of yours instead, and with --vm a VM: the time that the command takes which makes the
    VM work (over ssh, say). --neighbor-vm takes a VM for the neighbour that is noisy by itself; it is paused while the
    victim is alone.

    The neighbours disturb whatever else uses that L3 cache and the memory, for about three times --duration. The ways
    are those that only the default group holds; it gets them back. Groups of VMs and of others are not touched, and the
    agent may run. Ctrl-C ends it at any time, and leaves nothing.

    Where resctrl is simulated, or the machine is virtual or emulated, the figures mean nothing, and it says so.

    For example::

        vmqos bench noisy-neighbor
        vmqos bench noisy-neighbor --cache 1 --ways 4 --duration 20 -f json
        vmqos bench noisy-neighbor --vm web-1 --command "ssh web-1 ./benchmark" --neighbor-vm batch-1
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add where, how long, and with whom."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--cache",
            metavar="ID",
            type=whole_number(0),
            help="the L3 cache, by the kernel's cache id; the first that will do unless given",
        )
        parser.add_argument(
            "--ways",
            metavar="N",
            type=whole_number(1),
            help="how many ways the victim gets; 4 unless given, or as many as can be lent if that is less",
        )
        parser.add_argument(
            "--duration",
            metavar="SECONDS",
            type=seconds(0.1, _LONGEST),
            default=5.0,
            help="how long to measure in each of the phases, 0.1 or more; 5 unless given",
        )
        parser.add_argument(
            "--repetitions",
            metavar="N",
            type=whole_number(1),
            default=10,
            help="how many measurements these are, or how many runs of --command; 10 unless given",
        )
        parser.add_argument(
            "--working-set",
            metavar="SIZE",
            type=size("4K", "16G"),
            help="what the victim works on, such as 6M; half of what its ways hold unless given",
        )
        parser.add_argument(
            "--neighbors",
            metavar="N",
            type=whole_number(1),
            default=3,
            help="on how many cores to be noisy, at most; 3 unless given",
        )
        parser.add_argument(
            "--noise",
            choices=("auto", "stream", "cache", "builtin"),
            default="auto",
            help="stress-ng's --stream or --cache, or the built-in copying of memory; auto, unless given: stress-ng "
            "--stream where it is installed, else the built-in one",
        )
        parser.add_argument("--command", metavar="COMMAND", help="measure how long this runs, in a shell")
        parser.add_argument(
            "--vm",
            metavar="VM",
            help="the victim is this VM (UUID or name), which --command makes work; it has no promise",
        )
        parser.add_argument("--neighbor-vm", metavar="VM", help="the neighbour is this VM (UUID or name)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Look at the host, make the experiment, and say what came of it."""
        if parsed_args.vm and not parsed_args.command:
            raise exceptions.MissingArgument(
                what="a VM is measured by a --command that makes it work", command="bench noisy-neighbor"
            )
        self._found = self._measure(parsed_args)
        if is_for_machines(parsed_args):
            return tuple(self._found), tuple(self._found.values())
        return bench_view.fields(self._found)

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Draw the bars, or print the data where that is asked for."""
        if parsed_args.formatter != "table" or parsed_args.columns:
            return super().produce_output(parsed_args, column_names, data)
        screen = terminal_of(self)
        terminal.show(bench_view.draw(self._found, screen), self.app.stdout, screen)
        return 0

    def _measure(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        # Imported here: only this command needs them.
        from vmqos.bench import answer, left_paused, session, setting
        from vmqos.bench.exceptions import AnotherRun
        from vmqos.bench.experiment import Effort
        from vmqos.host.exceptions import AlreadyRunning
        from vmqos.host.single_instance import only_agent

        host, wishes = self._host(), _wishes(parsed_args)
        effort = Effort(parsed_args.duration, parsed_args.repetitions)
        try:
            # Two experiments would measure each other; and while this lock is held, a group of one is a dead one's.
            with only_agent(host.resctrl, who="bench"):
                for vm in left_paused.find():
                    self.app.stderr.write(f"{neutralise(f'{vm}; {vm.command!r} lets it run')}.\n")
                left = session.clear(host)
                found = setting.find(host, wishes)
                with bench_view.Progress(self.app.stderr, self.app.options.no_color) as progress:
                    progress.announce(found, effort, left)
                    measured = session.run(host, found, parsed_args.command or "", effort, progress.report)
        except AlreadyRunning as error:
            raise AnotherRun(owner=error.owner, path=error.lock_file) from error
        return answer.build(found, measured, parsed_args.command or "")

    def _host(self) -> Host:
        from vmqos.bench.setting import Host
        from vmqos.bench.ways import Policy

        conf = settings.configuration(self.app.options)
        allocation = conf.allocation
        return Host(
            resctrl=conf.resctrl.path,
            sysfs_cpu=conf.resctrl.sysfs_cpu_path,
            lock_timeout=conf.resctrl.lock_timeout,
            policy=Policy.of(allocation.default_ways_min, allocation.reserved_ways, allocation.use_shareable_ways),
            libvirt_uri=conf.libvirt.uri,
            run_dir=conf.libvirt.run_dir,
        )


def _wishes(parsed_args: argparse.Namespace) -> Wishes:
    from vmqos.bench.setting import Wishes

    return Wishes(
        cache=parsed_args.cache,
        ways=parsed_args.ways,
        neighbors=parsed_args.neighbors,
        noise=parsed_args.noise,
        working_set=parsed_args.working_set,
        vm=parsed_args.vm or "",
        neighbor_vm=parsed_args.neighbor_vm or "",
    )
