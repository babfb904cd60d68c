# SPDX-License-Identifier: Apache-2.0
"""A Debian of its own in a directory: what is done in it, is done to no other system."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.lab import debian

SUITE = "trixie"
ENVIRONMENT = (
    *("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/root", "TERM=dumb"),
    *("DEBIAN_FRONTEND=noninteractive", "PYTHONDONTWRITEBYTECODE=1"),
)
"""What a command in the root has of an environment."""


class Failed(Exception):
    """A command in a root ended with another status than 0; the message has what it said."""


@dataclass(frozen=True, slots=True)
class DebianRoot:
    """A directory with Debian 13 in it.

    :ivar path: the directory.
    """

    path: Path

    @classmethod
    def make(cls, path: Path, packages: Sequence[str]) -> DebianRoot:
        """Install Debian's smallest system and some packages, from the mirror of this machine's apt.

        What the packages recommend does not come along.

        :param path: to be made.
        :raises Failed: with the end of what mmdebstrap said.
        """
        options = path.with_name(f"{path.name}.apt.conf")
        options.write_text("\n".join([*debian.apt_options(), 'APT::Install-Recommends "false";']) + "\n")
        run(
            [
                *debian.CONTAINED,
                "mmdebstrap",
                "--mode=root",
                "--format=directory",
                "--variant=minbase",
                f"--include={','.join(packages)}",
                f"--aptopt={options}",
                '--aptopt=Acquire::Languages "none"',
                "--dpkgopt=force-unsafe-io",
                "--skip=cleanup/apt/lists,cleanup/reproducible",
                SUITE,
                str(path),
                debian.source(SUITE),
            ]
        )
        made = cls(path)
        # Its apt reaches the mirror as this machine's does.
        shutil.copy(options, path / "etc/apt/apt.conf.d/99machine")
        resolver = path / "etc/resolv.conf"
        resolver.unlink(missing_ok=True)
        shutil.copy("/etc/resolv.conf", resolver)
        return made

    def command(self, *words: str) -> list[str]:
        """How to run a command in the root, as root: with mounts and processes of its own, which end with it."""
        inside = ("setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child")
        return [*inside, f"--root={self.path}", "--mount-proc", *ENVIRONMENT, *words]

    def run(self, *words: str) -> str:
        """What a command in the root prints.

        :raises Failed: if it ends with another status than 0.
        """
        return run(self.command(*words))

    def shell(self, line: str) -> str:
        """What a line of the shell prints, the errors among it.

        :raises Failed: if it ends with another status than 0.
        """
        return self.run("sh", "-ec", f"exec 2>&1\n{line}")


def run(command: Sequence[str]) -> str:
    """What a command prints.

    :raises Failed: if it ends with another status than 0, with the end of all that it said.
    """
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr)[-6000:]
        raise Failed(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    return done.stdout
