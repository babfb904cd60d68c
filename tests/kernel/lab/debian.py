# SPDX-License-Identifier: Apache-2.0
"""Debian's packages: from the mirror that this machine's own apt uses, unpacked into a directory or a whole system.

mmdebstrap does the work, with apt and dpkg. apt checks the archive's signature (with gpgv and the keys of
debian-archive-keyring) and each package's digest. All of it runs in mount and PID namespaces that end with us, so that
not even SIGKILL leaves a mount or a process behind.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.lab.errors import BuildFailed, LabError, NoMirror

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
CONTAINED = ("setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Before a command: it, and all that it starts, sees private mounts and dies with the thread that started it."""

NOT_INSTALLED = ("doc", "info", "lintian", "locale", "man")
"""Directories of /usr/share that nothing in a guest reads."""


@dataclass(frozen=True, slots=True)
class Packages:
    """What to install, of which suite.

    :ivar suite: Debian's name of a release.
    :ivar names: packages; what they depend on comes along, what they recommend does not.
    :ivar unpack_only: run no maintainer script, and leave out what every Debian system has: a directory of files, not
        a system.
    """

    suite: str
    names: tuple[str, ...]
    unpack_only: bool = False


def mirror() -> str:
    """The mirror's URI: ``$VMQOS_DEBIAN_MIRROR``, or the first of this machine's apt that ends in ``debian``.

    :raises NoMirror: where there is none.
    """
    if chosen := os.environ.get("VMQOS_DEBIAN_MIRROR"):
        return chosen.rstrip("/")
    listed = ""
    with suppress(LabError):
        listed = _ask(["apt-get", "indextargets", "--format", "$(REPO_URI)"])
    for line in listed.splitlines():
        if re.fullmatch(r"[a-z+-]+:/.*/debian/?", line):
            return line.rstrip("/")
    raise NoMirror(
        "this machine's apt names no mirror of Debian to fetch the guests' packages from: set VMQOS_DEBIAN_MIRROR to "
        "the URI of one (it ends in /debian)"
    )


def source(suite: str) -> str:
    """A line of sources.list(5)."""
    return f"deb [signed-by={KEYRING}] {mirror()} {suite} main"


def apt_options() -> list[str]:
    """How this machine's apt reaches its mirror (proxies, time-outs, whether dates are checked): as apt.conf(5) has it.

    ``Acquire::Check-Valid-Until`` matters on mirrors that are copies of some day.
    """
    return [
        line
        for line in _ask(["apt-config", "dump", "Acquire"]).splitlines()
        if not line.endswith(' "";') and "::IndexTargets::" not in line and "::cdrom::" not in line
    ]


def install(
    packages: Packages,
    target: Path,
    log: Path,
    run: Callable[[Sequence[str], Path], None],
) -> Mapping[str, str]:
    """Make ``target``.

    :param log: where the programs' output goes.
    :param run: runs a command, its output appended to the log; raises :class:`BuildFailed`.
    :returns: the versions of the packages named, by package.
    :raises BuildFailed: the message has the end of the log.
    """
    options = target.parent / f"{target.name}.apt.conf"
    options.write_text("\n".join(apt_options()) + "\n")
    command = [
        *CONTAINED,
        "mmdebstrap",
        "--verbose",
        "--mode=root",
        "--format=directory",
        "--architectures=amd64",
        f"--variant={'extract' if packages.unpack_only else 'minbase'}",
        f"--include={','.join(packages.names)}",
        f"--aptopt={options}",
        '--aptopt=Acquire::Languages "none"',
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in NOT_INSTALLED),
        # The lists are asked for the versions below.
        "--skip=cleanup/apt/lists",
        packages.suite,
        str(target),
        source(packages.suite),
    ]
    run(command, log)
    options.unlink()
    versions = candidates(target, packages.names)
    shutil.rmtree(target / "var/lib/apt/lists")
    return versions


def candidates(root: Path, names: Sequence[str]) -> dict[str, str]:
    """The versions that the package lists under ``root`` offer.

    :raises BuildFailed: if one offers none.
    """
    status = f"Dir::State::status={root}/var/lib/dpkg/status"
    shown = _ask(["apt-cache", "-o", f"Dir={root}", "-o", status, "policy", *names])
    found = dict(re.findall(r"^(\S+):\n(?:.*\n)*?  Candidate: (\S+)$", shown, re.MULTILINE))
    if lacking := [name for name in names if found.get(name, "(none)") == "(none)"]:
        raise BuildFailed(f"Debian's package lists lack {', '.join(lacking)}")
    return {name: found[name] for name in names}


def newest(suite: str, names: Sequence[str], scratch: Path) -> dict[str, str]:
    """The versions that the mirror offers now.

    :param scratch: a directory for apt's state.
    :raises LabError: if the mirror can't be asked.
    """
    for directory in (
        "etc/apt/apt.conf.d",
        "var/lib/apt/lists/partial",
        "var/cache/apt/archives/partial",
        "var/lib/dpkg",
    ):
        (scratch / directory).mkdir(parents=True, exist_ok=True)
    (scratch / "var/lib/dpkg/status").touch()
    (scratch / "etc/apt/sources.list").write_text(source(suite) + "\n")
    (scratch / "apt.conf").write_text(
        "\n".join(
            [
                *apt_options(),
                f'Dir "{scratch}";',
                f'Dir::State::status "{scratch}/var/lib/dpkg/status";',
                'Acquire::Languages "none";',
                'APT::Sandbox::User "root";',
                'APT::Architecture "amd64";',
            ]
        )
        + "\n"
    )
    _ask(["apt-get", "update", "--error-on=any"], APT_CONFIG=str(scratch / "apt.conf"))
    return candidates(scratch, names)


def _ask(command: Sequence[str], **environment: str) -> str:
    """What a program of apt's prints.

    :raises LabError: if it fails, or is not there.
    """
    try:
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LabError(f"there is no program {command[0]}") from None
    if done.returncode:
        raise LabError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
