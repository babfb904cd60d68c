# SPDX-License-Identifier: Apache-2.0
"""The kernel lab by hand: ``python -m tests.kernel --help``."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kernel.lab import guest, machines
from tests.kernel.lab.build import build
from tests.kernel.lab.cache import Cache, default_root
from tests.kernel.lab.errors import LabError
from tests.kernel.lab.job import Job
from tests.kernel.lab.machines import KERNELS, MACHINES
from tests.kernel.lab.progress import Display

EXPLANATION = """\
Boots a stock Debian kernel in QEMU's software emulation, on a CPU that a plugin gives Intel RDT or AMD's Platform QoS.
Neither the hardware nor KVM is needed.

    python -m tests.kernel build                    make what guests are booted from (root; two minutes, once)
    python -m tests.kernel shell cascade-lake       a root shell in a guest
    python -m tests.kernel run milan newest -- ls   run a command in a guest; its status is this program's

The tests in guests: tools/test kernel, which installs what it needs; or tox -e kernel, as root; or, as root, with what
is built:

    pytest -n 2 --dist loadgroup tests/kernel tests/conformance
"""
ENVIRONMENT = f"""\
environment:
  VMQOS_KERNEL_LAB     where what is built is kept (now {default_root()})
  VMQOS_DEBIAN_MIRROR  where packages come from (else: the mirror that this machine's apt uses)

exit status: of "run" and "shell", the command's; 125 if there was no guest to run it, or nothing could be built
"""
DAY = 86400.0
SHELL = """\
stty -F /dev/ttyS0 rows {rows} cols {columns}
echo; echo "resctrl: mount -t resctrl resctrl /sys/fs/resctrl; the source tree is here; exit powers off."
exec bash -i
"""


if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def main() -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kernel",
        description=EXPLANATION,
        epilog=ENVIRONMENT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    one = _add_command(commands, "build", "make what guests are booted from, as far as it is missing or outdated")
    one.add_argument("--refresh", action="store_true", help="look for newer packages now, not once a week")

    _add_command(commands, "machines", "list the machines and kernels, with what makes them so")

    one = _add_command(commands, "shell", "a root shell in a guest, on this terminal; exit powers off")
    _add_where(one, kernel=KERNELS[-1])

    one = _add_command(commands, "run", "run a command in a guest, and print what it printed once it has ended")
    _add_where(one)
    one.add_argument(
        "--out", type=Path, metavar="DIR", help="keep console, kernel log, register trace and $VMQOS_GUEST_OUT there"
    )
    one.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="seconds for boot and command (default: %(default).0f)",
    )
    one.add_argument("argv", nargs="+", metavar="COMMAND", help="after --; it is run as root in the source tree")

    chosen = parser.parse_args()
    try:
        return _act(chosen)
    except (LabError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 125
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130


def _add_command(commands: Commands, name: str, help_: str) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.")


def _add_where(parser: argparse.ArgumentParser, *, kernel: str | None = None) -> None:
    """The positional arguments of a guest; the kernel may be left out if there is one to take then."""
    parser.add_argument("machine", metavar="MACHINE", choices=MACHINES, help=f"one of {', '.join(MACHINES)}")
    parser.add_argument(
        "kernel",
        metavar="KERNEL",
        nargs="?" if kernel else None,
        default=kernel,
        choices=KERNELS,
        help=" or ".join(KERNELS) + (f" (default: {kernel})" if kernel else ""),
    )
    parser.add_argument("--append", default="", metavar="TEXT", help="more of the kernel's command line")


def _act(chosen: argparse.Namespace) -> int:
    match chosen.command:
        case "build":
            return _build(refresh=chosen.refresh)
        case "machines":
            return _list()
        case "shell":
            return _shell(chosen)
        case _:
            return _run(chosen)


def _build(*, refresh: bool) -> int:
    cache = Cache()
    display = Display()
    parts = build(cache, display, refresh=refresh)
    for name, part in parts.items():
        versions = part.manifest["versions"]
        told = [
            f"{key} {versions[key]}" for key in ("qemu-system-x86", "linux", "libvirt-daemon-system") if key in versions
        ]
        display.say(f"{name}: ready{', ' if told else ''}{', '.join(told)}")
    print(f"the kernel lab is ready in {cache.root}")
    return 0


def _list() -> int:
    print("kernels:", ", ".join(KERNELS))
    for machine in MACHINES.values():
        print(f"\n{machine.name}\n    {machine.description}\n    -cpu {machine.cpu} -smp {machine.smp}")
        arguments = " ".join(
            f"{name}={value:#x}" if "shared" in name else f"{name}={value}" for name, value in machine.plugin.items()
        )
        print(textwrap.indent(textwrap.fill(f"plugin: {arguments or 'its defaults'}", 110), "    "))
    return 0


def _shell(chosen: argparse.Namespace) -> int:
    if not sys.stdin.isatty():
        raise LabError("a shell needs a terminal; to run a command: python -m tests.kernel run ...")
    with guest.kept_of_the_dead() as path:
        columns, rows = shutil.get_terminal_size()
        job = Job(SHELL.format(rows=rows, columns=columns), interactive=True)
        result = guest.run(machines.machine(chosen.machine), chosen.kernel, job, path, DAY, append=chosen.append)
    return result.status


def _run(chosen: argparse.Namespace) -> int:
    with nullcontext(chosen.out) if chosen.out else guest.kept_of_the_dead() as path:
        result = guest.run(
            machines.machine(chosen.machine),
            chosen.kernel,
            Job(f"exec {shlex.join(chosen.argv)}"),
            path,
            chosen.timeout,
            append=chosen.append,
        )
        sys.stdout.write(result.stdout)
        sys.stderr.write(result.stderr)
    return result.status


if __name__ == "__main__":
    sys.exit(main())
