# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks and print their figures."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace

from tests.benchmarks import goresctrl, instructions
from tests.benchmarks.arena import arena
from tests.benchmarks.figures import QUICK, THOROUGH, Effort
from vmqos.resctrl import mount

ON_RESCTRL = ("placing", "masks", "reading", "pqos", "audit", "switch", "sweep")
ELSEWHERE = ("planner", "start", "end", "hindered", "idle", "memory", "telemetry-cost", "ceilometer")
IN_NOVA = ("scheduler",)
WITH_SERVERS = ("placement",)
GUEST_TIMEOUT = 1200.0
GORESCTRL = "benchmark-goresctrl"
"""Its program, in the guest's tree."""
EPILOG = f"""\
benchmarks on a resctrl: {", ".join(ON_RESCTRL)}
without one: {", ".join(ELSEWHERE)}
where Nova is installed (only if named): {", ".join(IN_NOVA)}
where tests/openstack runs (only if named): {", ".join(WITH_SERVERS)}

    python -m tests.benchmarks --guest cascade-lake     those on a resctrl, in a guest of the kernel lab (root),
                                                        beside pqos, with the instructions counted
"""


def main() -> int:
    """Run what was asked for, one after the other."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones; all that can be run if none is named")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--resctrl", metavar="PATH", help="an empty resctrl to write to, a kernel's or the simulator's")
    where.add_argument(
        "--guest", metavar="MACHINE", help="a machine of the kernel lab (python -m tests.kernel machines)"
    )
    parser.add_argument("--kernel", metavar="KERNEL", default="newest", help="the guest's: 6.12, newest (the default)")
    parser.add_argument("--quick", action="store_true", help="too few rounds for figures: to see that it runs")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each action is timed (default: 15)")
    parser.add_argument(
        "--rmids",
        type=int,
        metavar="N",
        help="the guest's, over the machine's: sweep needs 512 beside pqos, 256 without",
    )
    parser.add_argument("--goresctrl", metavar="PROGRAM", help="with --resctrl: tests/benchmarks/goresctrl, built")
    parser.add_argument("--count-instructions", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    unknown = set(chosen.names) - {*ON_RESCTRL, *ELSEWHERE, *IN_NOVA, *WITH_SERVERS}
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    homeless = [name for name in ON_RESCTRL if name in chosen.names]
    if homeless and not (chosen.resctrl or chosen.guest):
        parser.error(f"{', '.join(homeless)}: say on which resctrl, by --resctrl or --guest")
    effort = QUICK if chosen.quick else THOROUGH
    if chosen.rounds:
        effort = replace(effort, rounds=chosen.rounds, counting=0.0)
    if chosen.guest:
        further = [*(["--quick"] if chosen.quick else []), *(["--rounds", str(chosen.rounds)] if chosen.rounds else [])]
        return _in_guest(chosen.guest, chosen.kernel, chosen.names, further, rmids=chosen.rmids)
    if chosen.resctrl:
        names = [name for name in ON_RESCTRL if name in (chosen.names or ON_RESCTRL)]
        _on_resctrl(chosen.resctrl, names, effort, count=chosen.count_instructions, goresctrl=chosen.goresctrl)
    for name in (*ELSEWHERE, *IN_NOVA, *WITH_SERVERS):
        if name in chosen.names or (name in ELSEWHERE and not (chosen.names or chosen.resctrl)):
            _print(importlib.import_module(f"tests.benchmarks.bench_{name.replace('-', '_')}").run())
    return 0


def _on_resctrl(root: str, names: list[str], effort: Effort, *, count: bool, goresctrl: str | None) -> None:
    for name in names:
        with arena(root, count=count, goresctrl=goresctrl) as where:
            _print(importlib.import_module(f"tests.benchmarks.bench_{name}").run(where, effort))


def _print(figures: Iterable[object]) -> None:
    for figure in figures:
        print(figure, flush=True)


def _in_guest(machine: str, kernel: str, names: list[str], further: list[str], *, rmids: int | None) -> int:
    from tests.kernel.lab import guest, machines
    from tests.kernel.lab.errors import LabError
    from tests.kernel.lab.job import Job

    arguments = ["--count-instructions", *further]
    files = {}
    if not names or "sweep" in names:
        program = goresctrl.build()
        if program is not None:
            files[GORESCTRL] = program
            arguments += ["--goresctrl", f"./{GORESCTRL}"]
    script = f"""\
mount -t resctrl resctrl {mount.DEFAULT_PATH} || exit 1
ulimit -n 65536
test ! -e {GORESCTRL} || chmod +x {GORESCTRL}
exec python3 -m tests.benchmarks --resctrl {mount.DEFAULT_PATH} {shlex.join([*arguments, *names])}
"""
    plugin = {**instructions.PLUGIN, **({} if rmids is None else {"rmids": rmids})}
    try:
        with guest.kept_of_the_dead() as path:
            where = machines.machine(machine), machines.kernel(kernel), Job(script, files), path, GUEST_TIMEOUT
            result = guest.run(*where, plugin=plugin)
            print(result.stdout, end="")
            print(result.stderr, end="", file=sys.stderr)
            return result.status
    except LabError as error:
        print(f"python -m tests.benchmarks: {error}", file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(main())
