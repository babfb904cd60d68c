# SPDX-License-Identifier: Apache-2.0
"""How fast the library is on this machine: accesses a second, of one CPU of ours."""

from __future__ import annotations

import time

from tests.worth.native import Load, Machine, Order

MIX = {
    "sequential": Load(Order.SEQUENTIAL, 6 << 20, overlap=8),
    "shuffled": Load(Order.SHUFFLED, 2 << 20),
    "random": Load(Order.RANDOM, 6 << 20),
    "zipf": Load(Order.ZIPF, 8 << 20),
    "endless": Load(Order.ENDLESS, overlap=8, stores=0.3),
    "in the L2": Load(Order.RANDOM, 128 << 10),
}
"""Loads of different speeds, which fight for an L3 of 4 MiB."""
ENOUGH = 1.0
"""Seconds that a measurement takes."""


def rate(loads: list[Load], **options: object) -> float:
    """Accesses a second of loads that run together."""
    with Machine(cpus=len(loads), **options) as machine:  # type: ignore[arg-type]
        tasks = [machine.start(load, cpu=n, rmid=n + 1) for n, load in enumerate(loads)]
        machine.run(0.1)
        before, begin = sum(machine.progress(task).accesses for task in tasks), time.process_time()
        while time.process_time() - begin < ENOUGH:
            machine.run(0.02)
        took = time.process_time() - begin
        return (sum(machine.progress(task).accesses for task in tasks) - before) / took


def main() -> None:
    """Print them."""
    for sample in (0, 3):
        for name, load in MIX.items():
            print(f"sample={sample} {name:<11} {rate([load], sample=sample) / 1e6:7.1f} million accesses a second")
        together = list(MIX.values())
        print(f"sample={sample} {'all at once':<11} {rate(together, sample=sample) / 1e6:7.1f}")
        print(f"sample={sample} {'+ evictions':<11} {rate(together, sample=sample, evictions=True) / 1e6:7.1f}")
        print(f"sample={sample} {'+ channel':<11} {rate(together, sample=sample, bytes_per_cycle=2.0) / 1e6:7.1f}")


if __name__ == "__main__":
    main()
