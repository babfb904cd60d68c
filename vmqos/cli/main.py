# SPDX-License-Identifier: Apache-2.0
"""The ``vmqos`` command.

The libraries of the application take a fifth of a second to load. They are loaded where an interrupt is waited for, so
this module itself imports next to nothing.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPT_STATUS = 130
CLOSED_PIPE_STATUS = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    :param argv: the arguments; those of the process if ``None``.
    :returns: the exit status: 0, 1 for a failure, 2 for wrong usage, 3 if what was printed is old, 130 and 141 for an
        interrupt and a closed pipe.
    """
    # Where the caller has closed them, there are none, and what a command does must not fail for it.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A name that the locale can't write must not end the listing.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            from vmqos.cli.app import VmqosApp
        except ModuleNotFoundError as error:
            from vmqos.programs import what_is_missing

            print(what_is_missing("vmqos", error), file=sys.stderr)
            return 1
        try:
            status = VmqosApp().run(list(sys.argv[1:] if argv is None else argv))
        except SystemExit as ended:
            # argparse ends so, after --version and after wrong usage.
            status = ended.code if isinstance(ended.code, int) else 0
        return _once_written(status)
    except KeyboardInterrupt:
        # Before there is an application that takes it.
        return INTERRUPT_STATUS


def _once_written(status: int) -> int:
    """The exit status once all of the output is written: a full disk may only show now.

    :param status: the exit status where it can be written.
    """
    if sys.stdout.closed:
        # The pager of help texts does that where the reader of a pipe has left.
        return status
    try:
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        status = CLOSED_PIPE_STATUS
    except OSError as error:
        if not status:
            # A command that failed has said why.
            print(f"vmqos: {error}", file=sys.stderr)
            status = 1
    # Python flushes it once more at the end, and would print that this failed.
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return status


if __name__ == "__main__":
    sys.exit(main())
