# SPDX-License-Identifier: Apache-2.0
"""The model of the caches for a shell in a guest: ``python3 -m tests.kernel.cachemodel on sample=0 memory_ns=100``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from tests.kernel.cachemodel import switch

CPUS = Path("/sys/devices/system/cpu")
ROW = "{:<40} {:>3} {:>5} {:>13} {:>13} {:>13} {:>7} {:>9} {:>11} {:>10}"
HEAD = ("group", "L3", "RMID", "from L2", "from L3", "from memory", "missed", "held KiB", "memory KiB", "waited ms")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.kernel.cachemodel", description=__doc__)
    parser.add_argument("command", choices=("on", "off", "empty", "show"))
    parser.add_argument("knobs", nargs="*", metavar="KNOB=N", help=f"for on: {', '.join(switch.KNOBS)}")
    parser.add_argument("--resctrl", type=Path, default=Path("/sys/fs/resctrl"), help="where it is mounted, with debug")
    chosen = parser.parse_args()
    match chosen.command:
        case "on":
            switch.turn_on(**_numbers(parser, chosen.knobs))
        case "off":
            switch.turn_off()
        case "empty":
            switch.empty()
        case _:
            print("\n".join(_table(chosen.resctrl)))


def _numbers(parser: argparse.ArgumentParser, words: list[str]) -> dict[str, int]:
    numbers = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in switch.KNOBS or not value.isdigit():
            parser.error(f"{word!r} is not KNOB=N; there are {', '.join(switch.KNOBS)}")
        numbers[name] = int(value)
    return numbers


def _table(root: Path) -> Iterator[str]:
    """What was counted for each group since boot; loads and stores."""
    yield ROW.format(*HEAD)
    for identity in sorted(root.glob("**/mon_hw_id")):
        rmid = int(identity.read_text())
        for cache, cpu in sorted(_first_cpus().items()):
            counts = switch.counts(cpu, rmid)
            if not counts.instructions:
                continue
            data = counts.data
            yield ROW.format(
                str(identity.parent.relative_to(root)),
                cache,
                rmid,
                data.l2,
                data.l3,
                data.memory,
                f"{counts.l3_miss_ratio:.3f}",
                counts.occupancy >> 10,
                counts.memory_bytes >> 10,
                counts.waited_ns // 1_000_000,
            )


def _first_cpus() -> dict[int, int]:
    """A CPU of each L3."""
    found: dict[int, int] = {}
    for path in CPUS.glob("cpu[0-9]*/cache/index3/id"):
        cache, cpu = int(path.read_text()), int(path.parts[-4].removeprefix("cpu"))
        found[cache] = min(cpu, found.get(cache, cpu))
    return found


if __name__ == "__main__":
    main()
