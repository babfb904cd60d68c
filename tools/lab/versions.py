# SPDX-License-Identifier: Apache-2.0
"""The agent and the gateway of an earlier version, started from the tree of that version."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tools.lab.program import Launch, Program
from tools.lab.workspace import CHECKOUT

BEFORE = "54cf6fb543d1de61d3dc936a274645a3b2994040"
"""The commit before the one that brought early starts, as it is on the main branch. Its agent is the one that hosts are
upgraded from. When a release has been made, the commit of that release takes its place."""

LATELY = "HEAD~20"
"""A commit of the last few landings. A landing has more commits than one, and CI looks at the last of them; so the one
right before this commit would leave out most changes of what one version leaves to the next."""

_RUN = """
import importlib, sys
tree, module, *arguments = sys.argv[1:]
sys.path.insert(0, tree)
# An editable install of vmqos would lend the tree the modules that it does not have.
sys.meta_path[:] = [one for one in sys.meta_path if not one.__module__.startswith("__editable___vmqos_")]
program = importlib.import_module(module)
assert program.__file__.startswith(f"{tree}/"), f"{program.__file__} is not of {tree}"
sys.argv = [module, *arguments]
sys.exit(program.main())
"""
"""Run the main() of a module of a tree, and of no other tree."""


class CommitMissing(Exception):
    """The commit is not in this clone."""


def extract(folder: Path, commit: str = BEFORE) -> Path:
    """Put the program of a commit into a folder that does not exist yet.

    :returns: the tree, which has the package ``vmqos`` alone.
    :raises CommitMissing: if git does not know the commit here, with what to do.
    """
    command = ["git", "-c", "safe.directory=*", "-C", str(CHECKOUT), "archive", "--format=tar", commit, "vmqos"]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise CommitMissing("git is not installed, and tests of the upgrade take the version before from it") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise CommitMissing(
            f"tests of the upgrade need the commit {commit}, and it can't be had from {CHECKOUT}: {said}. "
            "A shallow clone gets it by: git fetch --unshallow"
        )
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def launch_from(tree: Path) -> Launch:
    """Starts programs (:data:`tools.lab.program.Launch`) from a tree that :func:`extract` made."""

    def launch(module: str, arguments: Sequence[str], log: Path) -> Program:
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [sys.executable, "-c", _RUN, str(tree), module, *arguments]
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                cwd=tree,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    return launch


class Exchangeable:
    """Starts programs (:data:`tools.lab.program.Launch`), each in the version that is installed when it starts.

    :param new: starts this tree's version, which is installed at first.
    :param before: a tree of the version before.
    """

    def __init__(self, new: Launch, before: Path) -> None:
        self._new, self._before = new, launch_from(before)
        self.old: set[str] = set()
        """The modules of the programs that are installed in the version before."""

    def __call__(self, module: str, arguments: Sequence[str], log: Path) -> Program:
        """See :data:`tools.lab.program.Launch`."""
        return (self._before if module in self.old else self._new)(module, arguments, log)

    def install(self, *, agent: bool, gateway: bool) -> None:
        """Install versions, which the next starts use.

        :param agent: whether the agent is to be this tree's; otherwise it is the version before.
        :param gateway: the same of the gateway.
        """
        wanted = {"vmqos.agent.main": agent, "vmqos.gateway.main": gateway}
        self.old = {module for module, is_new in wanted.items() if not is_new}
