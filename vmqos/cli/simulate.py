# SPDX-License-Identifier: Apache-2.0
"""``vmqos simulate``: an RDT machine in user space."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os

from vmqos.cli import exceptions
from vmqos.cli.common.help_text import Documented
from vmqos.visible_text import neutralise


class Simulate(Documented):
    """Mount a simulated resctrl, with the rules, errors and counters of a machine that has RDT.

    For trying vmqos out where there is no such hardware: tasks are the host's real ones, caches are not. It stays
    in the foreground until Ctrl-C or until MOUNTPOINT is unmounted.
    The agent uses it when [resctrl] path names MOUNTPOINT and [resctrl] sysfs_cpu_path the directory of --sysfs;
    what to write into vmqos.conf is printed at the start.

    For example::

        vmqos simulate --list-profiles
        vmqos simulate /tmp/rdt/resctrl --profile cascade-lake --sysfs /tmp/rdt/cpu
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the machine and where to put it."""
        parser = super().get_parser(prog_name)
        parser.add_argument("mountpoint", metavar="MOUNTPOINT", nargs="?", help="an empty directory; made if missing")
        parser.add_argument("--profile", metavar="PROFILE", help="the machine to simulate, see --list-profiles")
        parser.add_argument("--list-profiles", action="store_true", help="list the machines, then end")
        parser.add_argument(
            "--mount-options",
            metavar="OPTIONS",
            default="",
            help="as for the kernel's own, joined by commas: cdp, cdpl2, mba_MBps, debug; what the machine lacks is "
            "refused",
        )
        parser.add_argument(
            "--sysfs",
            metavar="DIR",
            help="write there what /sys/devices/system/cpu would say about the machine's caches, with this host's CPUs "
            "spread over them evenly",
        )
        parser.add_argument("--log", metavar="FILE", help="append a line of JSON for each change that is made")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """List the profiles, or serve one until it is over."""
        # Imported here: no other command needs the simulator.
        from vmqos.simulator import PROFILES

        if parsed_args.list_profiles:
            width = max(map(len, PROFILES), default=0)
            for name, profile in PROFILES.items():
                self.app.stdout.write(f"{name:{width}}  {profile.description}\n")
            return 0
        if not parsed_args.mountpoint or not parsed_args.profile:
            missing = "name a MOUNTPOINT and a --profile, or ask for --list-profiles"
            raise exceptions.MissingArgument(what=missing, command="simulate")
        if parsed_args.profile not in PROFILES:
            raise exceptions.NoSuchProfile(wanted=parsed_args.profile, known=", ".join(PROFILES))
        self._serve(parsed_args)
        return 0

    def _serve(self, parsed_args: argparse.Namespace) -> None:
        try:
            from vmqos.simulator.service import serve
        except (ImportError, OSError) as error:
            raise exceptions.NoFuse(problem=error) from error
        mountpoint = os.path.abspath(parsed_args.mountpoint)
        sysfs = os.path.abspath(parsed_args.sysfs) if parsed_args.sysfs else None
        made = _make_empty(mountpoint)

        def announce() -> None:
            # Nobody may be there to read it: that ends no mount.
            with contextlib.suppress(OSError):
                self.app.stdout.write(how_to_use(parsed_args.profile, mountpoint, sysfs))
                self.app.stdout.flush()

        try:
            serve(mountpoint, parsed_args.profile, parsed_args.mount_options, sysfs, parsed_args.log, announce=announce)
        except OSError as error:
            if error.errno == errno.EIO:
                raise exceptions.NoFuse(problem=f"{error.strerror}: {error.filename}") from error
            if error.errno == errno.EINVAL and parsed_args.mount_options:
                raise exceptions.NoSuchMountOption(
                    profile=parsed_args.profile, options=parsed_args.mount_options
                ) from error
            raise _unusable(error) from error
        except RuntimeError as error:
            raise exceptions.NoFuse(problem=error) from error
        finally:
            if made:
                os.rmdir(mountpoint)


def _make_empty(folder: str) -> bool:
    """Make a folder, or see that the one that is there is empty; whether it was made.

    :raises vmqos.cli.exceptions.NotEmpty: if something is in it, which a mount would hide.
    :raises vmqos.cli.exceptions.UnusableFile: if it can't be made or read.
    """
    try:
        try:
            found = os.listdir(folder)
        except FileNotFoundError:
            os.makedirs(folder)
            return True
    except OSError as error:
        raise _unusable(error) from error
    if found:
        raise exceptions.NotEmpty(path=neutralise(folder))
    return False


def _unusable(error: OSError) -> exceptions.UnusableFile:
    # A write that fails, as on a full disk, does not tell which file it is.
    path = "a file of the simulator" if error.filename is None else neutralise(os.fsdecode(error.filename))
    return exceptions.UnusableFile(path=path, problem=error.strerror)


def how_to_use(profile: str, mountpoint: str, sysfs: str | None) -> str:
    """What to write into vmqos.conf so that the agent uses the simulator."""
    lines = [
        f"Simulating the machine '{profile}' at {mountpoint} until Ctrl-C. For vmqos.conf:",
        "",
        "    [resctrl]",
        f"    path = {mountpoint}",
    ]
    if sysfs:
        lines.append(f"    sysfs_cpu_path = {sysfs}")
    else:
        lines += ["", "Give --sysfs DIR as well, or the agent can't know which CPUs use which of its caches."]
    return "\n".join(lines) + "\n"
