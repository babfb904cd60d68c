# SPDX-License-Identifier: Apache-2.0
"""Runs experiments in a guest: ``python -m tests.worth.inside NAME[:PROGRAM,PROGRAM...]...``.

On standard output is what it is at, a line for each step, and what each experiment found, as a line of JSON as soon as
it has ended. The exit status is 1 if one of them failed; the others are made all the same.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import traceback
from typing import Any

from tests.worth.node import Node, node

OF_PROCESSES = frozenset({"bench", "pseudo_locked"})
"""Those that need no compute node with VMs."""


def main() -> int:
    """Run what is named, one after the other."""
    failed = False
    with contextlib.ExitStack() as until_the_end:
        made: Node | None = None
        for word in sys.argv[1:]:
            name = word.partition(":")[0]
            print(f"{name}: starting", flush=True)
            try:
                if name not in OF_PROCESSES and made is None:
                    made = until_the_end.enter_context(node())
                found = run(word, made)
            except Exception:
                traceback.print_exc()
                failed = True
            else:
                tell({name: found})
    return int(failed)


def tell(found: dict[str, Any]) -> None:
    """Print a line of JSON, however long it is.

    A virtual serial port takes 32 KiB at a time (``port_fops_write`` in the kernel's virtio_console), and ``print``
    without a buffer (PYTHONUNBUFFERED) does not write the rest (https://github.com/python/cpython/issues/85393).
    """
    with open(sys.stdout.fileno(), "wb", closefd=False) as output:
        output.write(json.dumps(found).encode() + b"\n")


def run(word: str, made: Node | None) -> Any:
    """Run an experiment, on a compute node if it needs one.

    :param word: its name, and behind a colon which programs it is to run, if not all.
    """
    name, _, programs = word.partition(":")
    experiment = importlib.import_module(f"tests.worth.experiments.{name}")
    if made is None or name in OF_PROCESSES:
        return experiment.run()
    try:
        return experiment.run(made, tuple(programs.split(","))) if programs else experiment.run(made)
    finally:
        made.remove_all()


if __name__ == "__main__":
    sys.exit(main())
