# SPDX-License-Identifier: Apache-2.0
"""``vmqos top``: what each VM takes of the caches and of the memory's bandwidth, live."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import time
from collections.abc import Callable, Iterator

from vmqos.cli.common import settings
from vmqos.cli.common.help_text import Documented
from vmqos.cli.common.option_values import seconds, whole_number
from vmqos.cli.show import freshness, terminal
from vmqos.cli.show.terminal import Terminal
from vmqos.cli.top import data, text_view
from vmqos.cli.top.data import Frame, Order

LEAST_DELAY = 0.1
LONGEST_DELAY = 86400.0
"""Seconds between two looks."""


class Top(Documented):
    """Show live what each VM holds of the L3 caches and moves to and from memory.

    For each VM: the L3 ways it has (a number and a bar; 0/4 where it has 0 of 4; 2c+4d are two for code and four for
    data), its L2 ways and the limit of its memory bandwidth that is in force, if any VM has such, the bytes it holds of
    all L3 caches together and of how many it was promised, how full its ways are, and its memory bandwidth: in total,
    to the memory of its own socket (local), and to that of others (remote); K, M and G are KiB, MiB and GiB. Where the
    kernel gives hardware events, instructions per cycle and last-level cache misses too (on AMD's processors the misses
    are those of a core's L2; ~1.23 is an estimate); root counts these here where the agent does not. Where the
    processor's packages count for VMs, also the power of the CPU cores (WATTS), and the share of the cycles that went
    by waiting for memory (STALLED). VMs that are pending or degraded are marked, and listed above the others with the
    reason.

    FULLEST is the cache where the VM's ways are fullest: 0:98% means that it has filled 98 % of its ways on cache 0. A
    bar for each cache follows. A VM can lack cache on one socket while the sum over both looks half empty.

    A terminal that is too narrow shows fewer columns, the least important ones being left out first.

    A word in place of a number is the reason why there is none: 'no value' (the hardware has none now), 'unassigned'
    (no hardware counter is assigned to the VM now: there are too few for all), 'no group' (the VM is in no group that
    is monitored), '...' (it takes another look). What this
    machine does not count at all is left out, and a line below says so.

    Asks the agent, whose bandwidths are those between its own last two looks ([telemetry] interval). Where no agent
    runs, reads resctrl's counters itself: then VMs have no names and no states.

    Two lines on top tell the host, how many promises are kept, what the VMs hold of all L3 caches, and what they move
    to and from memory together; VMs without a number are counted there. From the second look on they also tell what is
    moved outside of VMs: by the host's own tasks, by those of classes, and by other programs' groups.

    In a terminal it goes on until q or Ctrl-C; ? tells the keys. The arrows move from VM to VM; Enter shows one VM in
    detail, all that 'vmqos vm show' knows and its live figures, and Esc leads back. / lists only the VMs that have a
    text in their name, UUID or flavor.

    With -f csv or json, or where the output is no terminal, it looks once, or as often as -n says, and prints each
    look: with json as an object on a line of its own, with csv as a line for each VM. There, instance_name is the
    name in Nova, and name the one in libvirt.

    A line on top, or a warning with csv and json, says if what is shown is old: the agent answers, and does not look
    any more. The exit status is 3 if that was so at the last look that was printed.

    For example::

        vmqos top
        vmqos top --sort total -d 5 web-1 db-1
        vmqos top --once -f json
        vmqos top -n 60 -d 1 -f csv
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add what to show, how, and how often."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "vms",
            metavar="VM",
            nargs="*",
            help="only these VMs, each by its name, its UUID, or a beginning of the UUID",
        )
        parser.add_argument(
            "-d",
            "--delay",
            metavar="SECONDS",
            type=seconds(LEAST_DELAY, LONGEST_DELAY),
            default=2.0,
            help="seconds between two looks, 0.1 or more; 2 unless given",
        )
        times = parser.add_mutually_exclusive_group()
        times.add_argument(
            "-n", "--count", metavar="N", type=whole_number(0), help="end after so many looks; 0: go on until Ctrl-C"
        )
        times.add_argument("--once", dest="count", action="store_const", const=1, help="look once: -n 1")
        parser.add_argument(
            "--sort",
            metavar="KEY",
            choices=tuple(data.SORT_KEYS),
            default="occupancy",
            help=f"sort by this: {', '.join(data.SORT_KEYS)}; by occupancy unless given",
        )
        parser.add_argument("--reverse", action="store_true", help="sort the other way round")
        parser.add_argument(
            "-f",
            "--format",
            dest="formatter",
            choices=("table", "csv", "json"),
            default="table",
            help="for people (table, unless given), or for programs",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Look, and show."""
        screen = terminal.of_stream(self.app.stdout, os.environ, self.app.options.no_color)
        # Imported here: only this command counts.
        from vmqos.cli.top.source import Source
        from vmqos.telemetry import Sweeper
        from vmqos.telemetry.hardware_events import HardwareEvents

        options = self.app.options
        root = settings.readable_configuration(options).resctrl.path
        source = Source(settings.agent(options), Sweeper(root), HardwareEvents)
        order = Order(parsed_args.sort, parsed_args.reverse)
        live = parsed_args.formatter == "table" and screen.bounded and os.environ.get("TERM") != "dumb"
        try:
            if live and parsed_args.count is None:
                # Imported here: there may be no terminal's library where there is no terminal.
                from vmqos.cli.top import live_display

                with contextlib.suppress(KeyboardInterrupt):
                    live_display.run(source.look, self.app.stdout, screen, parsed_args.delay, parsed_args.vms, order)
            else:
                return self._print(source.look, parsed_args, screen, order)
        finally:
            source.close()
        return 0

    def _print(self, look: Callable[[], Frame], parsed_args: argparse.Namespace, screen: Terminal, order: Order) -> int:
        """Print one look after the other; the exit status, which says whether the last one was old."""
        count = 1 if parsed_args.count is None else parsed_args.count
        output = self.app.stdout
        table = csv.writer(output, lineterminator="\n")
        for number, frame in enumerate(_looks(look, parsed_args.delay, count)):
            if number == 0:
                data.require(frame.rows, parsed_args.vms)
                if parsed_args.formatter == "csv":
                    table.writerow(data.CSV_TITLES)
            if parsed_args.formatter != "table" and frame.freshness.warning:
                self.app.LOG.warning(frame.freshness.warning)
            rows = data.choose(frame.rows, parsed_args.vms, order)
            if parsed_args.formatter == "json":
                output.write(f"{json.dumps(data.as_json(frame, rows))}\n")
            elif parsed_args.formatter == "csv":
                table.writerows(data.as_csv(frame, rows))
            else:
                lines = text_view.draw(frame, rows, order, screen).lines
                if number:
                    output.write("\n")
                for line in lines:
                    terminal.show(line, output, screen)
            output.flush()
        return freshness.OLD_STATUS if frame.freshness.warning else 0


def _looks(look: Callable[[], Frame], delay: float, count: int) -> Iterator[Frame]:
    """So many looks, or without end for 0; one whose bandwidths take another look is not given out."""
    frame = look()
    due = time.monotonic()
    if frame.is_first:
        time.sleep(delay)
        frame = look()
        due = time.monotonic()
    yield frame
    number = 1
    while number != count:
        # After a look that took long, or a time in which this process was stopped or nobody read from the pipe, none is
        # made up for: looks without a pause between them would tell of moments.
        due = max(due + delay, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        yield look()
        number += 1
