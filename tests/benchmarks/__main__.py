# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks and print their figures."""

from __future__ import annotations

import argparse
import importlib

ON_RESCTRL = ("placing", "audit", "sweep")
ELSEWHERE = ("planner", "start")


def main() -> None:
    """Run what was asked for, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    every = ", ".join((*ON_RESCTRL, *ELSEWHERE))
    parser.add_argument("names", nargs="*", help=f"which ones: {every}; all if none is named")
    parser.add_argument(
        "--resctrl",
        metavar="PATH",
        help="an empty resctrl that may be written to, a kernel's or the simulator's; "
        "without it, those that need one are left out",
    )
    parser.add_argument("--goresctrl", metavar="PROGRAM", help="for sweep: see Peers in bench_sweep.py")
    parser.add_argument("--pqos", metavar="PROGRAM", help="for sweep: Intel's pqos")
    arguments = parser.parse_args()
    for name in arguments.names or (*ON_RESCTRL, *ELSEWHERE):
        if name in ON_RESCTRL and not arguments.resctrl:
            print(f"{name}: left out, it needs --resctrl")
            continue
        module = importlib.import_module(f"tests.benchmarks.bench_{name}")
        given = [arguments.resctrl] if name in ON_RESCTRL else []
        if name == "sweep":
            given.append(module.Peers(arguments.goresctrl, arguments.pqos))
        for figure in module.run(*given):
            print(figure, flush=True)


if __name__ == "__main__":
    main()
