# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks and print their figures."""

from __future__ import annotations

import argparse
import importlib

ON_RESCTRL = ("placing", "audit")
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
    arguments = parser.parse_args()
    for name in arguments.names or (*ON_RESCTRL, *ELSEWHERE):
        if name in ON_RESCTRL and not arguments.resctrl:
            print(f"{name}: left out, it needs --resctrl")
            continue
        module = importlib.import_module(f"tests.benchmarks.bench_{name}")
        for figure in module.run(arguments.resctrl) if name in ON_RESCTRL else module.run():
            print(figure, flush=True)


if __name__ == "__main__":
    main()
